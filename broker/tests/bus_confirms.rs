//! Confirms reach their own message: always with our publisher, but not on a shared lapin channel.
//!
//! Two queues share one exchange, and one of them is always full. Each confirm's right result is
//! thus known in advance, so every swap shows. lapin 4.12.3 takes the number of a confirm and
//! queues the frames in two steps, so that tasks on a shared channel can swap confirms. That part
//! counts and prints without an assertion: a race need not show.
#![cfg(feature = "amqp")]
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use broker::bus::amqp::{AmqpBus, AmqpOptions};
use broker::bus::{Bus, Outgoing, PublishError};
use broker::ids::RunId;
use broker::local::rabbitmq::{PrivateRabbit, RabbitOptions};
use broker::protocol::Kind;
use broker::topology::{Queue, Topology};
use bytes::Bytes;
use lapin::options::{BasicPublishOptions, ConfirmSelectOptions};
use lapin::{BasicProperties, Connection, ConnectionProperties};

const TASKS: usize = 8;
const MESSAGES: usize = 40_000;

struct Stage {
    _folder: tempfile::TempDir,
    rabbit: PrivateRabbit,
    bus: Arc<AmqpBus>,
    open: Queue,
    full: Queue,
    topology: Topology,
}

fn message(stage: &Stage, to: &Queue, id: usize) -> Outgoing {
    Outgoing {
        to: stage.topology.to(to),
        kind: Kind::TurnResult,
        message_id: id.to_string(),
        correlation_id: None,
        headers: Vec::new(),
        body: Bytes::from_static(b"0123456789"),
        durable: true,
    }
}

/// One queue with room for all messages, and one that is always full.
async fn stage() -> Stage {
    let folder = tempfile::tempdir().unwrap();
    let rabbit = PrivateRabbit::start(folder.path(), RabbitOptions::default())
        .await
        .unwrap();
    let bus = AmqpBus::connect(&rabbit.url(), AmqpOptions::default()).await.unwrap();
    let topology = Topology::new(RunId::new("confirms").unwrap());
    bus.declare(&topology, &[]).await.unwrap();
    let open = topology.results("open");
    let mut full = topology.results("full");
    full.max_bytes = 1;
    bus.declare_queue(&open).await.unwrap();
    bus.declare_queue(&full).await.unwrap();
    let stage = Stage {
        _folder: folder,
        rabbit,
        bus,
        open,
        full,
        topology,
    };
    let mut refused = 0;
    while refused < 20 {
        match stage.bus.publish(message(&stage, &stage.full, 0)).await {
            Ok(()) => refused = 0,
            Err(PublishError::Full(_)) => refused += 1,
            Err(error) => panic!("{error}"),
        }
    }
    stage
}

/// Counts wrong confirms of `MESSAGES` publishes from `TASKS` tasks, every other one to the full
/// queue.
async fn through_our_publisher(stage: &Arc<Stage>) -> usize {
    let wrong = Arc::new(AtomicUsize::new(0));
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..TASKS {
        let (stage, wrong) = (stage.clone(), wrong.clone());
        tasks.spawn(async move {
            for first in (task..MESSAGES).step_by(TASKS * 32) {
                let ids = (first..MESSAGES).step_by(TASKS).take(32);
                let sends = ids.map(|id| {
                    let stage = &stage;
                    async move {
                        let full = (id / TASKS).is_multiple_of(2);
                        let to = if full { &stage.full } else { &stage.open };
                        let refused = match stage.bus.publish(message(stage, to, id)).await {
                            Ok(()) => false,
                            Err(PublishError::Full(_)) => true,
                            Err(error) => panic!("{error}"),
                        };
                        usize::from(refused != full)
                    }
                });
                let errors: usize = futures_util::future::join_all(sends).await.into_iter().sum();
                wrong.fetch_add(errors, Ordering::Relaxed);
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    wrong.load(Ordering::Relaxed)
}

/// Counts the same on one lapin channel that the tasks share.
async fn on_a_shared_channel(stage: &Arc<Stage>) -> usize {
    let connection = Connection::connect(&stage.rabbit.url(), ConnectionProperties::default())
        .await
        .unwrap();
    let channel = connection.create_channel().await.unwrap();
    channel.confirm_select(ConfirmSelectOptions::default()).await.unwrap();
    let wrong = Arc::new(AtomicUsize::new(0));
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..TASKS {
        let (stage, wrong, channel) = (stage.clone(), wrong.clone(), channel.clone());
        tasks.spawn(async move {
            let ids: Vec<usize> = (task..MESSAGES).step_by(TASKS).collect();
            for ids in ids.chunks(32) {
                let mut confirms = Vec::new();
                for id in ids {
                    let full = (id / TASKS).is_multiple_of(2);
                    let to = stage.topology.to(if full { &stage.full } else { &stage.open });
                    let properties = BasicProperties::default().with_delivery_mode(2);
                    let options = BasicPublishOptions::default();
                    let published = channel
                        .basic_publish(
                            to.exchange.into(),
                            to.routing_key.into(),
                            options,
                            b"0123456789",
                            properties,
                        )
                        .await;
                    confirms.push((full, published.unwrap()));
                }
                for (full, confirm) in confirms {
                    let refused = confirm.await.unwrap().is_nack();
                    wrong.fetch_add(usize::from(refused != full), Ordering::Relaxed);
                }
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    wrong.load(Ordering::Relaxed)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_confirm_is_credited_to_another_message() {
    let stage = Arc::new(stage().await);
    let ours = through_our_publisher(&stage).await;
    let shared = on_a_shared_channel(&stage).await;
    println!(
        "{MESSAGES} publishes from {TASKS} tasks: {ours} wrong confirms through the bus, {shared} on a shared channel"
    );
    assert_eq!(ours, 0, "a confirm was credited to the wrong message");
}
