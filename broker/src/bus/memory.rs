//! The bus in memory: the same contract as RabbitMQ's, inside one process, without a server.
//!
//! A [`MemoryBus`] is one handle, as a connection is. [`MemoryBus::peer`] returns another handle to
//! the same queues. There is no polling: a publish or an answer wakes each consumer that can take a
//! message. Expiring queues do not expire here, because every listener ends with the process.

mod matching;
mod queue;
mod routes;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, Weak};
use std::time::SystemTime;

use async_trait::async_trait;
use tokio::sync::Notify;

use self::queue::{QueueCell, Rejected, Stored, Taken};
use self::routes::Routes;
use super::letter::GivenUp;
use super::{Acker, Bus, BusError, BusHealth, Consumer, Delivery, Outgoing, PublishError};
use crate::clock::rfc3339;
use crate::topology::{Queue, Topology};
use configs::AgentName;

/// A handle to queues inside this process.
#[derive(Debug)]
pub struct MemoryBus {
    broker: Arc<Broker>,
    /// The number of this handle: exclusive queues and consumers belong to one handle.
    id: u64,
    closed: AtomicBool,
}

#[derive(Debug, Default)]
struct Broker {
    routes: RwLock<Routes>,
    next_id: AtomicU64,
}

impl Broker {
    fn new_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    fn read<T>(&self, f: impl FnOnce(&Routes) -> T) -> T {
        f(&self.routes.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn write<T>(&self, f: impl FnOnce(&mut Routes) -> T) -> T {
        f(&mut self.routes.write().unwrap_or_else(PoisonError::into_inner))
    }

    /// Dead-letters a message of a queue. Returns false if there is no dead-letter queue; the
    /// caller then keeps the message.
    fn dead_letter(&self, queue: &QueueCell, message: &Stored, reason: &str) -> bool {
        let Some(to) = &queue.dead_letters else {
            return false;
        };
        let targets = self.read(|routes| routes.targets(to));
        let mut dead = message.clone();
        dead.routing_key.clone_from(&to.routing_key);
        let given_up = GivenUp {
            reason: reason.to_owned(),
            queue: Some(queue.name.to_string()),
            key: Some(message.routing_key.clone()),
            first: Some(rfc3339(SystemTime::now())),
            count: 1,
        };
        given_up.explain(&mut dead.headers);
        for target in &targets {
            // Forced, so the target cannot be full.
            let _ = target.push(dead.clone(), true);
        }
        !targets.is_empty()
    }

    /// Dead-letters a message, or appends it to its own queue if no dead-letter queue takes it.
    /// RabbitMQ retains such a message too.
    fn give_up(&self, queue: &QueueCell, message: Stored, reason: &str) {
        if !self.dead_letter(queue, &message, reason) {
            tracing::warn!(queue = %queue.name, reason, "no dead-letter queue accepts the message; it stays in its queue");
            let _ = queue.push(message, true);
        }
    }

    fn leave(&self, queue: &Arc<QueueCell>, leaving: impl Fn(u64, u64) -> bool) {
        for message in queue.remove_takers(leaving) {
            self.give_up(queue, message, "delivery_limit");
        }
    }

    fn end_queue(&self, queue: &QueueCell) {
        self.write(|routes| routes.remove(&queue.name));
        queue.end();
    }
}

impl MemoryBus {
    #[must_use]
    pub fn new() -> Arc<Self> {
        Self::handle(Arc::new(Broker::default()))
    }

    /// Returns another handle to the same queues, as another process has. Closing either one leaves
    /// the other open.
    #[must_use]
    pub fn peer(&self) -> Arc<Self> {
        Self::handle(self.broker.clone())
    }

    fn handle(broker: Arc<Broker>) -> Arc<Self> {
        let id = broker.new_id();
        Arc::new(Self {
            broker,
            id,
            closed: AtomicBool::new(false),
        })
    }

    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    fn open(&self) -> Result<(), BusError> {
        if self.is_closed() {
            Err(BusError::Closed)
        } else {
            Ok(())
        }
    }

    fn declare_one(&self, queue: &Queue) -> Result<(), BusError> {
        self.open()?;
        self.broker.write(|routes| {
            let cell = match routes.queues.get(&queue.name) {
                Some(cell) => {
                    self.same(cell, queue)?;
                    cell.clone()
                }
                None => Arc::new(QueueCell::new(queue, self.id)),
            };
            let bindings = &mut routes.exchange(&queue.exchange)?.queues;
            if !bindings
                .iter()
                .any(|(key, bound)| *key == queue.routing_key && *bound.name == *queue.name)
            {
                bindings.push((queue.routing_key.clone(), cell.clone()));
            }
            routes.queues.insert(queue.name.clone(), cell);
            Ok(())
        })
    }

    fn same(&self, cell: &QueueCell, queue: &Queue) -> Result<(), BusError> {
        let refuse = |reason: String| {
            Err(BusError::Declare {
                what: format!("queue {}", queue.name),
                reason,
                forbidden: false,
            })
        };
        if cell.is_exclusive() && cell.owner != self.id {
            return refuse("it belongs to another process".into());
        }
        if cell.kind != queue.kind {
            return refuse(format!("it exists as {:?}, not {:?}", cell.kind, queue.kind));
        }
        Ok(())
    }

    fn end(&self) {
        if self.closed.swap(true, Ordering::AcqRel) {
            return;
        }
        let queues: Vec<_> = self.broker.read(|routes| routes.queues.values().cloned().collect());
        for queue in queues {
            self.broker.leave(&queue, |_, handle| handle == self.id);
            if queue.is_exclusive() && queue.owner == self.id {
                self.broker.end_queue(&queue);
            }
        }
    }
}

impl Drop for MemoryBus {
    fn drop(&mut self) {
        self.end();
    }
}

fn deliver(queues: &[Arc<QueueCell>], message: Outgoing) -> Result<(), PublishError> {
    let Outgoing {
        to,
        kind,
        message_id,
        correlation_id,
        headers,
        body,
        durable,
    } = message;
    let stored = Stored {
        kind: Some(kind),
        message_id: Some(message_id),
        correlation_id,
        headers,
        routing_key: to.routing_key.clone(),
        body,
    };
    let full = |_| PublishError::Full(to.routing_key.clone());
    let Some((last, others)) = queues.split_last() else {
        return if durable {
            Err(PublishError::Unroutable(to.routing_key))
        } else {
            Ok(())
        };
    };
    let mut outcome = Ok(());
    for queue in others {
        outcome = outcome.and(queue.push(stored.clone(), false).map_err(full));
    }
    outcome = outcome.and(last.push(stored, false).map_err(full));
    if durable { outcome } else { Ok(()) }
}

#[async_trait]
impl Bus for MemoryBus {
    async fn declare(&self, topology: &Topology, agents: &[AgentName]) -> Result<(), BusError> {
        for queue in topology.durable_queues(agents) {
            self.declare_one(&queue)?;
        }
        for exchange in topology.other_exchanges() {
            self.broker.write(|routes| routes.exchange(&exchange).map(|_| ()))?;
        }
        Ok(())
    }

    async fn declare_queue(&self, queue: &Queue) -> Result<(), BusError> {
        self.declare_one(queue)
    }

    async fn publish(&self, message: Outgoing) -> Result<(), PublishError> {
        if self.is_closed() {
            return Err(PublishError::Closed);
        }
        let queues = self.broker.read(|routes| routes.targets(&message.to));
        let outcome = deliver(&queues, message);
        // Nothing above waits: without this line a busy publisher would starve other tasks.
        tokio::task::coop::consume_budget().await;
        outcome
    }

    async fn consume(&self, queue: &Queue, prefetch: u16) -> Result<Box<dyn Consumer>, BusError> {
        self.open()?;
        let cell = self
            .broker
            .read(|routes| routes.queues.get(&queue.name).cloned())
            .ok_or_else(|| BusError::Declare {
                what: format!("a consumer of {}", queue.name),
                reason: "there is no such queue".into(),
                forbidden: false,
            })?;
        self.same(&cell, queue)?;
        let id = self.broker.new_id();
        let wake = cell.add_taker(id, self.id, prefetch);
        let consumer = Box::new(MemoryConsumer {
            id,
            wake,
            queue: cell,
            broker: self.broker.clone(),
        });
        // A close that ran in between has not seen this consumer: dropping it here removes it.
        self.open()?;
        Ok(consumer)
    }

    async fn depth(&self, queue: &Queue) -> Option<u64> {
        self.broker
            .read(|routes| routes.queues.get(&queue.name).map(|cell| cell.ready()))
    }

    fn health(&self) -> BusHealth {
        if self.is_closed() {
            BusHealth::Down("closed".into())
        } else {
            BusHealth::Up
        }
    }

    async fn close(&self) {
        self.end();
    }
}

struct MemoryConsumer {
    id: u64,
    wake: Arc<Notify>,
    queue: Arc<QueueCell>,
    broker: Arc<Broker>,
}

#[async_trait]
impl Consumer for MemoryConsumer {
    async fn next(&mut self) -> Option<Delivery> {
        tokio::task::coop::consume_budget().await;
        loop {
            match self.queue.take(self.id) {
                Taken::Gone => return None,
                Taken::Nothing => self.wake.notified().await,
                Taken::Message {
                    tag,
                    message,
                    redelivered,
                } => return Some(self.delivery(tag, message, redelivered)),
            }
        }
    }
}

impl MemoryConsumer {
    fn delivery(&self, tag: u64, message: Stored, redelivered: bool) -> Delivery {
        Delivery {
            kind: message.kind,
            message_id: message.message_id,
            correlation_id: message.correlation_id,
            headers: message.headers,
            // All handles are in one process.
            user: Some("memory".into()),
            dead_letter: false,
            body: message.body,
            redelivered,
            routing_key: message.routing_key,
            queue: self.queue.name.clone(),
            acker: Arc::new(MemoryAcker {
                tag,
                queue: self.queue.clone(),
                broker: Arc::downgrade(&self.broker),
            }),
        }
    }
}

impl Drop for MemoryConsumer {
    fn drop(&mut self) {
        self.broker.leave(&self.queue, |id, _| id == self.id);
        if self.queue.is_exclusive() {
            self.broker.end_queue(&self.queue);
        }
    }
}

#[derive(Debug)]
struct MemoryAcker {
    tag: u64,
    queue: Arc<QueueCell>,
    broker: Weak<Broker>,
}

#[async_trait]
impl Acker for MemoryAcker {
    async fn ack(&self) -> bool {
        self.queue.ack(self.tag)
    }

    async fn reject(&self, requeue: bool) -> bool {
        match self.queue.reject(self.tag, requeue) {
            Rejected::Unknown => return false,
            Rejected::Requeued => {}
            Rejected::Dead(message, reason) => {
                if let Some(broker) = self.broker.upgrade() {
                    broker.give_up(&self.queue, message, reason);
                }
            }
        }
        true
    }
}
