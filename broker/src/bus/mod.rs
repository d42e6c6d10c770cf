//! The message bus: durable queues with confirms and manual acks, in memory or on RabbitMQ.
//!
//! Both implementations keep one contract, which `contract.rs` runs over both:
//! a publish that returns `Ok` is in its queue; a delivery that is not acked comes again, in its old place; an ack that
//! returns `false` proves nothing; a consumer never has more than `prefetch` deliveries out; a full queue refuses.

#[cfg(feature = "amqp")]
pub mod amqp;
#[cfg(feature = "contract")]
pub mod contract;
pub mod heard;
pub mod letter;
pub mod memory;
mod route;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;

use crate::protocol::Kind;
use crate::topology::{Address, Queue, Topology};
use configs::AgentName;

/// A message on its way out.
#[derive(Debug, Clone)]
pub struct Outgoing {
    pub to: Address,
    pub kind: Kind,
    /// Follows from the ids of its content: the same on every resend.
    pub message_id: String,
    pub correlation_id: Option<String>,
    /// Headers for people: run, conversation, turn, agent, weights, and the reason of a dead letter.
    pub headers: Vec<(String, String)>,
    pub body: Bytes,
    /// `true`: persistent, must reach a queue, confirmed. `false` (heartbeats, shared turns): gone if nobody listens.
    pub durable: bool,
}

/// Why a publish did not happen.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PublishError {
    #[error("no queue takes messages for {0}: its owner is gone")]
    Unroutable(String),
    #[error("the queue for {0} is full")]
    Full(String),
    /// It may or may not have arrived: send the same message again.
    #[error("the broker did not confirm in time")]
    Unknown,
    /// No broker would take it: split it, or refuse it where it came from.
    #[error("the message has {size} bytes and the limit is {limit}")]
    TooLarge { size: usize, limit: usize },
    #[error("the bus is closed")]
    Closed,
}

/// Why the bus cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BusError {
    #[error("cannot reach RabbitMQ at {url}: {reason}")]
    Connect { url: String, reason: String },
    /// Trying again would not help: a file of ours, or one side's certificate, must be changed.
    #[error("cannot speak TLS with RabbitMQ at {url}: {reason}")]
    Tls { url: String, reason: String },
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

/// What a delivery is answered with, once.
#[async_trait]
pub trait Acker: Send + Sync + fmt::Debug {
    /// The effect is durable. `false`: the channel is gone, the delivery will come again.
    async fn ack(&self) -> bool;
    /// Gives it back: to its old place (`requeue`), or to the dead letters.
    async fn reject(&self, requeue: bool) -> bool;
}

/// A message that has arrived and must be answered.
#[derive(Debug, Clone)]
pub struct Delivery {
    pub kind: Option<Kind>,
    pub message_id: Option<String>,
    pub correlation_id: Option<String>,
    pub headers: Vec<(String, String)>,
    pub body: Bytes,
    /// The user who published it, as the broker has verified it; `None`: the publisher did not say.
    pub user: Option<String>,
    /// `true`: perhaps seen before. `false`: certainly not.
    pub redelivered: bool,
    /// The key it was published under. Where keys name their writers (results, control), the broker's topic permissions
    /// keep each to its own name.
    pub routing_key: String,
    /// Whether RabbitMQ says that some queue gave it up before; its key is then the choice of that queue's owner.
    pub dead_letter: bool,
    /// The queue it came from.
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

/// A stream of deliveries. It outlives lost connections: the bus reconnects and consumes again.
#[async_trait]
pub trait Consumer: Send {
    /// The next delivery; `None` only when the bus is closed.
    async fn next(&mut self) -> Option<Delivery>;
}

/// State of the connection, for health and for `dyad status`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BusHealth {
    Up,
    /// Connected, but the broker takes no publishes (memory or disk alarm).
    Blocked(String),
    /// Not connected; being tried again.
    Down(String),
}

/// Durable queues with confirms.
#[async_trait]
pub trait Bus: Send + Sync {
    /// Declares everything that a run needs; repeats are harmless.
    async fn declare(&self, topology: &Topology, agents: &[AgentName]) -> Result<(), BusError>;
    /// Declares one more queue (results of an incarnation, a listener).
    async fn declare_queue(&self, queue: &Queue) -> Result<(), BusError>;
    /// Returns when the message is in its queue (durable), or was handed over (not durable).
    async fn publish(&self, message: Outgoing) -> Result<(), PublishError>;
    /// Takes deliveries from a declared queue.
    async fn consume(&self, queue: &Queue, prefetch: u16) -> Result<Box<dyn Consumer>, BusError>;
    /// Messages ready in a queue, as far as known.
    async fn depth(&self, queue: &Queue) -> Option<u64>;
    /// Consumers of a queue, in whatever process; `None`: not known.
    async fn listeners(&self, _queue: &Queue) -> Option<u64> {
        None
    }
    /// Whether there is such a queue, whoever made it. An error: not known.
    async fn exists(&self, queue: &Queue) -> Result<bool, BusError> {
        Ok(self.depth(queue).await.is_some())
    }
    /// Takes a queue away, with what lies in it. One that is not there is none to take away.
    async fn delete_queue(&self, _queue: &Queue) -> Result<(), BusError> {
        Ok(())
    }
    fn health(&self) -> BusHealth;
    /// Ends all consumers and connections. What is unconfirmed or unacked stays so.
    async fn close(&self);
}
