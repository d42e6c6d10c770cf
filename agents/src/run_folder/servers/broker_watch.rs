//! Detects a RabbitMQ that runs and accepts connections, but stores no messages.
//!
//! A full disk ends the process that writes its quorum queues. Free space does not bring it back,
//! only a restart of RabbitMQ does.

use std::sync::Arc;
use std::time::{Duration, Instant};

use broker::bus::amqp::{AmqpBus, AmqpOptions};
use broker::bus::{Bus, BusHealth, Consumer, Outgoing};
use broker::ids::RunId;
use broker::protocol::Kind;
use broker::topology::Topology;

/// Time between two messages.
const EVERY: Duration = Duration::from_secs(5);
/// The longest wait for a message to come back.
const ANSWER: Duration = Duration::from_secs(10);
/// Time without a stored message after which RabbitMQ counts as stuck.
const PATIENCE: Duration = Duration::from_secs(30);
/// The part of the queue's name that stands for the run.
const NAME: &str = "keeper";

/// A quorum queue of our own, with its publisher and consumer.
struct Probe {
    bus: Arc<AmqpBus>,
    topology: Topology,
    consumer: Box<dyn Consumer>,
}

/// Returns when RabbitMQ has stored no message for [`PATIENCE`]. The time during which it reports
/// an alarm does not count: it stores nothing then, and recovers by itself.
pub(super) async fn until_stuck(url: String) {
    let mut stored = Instant::now();
    let mut probe = None;
    while stored.elapsed() < PATIENCE {
        tokio::time::sleep(EVERY).await;
        if probe.is_none() {
            probe = Probe::open(&url).await;
        }
        let Some(probe) = &mut probe else { continue };
        let is_stored = tokio::time::timeout(ANSWER, probe.round()).await == Ok(Some(()));
        if is_stored || matches!(probe.bus.health(), BusHealth::Blocked(_)) {
            stored = Instant::now();
        }
    }
}

impl Probe {
    async fn open(url: &str) -> Option<Self> {
        let options = AmqpOptions {
            name: format!("dyad {NAME}"),
            connect_timeout: ANSWER,
            ..AmqpOptions::default()
        };
        let bus = AmqpBus::connect(url, options).await.ok()?;
        let topology = Topology::new(RunId::new(NAME)?);
        // Quorum queues without dead letters of their own.
        let queue = topology.dead();
        bus.declare_queue(&queue).await.ok()?;
        let consumer = bus.consume(&queue, 1).await.ok()?;
        Some(Self {
            bus,
            topology,
            consumer,
        })
    }

    /// Publishes a message and receives one.
    async fn round(&mut self) -> Option<()> {
        let message = Outgoing {
            to: self.topology.to(&self.topology.dead()),
            kind: Kind::Heartbeat,
            message_id: NAME.into(),
            correlation_id: None,
            headers: Vec::new(),
            body: bytes::Bytes::new(),
            durable: true,
        };
        self.bus.publish(message).await.ok()?;
        self.consumer.next().await?.ack().await.then_some(())
    }
}
