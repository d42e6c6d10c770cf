//! A remote participant's user: its questions and its answers.

use broker::topology::Speaker;
use configs::ParticipantName;
use lapin::options::QueueDeleteOptions;
use tests::fleet::RUN;
use tests::letters::topology;
use tests::secured::OTHER;

use super::*;

pub(super) fn only_its_questions(servers: &Secured) {
    let run = topology(RUN);
    let a = agent("a");
    let judge = ParticipantName::new("judge").unwrap();
    let login = Login::new(servers, "participant-judge");
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
    let agent_login = Login::new(servers, "agent-a");
    refused_consume(&agent_login, "take a participant's questions", &questions);
    refused_key(
        &agent_login,
        "answer for a participant",
        &own.exchange,
        &own.routing_key,
    );
}
