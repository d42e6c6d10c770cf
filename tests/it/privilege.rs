//! The acts that each user of `dyad topology export` may perform, and those that the servers
//! refuse; all are tried on real servers.

use std::time::Duration;

use broker::AgentName;
use broker::bus::Bus;
use broker::bus::amqp::{AmqpBus, AmqpOptions};
use broker::bus::verified::{self, VerifyError};
use broker::topology::{Queue, Speaker, Topology};
use configs::ParticipantName;
use lapin::options::{
    BasicConsumeOptions, BasicGetOptions, QueueBindOptions, QueueDeclareOptions, QueueDeleteOptions, QueuePurgeOptions,
};
use lapin::types::FieldTable;
use lapin::{BasicProperties, Channel};
use tests::fleet::RUN;
use tests::letters::topology;
use tests::secured::{OTHER, Secured};

use crate::login::{Login, publish};
use crate::program;

const PATIENCE: Duration = Duration::from_secs(60);
const REFUSED: &str = "ACCESS_REFUSED";

fn agent(name: &str) -> AgentName {
    AgentName::new(name).unwrap()
}

async fn consume(channel: Channel, queue: &str) -> lapin::Result<()> {
    let (tag, options) = ("".into(), BasicConsumeOptions::default());
    let consuming = channel.basic_consume(queue.into(), tag, options, FieldTable::default());
    consuming.await.map(drop)
}

async fn bind(channel: Channel, queue: &str, exchange: &str, key: &str) -> lapin::Result<()> {
    let options = QueueBindOptions::default();
    channel
        .queue_bind(
            queue.into(),
            exchange.into(),
            key.into(),
            options,
            FieldTable::default(),
        )
        .await
}

/// Declares a listener's own queue, as every process does to receive the others' heartbeats.
async fn own_queue(channel: &Channel, name: &str) -> lapin::Result<()> {
    let options = QueueDeclareOptions {
        exclusive: true,
        auto_delete: true,
        ..QueueDeclareOptions::default()
    };
    let declared = channel.queue_declare(name.into(), options, FieldTable::default());
    declared.await.map(drop)
}

fn refused_publish(login: &Login, deed: &str, exchange: &str, key: &str) {
    login.refused(deed, REFUSED, exchange, async |channel| {
        publish(channel, exchange, key, BasicProperties::default()).await
    });
}

fn refused_key(login: &Login, deed: &str, exchange: &str, key: &str) {
    login.refused(deed, REFUSED, key, async |channel| {
        publish(channel, exchange, key, BasicProperties::default()).await
    });
}

fn allowed_publish(login: &Login, deed: &str, exchange: &str, key: &str) {
    login.allowed(deed, async |channel| {
        publish(channel, exchange, key, BasicProperties::default()).await
    });
}

fn refused_consume(login: &Login, deed: &str, queue: &Queue) {
    login.refused(deed, REFUSED, &queue.name, async |channel| {
        consume(channel, &queue.name).await
    });
}

#[test]
fn an_agent_can_use_only_its_own_queues() {
    let program = program();
    let servers = Secured::start(&program);
    let login = Login::new(&servers, "agent-a");
    let run = topology(RUN);
    its_own_queues_are_allowed(&login, &run);
    tasks_are_not_its(&login, &run);
    the_other_agent_is_not_its(&login, &run);
    other_names_are_not_its(&login, &run);
    messages_of_others_are_not_its(&login, &run);
}

fn its_own_queues_are_allowed(login: &Login, run: &Topology) {
    let a = agent("a");
    for queue in [run.turns(&a), run.reserve(&a), run.samples(&a)] {
        login.allowed("consume from its own queue", async |channel| {
            consume(channel, &queue.name).await
        });
        login.allowed("bind its own queue again", async |channel| {
            bind(channel, &queue.name, &queue.exchange.name, &queue.routing_key).await
        });
    }
    let control = run.to_control(Speaker::Agent(&a));
    allowed_publish(login, "send its own heartbeat", &control.exchange, &control.routing_key);
    let answer = run.to_results("c0ffee00", "a");
    allowed_publish(
        login,
        "answer a coordinator as itself",
        &answer.exchange,
        &answer.routing_key,
    );
    for queue in [run.reclaim(), run.dead()] {
        let to = run.to(&queue);
        allowed_publish(
            login,
            "hand back tasks and send dead letters",
            &to.exchange,
            &to.routing_key,
        );
    }
}

