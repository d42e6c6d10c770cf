//! The message bus: durable queues with confirms and manual acks, in memory or on RabbitMQ.
//!
//! Both implementations keep one contract, which `contract.rs` runs against both:
//!
//! - A publish that returns `Ok` is in its queue.
//! - A delivery without an ack is delivered again, in its old place.
//! - An ack that returns `false` proves nothing.
//! - A consumer never has more than `prefetch` deliveries without an ack.
//! - A full queue rejects publishes.

#[cfg(feature = "amqp")]
pub mod amqp;
pub mod blocked;
#[cfg(feature = "contract")]
pub mod contract;
pub mod letter;
pub mod memory;
pub mod verified;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;

use crate::protocol::Kind;
use crate::topology::{Address, Queue, Topology};
use configs::AgentName;

/// A message to publish.
#[derive(Debug, Clone)]
pub struct Outgoing {
    pub to: Address,
    pub kind: Kind,
    /// Derived from the ids of the content, so that every resend has the same id.
    pub message_id: String,
    pub correlation_id: Option<String>,
    /// Headers for people: run, conversation, turn, agent, weights, and the reason of a dead
    /// letter.
    pub headers: Vec<(String, String)>,
    pub body: Bytes,
    /// If true, the message is persistent, must reach a queue and is confirmed. If false
    /// (heartbeats, shared turns and ends), it is lost when no process listens.
    pub durable: bool,
}

/// The reason why a publish failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PublishError {
    #[error("no queue accepts messages for {0}: its owner has stopped")]
    Unroutable(String),
    #[error("the queue for {0} is full")]
    Full(String),
    /// The message may or may not have arrived: send the same message again.
    #[error("the broker did not confirm in time")]
    Unknown,
    /// No broker accepts this size: split the message or reject it at its source.
    #[error("the message has {size} bytes and the limit is {limit}")]
    TooLarge { size: usize, limit: usize },
    #[error("the bus is closed")]
    Closed,
}

/// The reason why the bus cannot be used.
#[derive(Debug, Clone, thiserror::Error)]
pub enum BusError {
    #[error("cannot reach RabbitMQ at {url}: {reason}")]
    Connect { url: String, reason: String },
    /// A retry cannot help: a file of ours or a certificate of one side must be changed.
    #[error("cannot speak TLS with RabbitMQ at {url}: {reason}")]
    Tls { url: String, reason: String },
    /// A retry cannot help: the URL must be changed, or the broker's users.
    #[error("RabbitMQ at {url} refuses the login: {reason}")]
    Login { url: String, reason: String },
    #[error("cannot declare {what}: {reason}")]
    Declare {
        what: String,
        reason: String,
        /// True if the broker refuses it to this user, who has no right to it.
        forbidden: bool,
    },
    #[error("cannot delete queue {queue}: {reason}")]
    Delete { queue: String, reason: String },
    #[error("{url} is no broker URL: {reason}")]
    Url { url: String, reason: String },
    #[error("the bus is closed")]
    Closed,
}

/// The answer to a delivery. Only the first answer counts.
#[async_trait]
pub trait Acker: Send + Sync + fmt::Debug {
    /// Acknowledges that the effect is durable. Returns false if the channel is lost; the delivery
    /// then comes again.
    async fn ack(&self) -> bool;
    /// Returns the delivery to its old place (`requeue`) or moves it to the dead letters.
    async fn reject(&self, requeue: bool) -> bool;
}

/// A received message, which must be answered.
#[derive(Debug, Clone)]
pub struct Delivery {
    pub kind: Option<Kind>,
    pub message_id: Option<String>,
    pub correlation_id: Option<String>,
    pub headers: Vec<(String, String)>,
    pub body: Bytes,
    /// The publishing user, verified by the broker; `None` if the publisher gave no user.
    pub user: Option<String>,
    /// If true, the message may have been delivered before. If false, it certainly was not.
    pub redelivered: bool,
    /// The routing key of the publish. On planes with the writer's name in the key (results,
    /// control), the broker's topic permissions restrict each writer to its own name.
    pub routing_key: String,
    /// True if RabbitMQ marks it as dead-lettered by some queue. The owner of that queue then chose
    /// the routing key.
    pub dead_letter: bool,
    /// The queue that delivered it.
    pub queue: Arc<str>,
    pub acker: Arc<dyn Acker>,
}

impl Delivery {
    pub async fn ack(&self) -> bool {
        self.acker.ack().await
    }

    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.as_str())
    }
}

/// A stream of deliveries. It survives lost connections: the bus reconnects and consumes again.
#[async_trait]
pub trait Consumer: Send {
    /// Returns the next delivery, or `None` once the bus is closed.
    async fn next(&mut self) -> Option<Delivery>;
}

/// State of the connection, for health checks and for `dyad status`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BusHealth {
    Up,
    /// Connected, but the broker accepts no publishes (memory or disk alarm).
    Blocked(String),
    /// Disconnected; the bus is retrying.
    Down(String),
}

/// Durable queues with confirms.
#[async_trait]
pub trait Bus: Send + Sync {
    /// Declares everything that a run needs. Repeats are harmless.
    async fn declare(&self, topology: &Topology, agents: &[AgentName]) -> Result<(), BusError>;
    /// Declares one more queue (results of an incarnation, a listener).
    async fn declare_queue(&self, queue: &Queue) -> Result<(), BusError>;
    /// Returns when the message is in its queue (durable) or was handed over (not durable).
    async fn publish(&self, message: Outgoing) -> Result<(), PublishError>;
    /// Starts a consumer of a declared queue.
    async fn consume(&self, queue: &Queue, prefetch: u16) -> Result<Box<dyn Consumer>, BusError>;
    /// Returns the number of ready messages in a queue, or `None` if unknown.
    async fn depth(&self, queue: &Queue) -> Option<u64>;
    /// Returns the number of consumers of a queue over all processes, or `None` if unknown.
    async fn listeners(&self, _queue: &Queue) -> Option<u64> {
        None
    }
    /// Returns true if the queue exists, whichever process declared it. An error means unknown.
    async fn exists(&self, queue: &Queue) -> Result<bool, BusError> {
        Ok(self.depth(queue).await.is_some())
    }
    /// Deletes a queue with its messages. Deleting a missing queue succeeds.
    async fn delete_queue(&self, _queue: &Queue) -> Result<(), BusError> {
        Ok(())
    }
    fn health(&self) -> BusHealth;
    /// Returns how often a lost connection was made again.
    fn reconnects(&self) -> u64 {
        0
    }
    /// Ends all consumers and connections. Unconfirmed and unacknowledged messages stay so.
    async fn close(&self);
}
