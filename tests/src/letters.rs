//! The dead letters of a run, read without removing them.

use std::path::Path;
use std::time::Duration;

use broker::bus::amqp::{AmqpBus, AmqpOptions};
use broker::bus::letter::{HEADER_CLASS, HEADER_QUEUE, HEADER_REASON, HEADER_STAGE};
use broker::bus::{Bus, Outgoing};
use broker::ids::RunId;
use broker::protocol::Kind;
use broker::topology::{Address, Topology};
use serde_json::Value;

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

/// Returns the addresses of a run.
#[must_use]
pub fn topology(run: &str) -> Topology {
    Topology::new(RunId::new(run).unwrap())
}

/// Returns a durable message without headers.
#[must_use]
pub fn message(to: Address, kind: Kind, id: &str, body: impl Into<Vec<u8>>) -> Outgoing {
    Outgoing {
        to,
        kind,
        message_id: id.into(),
        correlation_id: None,
        headers: Vec::new(),
        body: body.into().into(),
        durable: true,
    }
}

/// Returns the URL of a run's broker once the run has written it.
#[must_use]
pub fn broker_of(run: &Path) -> Option<String> {
    let text = std::fs::read(run.join("connection.json")).ok()?;
    let connection: Value = serde_json::from_slice(&text).ok()?;
    connection["broker"].as_str().map(str::to_owned)
}

/// Opens a connection for the test.
pub async fn connect(url: &str) -> std::sync::Arc<AmqpBus> {
    AmqpBus::connect(url, AmqpOptions::default()).await.unwrap()
}