fn tasks_are_not_its(login: &Login, run: &Topology) {
    let tasks = run.to(&run.tasks());
    refused_publish(login, "publish a task", &tasks.exchange, &tasks.routing_key);
    refused_consume(login, "take tasks", &run.tasks());
    refused_consume(login, "take groups that are handed back", &run.reclaim());
    refused_consume(login, "read the dead letters", &run.dead());
}

fn the_other_agent_is_not_its(login: &Login, run: &Topology) {
    let (a, b) = (agent("a"), agent("b"));
    for queue in [run.turns(&b), run.reserve(&b), run.samples(&b)] {
        refused_consume(login, "consume from the other agent's queue", &queue);
        let to = run.to(&queue);
        refused_publish(login, "publish to the other agent", &to.exchange, &to.routing_key);
        let mine = run.samples(&a);
        login.refused(
            "bind its own queue to the other agent's messages",
            REFUSED,
            &queue.exchange.name,
            async |channel| bind(channel, &mine.name, &queue.exchange.name, &queue.routing_key).await,
        );
        login.refused("bind the other's queue", REFUSED, &queue.name, async |channel| {
            bind(channel, &queue.name, &run.samples(&a).exchange.name, "any").await
        });
        login.refused(
            "delete the other agent's queue",
            REFUSED,
            &queue.name,
            async |channel| {
                channel
                    .queue_delete(queue.name.as_str().into(), QueueDeleteOptions::default())
                    .await
            },
        );
        login.refused("purge the other agent's queue", REFUSED, &queue.name, async |channel| {
            channel
                .queue_purge(queue.name.as_str().into(), QueuePurgeOptions::default())
                .await
        });
        login.refused(
            "reach the other agent past every exchange",
            REFUSED,
            "amq.default",
            async |channel| publish(channel, "", &queue.name, BasicProperties::default()).await,
        );
    }
}

fn other_names_are_not_its(login: &Login, run: &Topology) {
    let (a, b) = (agent("a"), agent("b"));
    let control = run.to_control(Speaker::Agent(&a));
    for (deed, speaker) in [
        ("send the other agent's heartbeat", Speaker::Agent(&b)),
        ("send a coordinator's heartbeat", Speaker::Coordinator),
        ("give orders", Speaker::Operator),
    ] {
        let to = run.to_control(speaker);
        refused_key(login, deed, &to.exchange, &to.routing_key);
    }
    let as_b = run.to_results("c0ffee00", "b");
    refused_key(
        login,
        "answer a coordinator as the other agent",
        &as_b.exchange,
        &as_b.routing_key,
    );
    let false_user = BasicProperties::default().with_user_id(format!("{RUN}.agent-b").into());
    login.refused(
        "claim to be another user",
        "PRECONDITION_FAILED",
        "user_id",
        async |channel| publish(channel, &control.exchange, &control.routing_key, false_user).await,
    );
}

fn messages_of_others_are_not_its(login: &Login, run: &Topology) {
    let (a, other) = (agent("a"), topology(OTHER));
    let mine = run.control("a-0");
    let shared = run.inference("a-0");
    login.refused(
        "receive the messages of all agents",
        REFUSED,
        &shared.exchange.name,
        async |channel| {
            own_queue(&channel, &mine.name).await?;
            bind(channel, &mine.name, &shared.exchange.name, "#").await
        },
    );
    let results = run.results("c0ffee00");
    login.refused(
        "receive the answers to coordinators",
        REFUSED,
        &results.exchange.name,
        async |channel| {
            own_queue(&channel, &mine.name).await?;
            bind(channel, &mine.name, &results.exchange.name, "#").await
        },
    );
    refused_consume(login, "read another run as its agent a", &other.samples(&a));
    let elsewhere = other.to_control(Speaker::Agent(&a));
    refused_publish(
        login,
        "send a heartbeat in another run",
        &elsewhere.exchange,
        &elsewhere.routing_key,
    );
    login.refused("make a queue", REFUSED, "anything", async |channel| {
        own_queue(&channel, "anything").await
    });
}

