//! An agent's user: its own queues, and nothing of others.

use broker::topology::{Speaker, Topology};
use lapin::options::{QueueDeleteOptions, QueuePurgeOptions};
use tests::fleet::RUN;
use tests::letters::topology;
use tests::secured::OTHER;

use super::*;

pub(super) fn only_its_own_queues(servers: &Secured) {
    let login = Login::new(servers, "agent-a");
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
