//! The dead letters of a run, read without removing them.

use std::time::Duration;

use broker::bus::Bus;
use broker::bus::amqp::{AmqpBus, AmqpOptions};
use broker::bus::letter::{HEADER_CLASS, HEADER_QUEUE, HEADER_REASON, HEADER_STAGE};
use broker::topology::Topology;

const PATIENCE: Duration = Duration::from_secs(120);

/// A message that could not be handled.
#[derive(Debug, Clone)]
pub struct Letter {
    pub id: String,
    pub reason: String,
    /// The kind of failure; `stage` is where it happened.
    pub class: String,
    pub stage: String,
    /// The queue that held it before.
    pub queue: String,
    pub body: Vec<u8>,
}

/// Returns the first `count` dead letters once they are there; they stay in their queue.
pub async fn dead_letters(bus: &AmqpBus, topology: &Topology, count: usize) -> Vec<Letter> {
    let prefetch = u16::try_from(count).unwrap();
    let mut consumer = bus.consume(&topology.dead(), prefetch).await.unwrap();
    let mut found = Vec::new();
    while found.len() < count {
        let next = tokio::time::timeout(PATIENCE, consumer.next()).await;
        let letter = next
            .unwrap_or_else(|_| panic!("{} of {count} dead letters: {found:?}", found.len()))
            .unwrap();
        let header = |name| letter.header(name).unwrap_or_default().to_owned();
        found.push(Letter {
            id: letter.message_id.clone().unwrap_or_default(),
            reason: header(HEADER_REASON),
            class: header(HEADER_CLASS),
            stage: header(HEADER_STAGE),
            queue: header(HEADER_QUEUE),
            body: letter.body.to_vec(),
        });
    }
    found
}

/// Opens a connection for the test.
pub async fn connect(url: &str) -> std::sync::Arc<AmqpBus> {
    AmqpBus::connect(url, AmqpOptions::default()).await.unwrap()
}