/// RabbitMQ does not check the key that a queue gives its dead letters. Receivers do.
#[test]
fn an_order_forged_as_a_dead_letter_is_rejected() {
    let program = program();
    let servers = Secured::start(&program);
    let run = topology(RUN);
    let own = run.to_control(Speaker::Agent(&agent("a")));
    let order = run.to_control(Speaker::Operator);
    let login = Login::new(&servers, "agent-a");
    let delivery = servers.block_on(async {
        let bus = AmqpBus::connect(&servers.broker("coordinator"), AmqpOptions::default())
            .await
            .unwrap();
        let queue = run.control("c0ffee00");
        bus.declare_queue(&queue).await.unwrap();
        let mut control = bus.consume(&queue, 10).await.unwrap();
        login
            .forge(&run.control("a-0").name, &own, &order, b"\"drain\"")
            .await
            .unwrap();
        loop {
            let delivery = tokio::time::timeout(PATIENCE, control.next()).await.unwrap().unwrap();
            if delivery.routing_key == order.routing_key {
                return delivery;
            }
        }
    });
    assert_eq!(delivery.body, b"\"drain\"".as_slice(), "the server accepts it");
    let disbelief = verified::command(&run, &delivery).unwrap_err();
    assert!(matches!(disbelief, VerifyError::Forged { .. }), "{disbelief}");
}

#[test]
fn people_can_only_perform_their_own_acts() {
    let program = program();
    let servers = Secured::start(&program);
    let run = topology(RUN);
    let a = agent("a");
    let tasks = run.to(&run.tasks());
    let order = run.to_control(Speaker::Operator);
    let beat = run.to_control(Speaker::Agent(&a));

    let publisher = Login::new(&servers, "publisher");
    allowed_publish(&publisher, "publish a task", &tasks.exchange, &tasks.routing_key);
    refused_consume(&publisher, "take tasks", &run.tasks());
    refused_publish(
        &publisher,
        "hand back a task",
        &run.reclaim().exchange.name,
        &run.reclaim().routing_key,
    );
    refused_publish(&publisher, "give orders", &order.exchange, &order.routing_key);
    publisher.refused("make a queue to listen with", REFUSED, "status-1", async |channel| {
        own_queue(&channel, &run.control("status-1").name).await
    });

    let operator = Login::new(&servers, "operator");
    allowed_publish(&operator, "requeue a task", &tasks.exchange, &tasks.routing_key);
    allowed_publish(&operator, "give orders", &order.exchange, &order.routing_key);
    operator.allowed("read the dead letters", async |channel| {
        let dead = run.dead().name;
        channel.basic_get(dead.into(), BasicGetOptions::default()).await
    });
    refused_key(
        &operator,
        "send an agent's heartbeat",
        &beat.exchange,
        &beat.routing_key,
    );
    refused_consume(&operator, "take samples", &run.samples(&a));
    refused_consume(&operator, "take tasks", &run.tasks());

    let onlooker = Login::new(&servers, "onlooker");
    for queue in [run.control("status-1"), run.inference("onlooker-1")] {
        onlooker.allowed("listen", async |channel| {
            own_queue(&channel, &queue.name).await?;
            bind(channel, &queue.name, &queue.exchange.name, &queue.routing_key).await
        });
        onlooker.refused("bind other runs' keys", REFUSED, "#", async |channel| {
            bind(channel, &queue.name, &queue.exchange.name, "#").await
        });
    }
    refused_publish(&onlooker, "publish a task", &tasks.exchange, &tasks.routing_key);
    refused_publish(&onlooker, "give orders", &order.exchange, &order.routing_key);
    refused_consume(&onlooker, "read the dead letters", &run.dead());
    refused_consume(&onlooker, "read samples", &run.samples(&a));

    let coordinator = Login::new(&servers, "coordinator");
    refused_consume(&coordinator, "take another run's tasks", &topology(OTHER).tasks());
    refused_key(
        &coordinator,
        "give orders as a person",
        &order.exchange,
        &order.routing_key,
    );
}

