//! The bus on RabbitMQ, by lapin without lapin's own recovery: `link` supervises, `publisher` and
//! `consumer` resume.
//!
//! A bus has:
//!
//! - One `link` of two connections, one for publishing and one for consuming. A broker in alarm
//!   stops reading a publisher's connection, including its acks.
//! - One publisher task and one channel per exchange.
//! - One window of unconfirmed messages per destination.
//! - One channel per consumer.

mod consumer;
mod declare;
mod dial;
mod link;
mod options;
mod publisher;
mod secure;
mod transient;
mod url;
mod window;
mod wire;

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use lapin::options::{QueueDeclareOptions, QueueDeleteOptions};
use lapin::protocol::AMQPSoftError;
use lapin::types::FieldTable;
use tokio::sync::{Semaphore, mpsc, oneshot};

use self::consumer::AmqpConsumer;
use self::link::Shared;
pub use self::options::AmqpOptions;
use self::publisher::Publisher;
use self::url::BrokerUrl;
pub use self::url::{check_url, redact, vhost};
use self::window::Job;
use super::{Bus, BusError, BusHealth, Consumer, Outgoing, PublishError};
use crate::topology::{Address, Queue, Topology};
use configs::AgentName;

/// A handle to RabbitMQ. Clones of its `Arc` share the connections; dropping the last clone closes
/// them.
pub struct AmqpBus {
    shared: Arc<Shared>,
    transient: mpsc::Sender<Outgoing>,
    publishers: Mutex<HashMap<String, mpsc::Sender<Job>>>,
    windows: Mutex<HashMap<Address, Arc<Semaphore>>>,
}

impl fmt::Debug for AmqpBus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AmqpBus")
            .field("url", &self.shared.url)
            .field("health", &self.health())
            .finish()
    }
}

impl AmqpBus {
    /// Connects, and stays connected until it is closed or dropped. Call it inside a tokio runtime,
    /// which then drives the connections.
    ///
    /// # Errors
    /// The URL is rejected (see [`check_url`]), or no connection succeeded within the options'
    /// `connect_timeout`. A refusal returns [`BusError::Tls`] or [`BusError::Login`] at once, and
    /// with `tries_once` any failure returns at once.
    pub async fn connect(url: &str, options: AmqpOptions) -> Result<Arc<Self>, BusError> {
        let url = BrokerUrl::parse(url, options.allow_plaintext)?;
        let patience = options.connect_timeout;
        let tls = dial::trust(&url, &options)?;
        let shared = Arc::new(Shared::new(url, options, tls));
        let bus = Arc::new(Self {
            transient: transient::spawn(shared.clone()),
            shared: shared.clone(),
            publishers: Mutex::default(),
            windows: Mutex::default(),
        });
        tokio::spawn(link::supervise(shared.clone()));
        match tokio::time::timeout(patience, shared.link()).await {
            Ok(Some(_)) => Ok(bus),
            Ok(None) => Err(shared.refused.get().cloned().unwrap_or(BusError::Closed)),
            Err(_) => Err(BusError::Connect {
                url: shared.url.shown.clone(),
                reason: bus.why_down(patience),
            }),
        }
    }

    fn why_down(&self, patience: Duration) -> String {
        match self.health() {
            BusHealth::Down(reason) | BusHealth::Blocked(reason) => format!("{reason} (tried for {patience:?})"),
            BusHealth::Up => "it connected too late".into(),
        }
    }

    fn publisher(&self, exchange: &str) -> mpsc::Sender<Job> {
        let mut publishers = self.publishers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(publisher) = publishers.get(exchange) {
            return publisher.clone();
        }
        let publisher = Publisher::spawn(self.shared.clone(), exchange.to_owned());
        publishers.insert(exchange.to_owned(), publisher.clone());
        publisher
    }

    fn window(&self, to: &Address) -> Arc<Semaphore> {
        let mut windows = self.windows.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(window) = windows.get(to) {
            return window.clone();
        }
        // Destinations come and go with coordinators: drop the windows without a user.
        if windows.len() >= 256 {
            windows.retain(|_, window| Arc::strong_count(window) > 1);
        }
        let window = Arc::new(Semaphore::new(self.shared.options.window));
        windows.insert(to.clone(), window.clone());
        window
    }

    async fn publish_durable(&self, message: Outgoing) -> Result<(), PublishError> {
        let window = self.window(&message.to);
        let _room = window.acquire().await.map_err(|_| PublishError::Closed)?;
        let publisher = self.publisher(&message.to.exchange);
        let (reply, outcome) = oneshot::channel();
        publisher
            .send(Job { message, reply })
            .await
            .map_err(|_| PublishError::Closed)?;
        outcome.await.unwrap_or(Err(PublishError::Closed))
    }

    /// Returns the ready messages of a queue and its consumers.
    async fn passive_count(&self, queue: &Queue) -> Option<(u64, u64)> {
        let link = self.shared.link.borrow().clone()?;
        // Asking for a missing queue closes the channel, so the question has its own channel.
        let channel = link.consume.create_channel().await.ok()?;
        let passive = QueueDeclareOptions::default().passive();
        let declared = channel
            .queue_declare(wire::short(&queue.name), passive, FieldTable::default())
            .await
            .ok()?;
        let _ = channel.close(200, wire::short("counted")).await;
        Some((declared.message_count().into(), declared.consumer_count().into()))
    }

