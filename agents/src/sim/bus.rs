//! A bus that loses, repeats and delays messages within its contract, over the bus in memory.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use broker::AgentName;
use broker::bus::memory::MemoryBus;
use broker::bus::{Bus, BusError, BusHealth, Consumer, Delivery, Outgoing, PublishError};
use broker::topology::{Queue, QueueKind, Topology};

use super::chance::Chance;

/// The connection of one process.
pub(super) struct SimBus {
    inner: Arc<MemoryBus>,
    chance: Chance,
}

impl SimBus {
    pub(super) fn new(inner: Arc<MemoryBus>, chance: Chance) -> Arc<Self> {
        Arc::new(Self { inner, chance })
    }

    async fn pause(&self, most: usize) {
        let ms = 1 + self.chance.below(most) as u64;
        tokio::time::sleep(Duration::from_millis(ms)).await;
    }
}

#[async_trait]
impl Bus for SimBus {
    async fn declare(&self, topology: &Topology, agents: &[AgentName]) -> Result<(), BusError> {
        self.inner.declare(topology, agents).await
    }

    async fn declare_queue(&self, queue: &Queue) -> Result<(), BusError> {
        self.inner.declare_queue(queue).await
    }

    async fn publish(&self, message: Outgoing) -> Result<(), PublishError> {
        self.chance.note(&message.to.routing_key, message.body.len());
        if message.durable {
            tracing::trace!(to = message.to.routing_key, id = message.message_id, "publishes");
        }
        if self.chance.is_slow() {
            self.pause(1).await;
        }
        // Other messages overtake it.
        if self.chance.strikes(6) {
            self.pause(300).await;
        }
        if self.chance.strikes(25) {
            return if message.durable {
                Err(PublishError::Unknown)
            } else {
                Ok(())
            };
        }
        if message.durable && self.chance.strikes(25) {
            self.inner.publish(message.clone()).await?;
        }
        let unconfirmed = message.durable && self.chance.strikes(25);
        self.inner.publish(message).await?;
        // The confirm is on its way; a process that dies now never learns of it.
        if self.chance.strikes(10) {
            self.pause(50).await;
        }
        if unconfirmed {
            Err(PublishError::Unknown)
        } else {
            Ok(())
        }
    }

    async fn consume(&self, queue: &Queue, prefetch: u16) -> Result<Box<dyn Consumer>, BusError> {
        let inner = self.inner.consume(queue, prefetch).await?;
        Ok(Box::new(SimConsumer {
            bus: self.inner.clone(),
            queue: queue.clone(),
            prefetch,
            inner: Some(inner),
            chance: self.chance.clone(),
        }))
    }

    async fn depth(&self, queue: &Queue) -> Option<u64> {
        self.inner.depth(queue).await
    }

    fn health(&self) -> BusHealth {
        self.inner.health()
    }

    async fn close(&self) {
        self.inner.close().await;
    }
}

struct SimConsumer {
    bus: Arc<MemoryBus>,
    queue: Queue,
    prefetch: u16,
    inner: Option<Box<dyn Consumer>>,
    chance: Chance,
}

#[async_trait]
impl Consumer for SimConsumer {
    async fn next(&mut self) -> Option<Delivery> {
        // The channel breaks: unacked messages come again, and later acks on this channel have no
        // effect.
        if self.queue.kind != QueueKind::Exclusive && self.chance.strikes(40) {
            self.inner = None;
            self.inner = self.bus.consume(&self.queue, self.prefetch).await.ok();
        }
        if self.chance.strikes(15) {
            let ms = 1 + self.chance.below(200) as u64;
            tokio::time::sleep(Duration::from_millis(ms)).await;
        }
        self.inner.as_mut()?.next().await
    }
}
