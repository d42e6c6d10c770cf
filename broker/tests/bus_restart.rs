//! The bus on RabbitMQ survives a killed broker: no confirmed message is lost, and it recovers by
//! itself.
#![cfg(feature = "amqp")]
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use broker::bus::amqp::{AmqpBus, AmqpOptions};
use broker::bus::{Bus, BusError, BusHealth, Outgoing, PublishError};
use broker::ids::RunId;
use broker::local::rabbitmq::{PrivateRabbit, RabbitOptions};
use broker::protocol::Kind;
use broker::topology::{Queue, Speaker, Topology};

const PATIENCE: Duration = Duration::from_secs(120);

async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, future).await {
        Ok(value) => value,
        Err(_) => panic!("this never happened: {what}"),
    }
}

fn message(topology: &Topology, id: usize) -> Outgoing {
    Outgoing {
        to: topology.to(&topology.tasks()),
        kind: Kind::Task,
        message_id: id.to_string(),
        correlation_id: None,
        headers: Vec::new(),
        body: vec![b'x'; 1024].into(),
        durable: true,
    }
}

async fn until_health(bus: &AmqpBus, wanted: impl Fn(&BusHealth) -> bool) {
    within("the bus's health changes", async {
        while !wanted(&bus.health()) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_broker_loses_nothing_that_was_confirmed() {
    const MESSAGES: usize = 2000;
    let folder = tempfile::tempdir().unwrap();
    let mut rabbit = PrivateRabbit::start(folder.path(), RabbitOptions::default())
        .await
        .unwrap();
    let topology = Topology::new(RunId::new("restart").unwrap());
    let publisher = AmqpBus::connect(&rabbit.url(), AmqpOptions::default()).await.unwrap();
    let consumer = AmqpBus::connect(&rabbit.url(), AmqpOptions::default()).await.unwrap();
    publisher.declare(&topology, &[]).await.unwrap();
    // An exclusive queue ends with the broker: it must come back too.
    let listener = topology.control("listener");
    consumer.declare_queue(&listener).await.unwrap();
    let mut beats = consumer.consume(&listener, 10).await.unwrap();
    let mut deliveries = consumer.consume(&topology.tasks(), 64).await.unwrap();

    let received = Arc::new(AtomicUsize::new(0));
    let counter = received.clone();
    let receiving = tokio::spawn(async move {
        let mut seen = BTreeSet::new();
        let mut again = 0;
        while seen.len() < MESSAGES {
            let delivery = within("a delivery", deliveries.next()).await.unwrap();
            if seen.insert(delivery.message_id.clone().unwrap()) {
                counter.store(seen.len(), Ordering::Release);
            } else {
                again += 1;
            }
            delivery.ack().await;
        }
        (seen, again)
    });

    let mut publishing = tokio::task::JoinSet::new();
    for who in 0..20 {
        let (bus, topology) = (publisher.clone(), topology.clone());
        publishing.spawn(async move {
            for n in 0..MESSAGES / 20 {
                // The caller of a publish notices the kill only by the time it takes.
                bus.publish(message(&topology, who * (MESSAGES / 20) + n))
                    .await
                    .unwrap();
            }
        });
    }
    within("a first part arrives", async {
        while received.load(Ordering::Acquire) < MESSAGES / 10 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
    rabbit.kill9();
    until_health(&publisher, |health| matches!(health, BusHealth::Down(_))).await;
    rabbit.restart().await.unwrap();

    while let Some(done) = within("all are confirmed", publishing.join_next()).await {
        done.unwrap();
    }
    let (seen, again) = receiving.await.unwrap();
    println!("{} messages through one SIGKILL, {again} came twice", seen.len());
    assert_eq!(seen, (0..MESSAGES).map(|id| id.to_string()).collect());
    assert!(publisher.reconnects() >= 1 && consumer.reconnects() >= 1);

    // The listener is back: a beat reaches it sooner or later (transient messages may be dropped).
    let beat = within("a beat after the restart", async {
        loop {
            let mut beat = message(&topology, 0);
            beat.to = topology.to_control(Speaker::Operator);
            beat.durable = false;
            publisher.publish(beat).await.unwrap();
            if let Ok(got) = tokio::time::timeout(Duration::from_millis(100), beats.next()).await {
                return got;
            }
        }
    })
    .await;
    assert!(beat.unwrap().ack().await);
    assert_eq!(publisher.health(), BusHealth::Up);
    rabbit.stop();
}

/// A process may start while the broker is down: its declarations and consumers then wait for the
/// broker and do not fail.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_declaration_waits_for_a_killed_broker() {
    const EACH: usize = 60;
    let folder = tempfile::tempdir().unwrap();
    let mut rabbit = PrivateRabbit::start(folder.path(), RabbitOptions::default())
        .await
        .unwrap();
    let topology = Topology::new(RunId::new("begin").unwrap());
    let bus = AmqpBus::connect(&rabbit.url(), AmqpOptions::default()).await.unwrap();
    bus.declare(&topology, &[]).await.unwrap();
    let declared = Arc::new(AtomicUsize::new(0));
    let mut beginning = tokio::task::JoinSet::new();
    for who in 0..4 {
        let (bus, topology, declared) = (bus.clone(), topology.clone(), declared.clone());
        beginning.spawn(async move {
            for n in 0..EACH {
                let listener = topology.control(&format!("listener-{who}-{n}"));
                bus.declare_queue(&listener).await.unwrap();
                bus.consume(&listener, 10).await.unwrap();
                declared.fetch_add(1, Ordering::AcqRel);
            }
        });
    }
    within("a part is declared", async {
        while declared.load(Ordering::Acquire) < EACH / 4 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
    rabbit.kill9();
    until_health(&bus, |health| matches!(health, BusHealth::Down(_))).await;
    assert!(
        declared.load(Ordering::Acquire) < 4 * EACH,
        "nothing was left to declare"
    );
    rabbit.restart().await.unwrap();
    while let Some(done) = within("all are declared", beginning.join_next()).await {
        done.unwrap();
    }
    rabbit.stop();
}

#[tokio::test]
async fn a_missing_broker_and_a_wrong_password_give_other_errors() {
    let folder = tempfile::tempdir().unwrap();
    let rabbit = PrivateRabbit::start(folder.path(), RabbitOptions::default())
        .await
        .unwrap();
    let options = || AmqpOptions {
        connect_timeout: Duration::from_secs(3),
        ..AmqpOptions::default()
    };
    let wrong = rabbit.url().replacen("dyad:", "dyad:hunter2", 1);
    let refused = AmqpBus::connect(&wrong, options()).await.unwrap_err();
    assert!(matches!(refused, BusError::Login { .. }), "{refused:?}");
    assert!(refused.to_string().contains("password is wrong"), "{refused}");
    let url = rabbit.url();
    let good = AmqpBus::connect(&url, options()).await.unwrap();
    let password = url.split(['@', ':']).nth(2).unwrap().to_owned();
    assert!(!format!("{good:?}").contains(&password));
    drop(rabbit);
    let missing = AmqpBus::connect(&url, options()).await.unwrap_err();
    let once = AmqpOptions {
        connect_timeout: Duration::MAX,
        tries_once: true,
        ..AmqpOptions::default()
    };
    let absent = within("the first try is the last", AmqpBus::connect(&url, once)).await;
    let absent = absent.unwrap_err();
    assert!(matches!(absent, BusError::Connect { .. }), "{absent:?}");
    let all = [refused, missing, absent];
    for text in all.map(|error| format!("{error} {error:?}")) {
        assert!(!text.contains("hunter2") && !text.contains(&password), "{text}");
        assert!(text.contains("127.0.0.1"), "{text}");
    }
    // A publish without a broker waits only for its timeout.
    until_health(&good, |health| matches!(health, BusHealth::Down(_))).await;
    within("the bus closes without a broker", good.close()).await;
}

#[tokio::test]
async fn an_alarmed_broker_is_blocked_and_still_serves_consumers() {
    let folder = tempfile::tempdir().unwrap();
    let options = RabbitOptions {
        config: "vm_memory_high_watermark.absolute = 1MB".into(),
        ..RabbitOptions::default()
    };
    let rabbit = PrivateRabbit::start(folder.path(), options).await.unwrap();
    let options = AmqpOptions {
        publish_timeout: Duration::from_secs(3),
        close_timeout: Duration::from_millis(200),
        ..AmqpOptions::default()
    };
    let bus = AmqpBus::connect(&rabbit.url(), options).await.unwrap();
    let topology = Topology::new(RunId::new("alarm").unwrap());
    bus.declare(&topology, &[]).await.unwrap();
    let refused = within("the publish gives up", bus.publish(message(&topology, 1))).await;
    assert_eq!(refused, Err(PublishError::Unknown), "it may or may not have arrived");
    until_health(&bus, |health| matches!(health, BusHealth::Blocked(_))).await;
    // Consuming has another connection: it still answers.
    let mut consumer = bus.consume(&topology.tasks(), 1).await.unwrap();
    assert!(
        tokio::time::timeout(Duration::from_millis(50), consumer.next())
            .await
            .is_err()
    );
    assert_eq!(bus.depth(&topology.tasks()).await, Some(0));
    within("the bus closes", bus.close()).await;
}

/// Leaves a queue as RabbitMQ 3.10 restores one that was declared in the second before a kill: with
/// an empty log, and no election.
fn lose_leader(rabbit: &PrivateRabbit, queue: &Queue) {
    let script = format!(
        r#"{{ok, Q}} = rabbit_amqqueue:lookup(rabbit_misc:r(<<"/">>, queue, <<"{}">>)),
           {{Name, _}} = amqqueue:get_pid(Q),
           ok = ra:force_delete_server(quorum_queues, {{Name, node()}}),
           {{[_], []}} = rabbit_quorum_queue:recover(<<"/">>, [Q])."#,
        queue.name
    );
    for args in [["eval", &script], ["close_all_connections", "a kill"]] {
        let output = rabbit.ctl(&args).unwrap().output().unwrap();
        assert!(output.status.success(), "{output:?}");
    }
}

/// A queue of one incarnation is deleted and declared again: at a consumer's start, and later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_results_queue_without_a_leader_is_made_again() {
    let folder = tempfile::tempdir().unwrap();
    let rabbit = PrivateRabbit::start(folder.path(), RabbitOptions::default())
        .await
        .unwrap();
    let options = || AmqpOptions {
        answer_timeout: Duration::from_secs(6),
        ..AmqpOptions::default()
    };
    let bus = AmqpBus::connect(&rabbit.url(), options()).await.unwrap();
    let topology = Topology::new(RunId::new("leader").unwrap());
    bus.declare(&topology, &[]).await.unwrap();
    let results = topology.results("c1");
    bus.declare_queue(&results).await.unwrap();
    lose_leader(&rabbit, &results);
    let mut consumer = within("the consumer starts", bus.consume(&results, 1)).await.unwrap();
    let sender = AmqpBus::connect(&rabbit.url(), AmqpOptions::default()).await.unwrap();
    let arrives = async |consumer: &mut Box<dyn broker::bus::Consumer>, id: &str| {
        let result = Outgoing {
            to: topology.to_results("c1", "a"),
            message_id: id.to_owned(),
            ..message(&topology, 0)
        };
        let confirmed = within("the result is confirmed", async {
            while sender.publish(result.clone()).await.is_err() {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        });
        let received = within("the result arrives", async {
            loop {
                let delivery = consumer.next().await.unwrap();
                assert!(delivery.acker.ack().await);
                if delivery.message_id.as_deref() == Some(id) {
                    return;
                }
            }
        });
        tokio::join!(confirmed, received);
    };
    arrives(&mut consumer, "first").await;
    lose_leader(&rabbit, &results);
    arrives(&mut consumer, "second").await;
}