    async fn count(&self, queue: &Queue) -> Option<(u64, u64)> {
        let patience = self.shared.options.answer_timeout;
        let counted = tokio::time::timeout(patience, self.passive_count(queue)).await;
        counted.ok().flatten()
    }

    async fn declare_now(&self, exchanges: Vec<crate::topology::Exchange>, queues: &[Queue]) -> Result<(), BusError> {
        let patience = self.shared.options.answer_timeout;
        loop {
            let link = self.shared.link().await.ok_or(BusError::Closed)?;
            if let Err(error) = declare::declare(&link.consume, &exchanges, queues, patience).await {
                if self.shared.is_lost(&link, &error).await {
                    continue;
                }
                return Err(error);
            }
            self.shared.remember(exchanges.clone(), queues);
            // A link that came up in between did not declare them yet.
            if self.shared.has(&link) {
                return Ok(());
            }
        }
    }
}

impl Drop for AmqpBus {
    fn drop(&mut self) {
        self.shared.closed.send_replace(true);
    }
}

#[async_trait]
impl Bus for AmqpBus {
    async fn declare(&self, topology: &Topology, agents: &[AgentName]) -> Result<(), BusError> {
        self.declare_now(topology.other_exchanges(), &topology.durable_queues(agents))
            .await
    }

    async fn declare_queue(&self, queue: &Queue) -> Result<(), BusError> {
        self.declare_now(Vec::new(), std::slice::from_ref(queue)).await
    }

    async fn publish(&self, message: Outgoing) -> Result<(), PublishError> {
        if self.shared.is_closed() {
            return Err(PublishError::Closed);
        }
        let (size, limit) = (message.body.len(), self.shared.options.max_message);
        if size > limit {
            return Err(PublishError::TooLarge { size, limit });
        }
        if !message.durable {
            // Full: the broker is slower than our heartbeats, so this message is of no use.
            let _ = self.transient.try_send(message);
            return Ok(());
        }
        // Unconstrained: messages enter the window in the order in which the calls are first
        // polled. The wait for the confirm yields to other tasks anyway.
        let published = tokio::task::coop::unconstrained(self.publish_durable(message));
        tokio::time::timeout(self.shared.options.publish_timeout, published)
            .await
            .unwrap_or(Err(PublishError::Unknown))
    }

    async fn consume(&self, queue: &Queue, prefetch: u16) -> Result<Box<dyn Consumer>, BusError> {
        Ok(Box::new(
            AmqpConsumer::start(self.shared.clone(), queue.clone(), prefetch).await?,
        ))
    }

    async fn depth(&self, queue: &Queue) -> Option<u64> {
        self.count(queue).await.map(|(ready, _)| ready)
    }

    async fn listeners(&self, queue: &Queue) -> Option<u64> {
        self.count(queue).await.map(|(_, consumers)| consumers)
    }

    async fn exists(&self, queue: &Queue) -> Result<bool, BusError> {
        let failed = |reason: String| BusError::Connect {
            url: self.shared.url.shown.clone(),
            reason: format!("looking for queue {}: {reason}", queue.name),
        };
        let patience = self.shared.options.answer_timeout;
        let link = self.shared.link().await.ok_or(BusError::Closed)?;
        let channel = declare::answer(patience, link.consume.create_channel())
            .await
            .map_err(|refusal| failed(refusal.reason))?;
        let passive = QueueDeclareOptions::default().passive();
        let looked = channel.queue_declare(wire::short(&queue.name), passive, FieldTable::default());
        match tokio::time::timeout(patience, looked).await {
            Ok(Ok(_)) => {
                let _ = channel.close(200, wire::short("looked")).await;
                Ok(true)
            }
            // The refusal has closed the channel. Any reason other than NOT_FOUND is about an
            // existing queue.
            Ok(Err(error)) => match declare::refusal(&error) {
                Some(AMQPSoftError::NOTFOUND) => Ok(false),
                Some(_) => Ok(true),
                None => Err(failed(error.to_string())),
            },
            Err(_) => Err(failed(format!("no answer within {patience:?}"))),
        }
    }

    async fn delete_queue(&self, queue: &Queue) -> Result<(), BusError> {
        self.shared.forget(&queue.name);
        let failed = |reason: String| BusError::Delete {
            queue: queue.name.clone(),
            reason,
        };
        let patience = self.shared.options.answer_timeout;
        let link = self.shared.link().await.ok_or(BusError::Closed)?;
        let channel = declare::answer(patience, link.consume.create_channel())
            .await
            .map_err(|refusal| failed(refusal.reason))?;
        let deleting = channel.queue_delete(wire::short(&queue.name), QueueDeleteOptions::default());
        declare::answer(patience, deleting)
            .await
            .map_err(|refusal| failed(refusal.reason))?;
        // If this fails, the channel ends with the connection.
        let _ = channel.close(200, wire::short("deleted")).await;
        Ok(())
    }

    fn health(&self) -> BusHealth {
        self.shared.health.borrow().clone()
    }

    fn reconnects(&self) -> u64 {
        let links = self.shared.links.load(Ordering::Relaxed);
        links.saturating_sub(1)
    }

    async fn close(&self) {
        self.shared.closed.send_replace(true);
        let mut health = self.shared.health.subscribe();
        let ended = health.wait_for(|health| *health == BusHealth::Down("closed".into()));
        let _ = tokio::time::timeout(self.shared.options.close_timeout * 2, ended).await;
    }
}
