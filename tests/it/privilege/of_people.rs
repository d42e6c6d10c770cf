//! The users of people: operators and publishers, and forged orders.

use broker::bus::Bus;
use broker::bus::amqp::{AmqpBus, AmqpOptions};
use broker::bus::verified::{self, VerifyError};
use broker::topology::Speaker;
use lapin::options::BasicGetOptions;
use tests::fleet::RUN;
use tests::letters::topology;
use tests::secured::OTHER;

use super::*;

/// RabbitMQ does not check the key that a queue gives its dead letters. Receivers do.
pub(super) fn an_order_forged_as_a_dead_letter_is_rejected(servers: &Secured) {
    let run = topology(RUN);
    let own = run.to_control(Speaker::Agent(&agent("a")));
    let order = run.to_control(Speaker::Operator);
    let login = Login::new(servers, "agent-a");
    let delivery = servers.block_on(async {
        let bus = AmqpBus::connect(&servers.broker("coordinator"), AmqpOptions::default())
            .await
            .unwrap();
        let queue = run.control("c0ffee00");
        bus.declare_queue(&queue).await.unwrap();
        let mut control = bus.consume(&queue, 10).await.unwrap();
        login
            .forge(&run.control("a-1").name, &own, &order, b"\"drain\"")
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

pub(super) fn only_their_own_acts(servers: &Secured) {
    let run = topology(RUN);
    let a = agent("a");
    let tasks = run.to(&run.tasks());
    let order = run.to_control(Speaker::Operator);
    let beat = run.to_control(Speaker::Agent(&a));

    let publisher = Login::new(servers, "publisher");
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

    let operator = Login::new(servers, "operator");
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

    let onlooker = Login::new(servers, "onlooker");
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

    let coordinator = Login::new(servers, "coordinator");
    refused_consume(&coordinator, "take another run's tasks", &topology(OTHER).tasks());
    refused_key(
        &coordinator,
        "give orders as a person",
        &order.exchange,
        &order.routing_key,
    );
}