#[test]
fn a_participant_can_only_take_and_answer_its_questions() {
    let program = program();
    let servers = Secured::start(&program);
    let run = topology(RUN);
    let a = agent("a");
    let judge = ParticipantName::new("judge").unwrap();
    let login = Login::new(&servers, "participant-judge");
    let questions = run.questions(&judge);
    login.allowed("take its questions", async |channel| {
        consume(channel, &questions.name).await
    });
    let own = run.to_answers("c0ffee00", "judge");
    allowed_publish(&login, "answer a coordinator", &own.exchange, &own.routing_key);

    let another = run.to_answers("c0ffee00", "other");
    refused_key(&login, "answer as another", &another.exchange, &another.routing_key);
    let as_agent = run.to_results("c0ffee00", "a");
    refused_key(&login, "answer as an agent", &as_agent.exchange, &as_agent.routing_key);
    for queue in [
        questions.clone(),
        run.tasks(),
        run.turns(&a),
        run.samples(&a),
        run.reclaim(),
        run.dead(),
    ] {
        refused_publish(&login, "publish", &queue.exchange.name, &queue.routing_key);
    }
    for queue in [
        run.tasks(),
        run.turns(&a),
        run.samples(&a),
        run.dead(),
        topology(OTHER).questions(&judge),
    ] {
        refused_consume(&login, "take", &queue);
    }
    let order = run.to_control(Speaker::Operator);
    refused_publish(&login, "give orders", &order.exchange, &order.routing_key);
    login.refused("make a queue", REFUSED, "anything", async |channel| {
        own_queue(&channel, "anything").await
    });
    login.refused("delete its queue", REFUSED, &questions.name, async |channel| {
        let options = QueueDeleteOptions::default();
        channel.queue_delete(questions.name.as_str().into(), options).await
    });
    login.refused(
        "receive more than its questions",
        REFUSED,
        &questions.name,
        async |channel| bind(channel, &questions.name, &run.tasks().exchange.name, "#").await,
    );
    login.refused(
        "reach a queue past every exchange",
        REFUSED,
        "amq.default",
        async |channel| publish(channel, "", &run.tasks().name, BasicProperties::default()).await,
    );
    // No other user takes its questions or answers for it.
    let agent_login = Login::new(&servers, "agent-a");
    refused_consume(&agent_login, "take a participant's questions", &questions);
    refused_key(
        &agent_login,
        "answer for a participant",
        &own.exchange,
        &own.routing_key,
    );
}

#[test]
fn redis_serves_coordinators_and_only_their_own_run() {
    let program = program();
    let servers = Secured::start(&program);
    let credentials = |url: &str| {
        let (user, password) = url
            .split_once("://")
            .unwrap()
            .1
            .split_once('@')
            .unwrap()
            .0
            .split_once(':')
            .unwrap();
        format!("AUTH {user} {password}")
    };
    let own = credentials(&servers.environment("coordinator")["DYAD_STATE"]);
    let key = format!("dyad:{{{RUN}}}:group:00");
    assert_eq!(servers.redis(&[&own, &format!("HSET {key} beat 1")]), ":1");
    for forbidden in [
        format!("HSET dyad:{{{OTHER}}}:group:00 beat 1"),
        "HSET else beat 1".to_owned(),
        "FLUSHALL".to_owned(),
        "KEYS *".to_owned(),
        "CONFIG GET requirepass".to_owned(),
        "ACL LIST".to_owned(),
        "EVAL x 0".to_owned(),
    ] {
        let answer = servers.redis(&[&own, &forbidden]);
        assert!(answer.starts_with("-NOPERM"), "a coordinator and {forbidden}: {answer}");
    }
    for name in [
        "agent-a",
        "agent-b",
        "publisher",
        "operator",
        "onlooker",
        "participant-judge",
    ] {
        assert!(
            !servers.environment(name).contains_key("DYAD_STATE"),
            "{name} has the URL of Redis"
        );
        let answer = servers.redis(&[&credentials(&servers.broker(name))]);
        assert!(answer.starts_with("-WRONGPASS"), "{name}: {answer}");
    }
    let answer = servers.redis(&[&format!("HGETALL {key}")]);
    assert!(answer.starts_with("-NOAUTH"), "without a user: {answer}");
}
