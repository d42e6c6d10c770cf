//! A consumer that survives lost channels and connections: after its stream ends, it declares and
//! consumes again.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt;
use lapin::Channel;
use lapin::options::{BasicAckOptions, BasicConsumeOptions, BasicQosOptions, BasicRejectOptions, QueueDeleteOptions};
use lapin::types::FieldTable;
use tokio::runtime::Handle;

use super::declare::{NotDone, answer, declare};
use super::link::{FIRST_PAUSE, LONGEST_PAUSE, Link, Shared};
use super::wire;
use crate::bus::{Acker, BusError, Consumer, Delivery};
use crate::topology::{Queue, QueueKind};

const CLOSE_PATIENCE: Duration = Duration::from_secs(2);
/// Most deletions of a queue without a leader at a consumer's start. The broker may be killed
/// again.
const MOST_DELETIONS: usize = 3;

pub(super) struct AmqpConsumer {
    shared: Arc<Shared>,
    queue: Queue,
    name: Arc<str>,
    prefetch: u16,
    stream: Option<Stream>,
    pause: Duration,
}

/// One consumer on one channel. Dropping it closes the channel, which returns its unacked
/// deliveries.
struct Stream {
    deliveries: lapin::Consumer,
    channel: Channel,
    /// False once the channel is abandoned: a later ack proves nothing.
    alive: Arc<AtomicBool>,
    runtime: Handle,
}

/// The reason why a consumer could not be opened.
struct NotOpened {
    error: BusError,
    /// True if the broker did not answer. A broker that refuses has answered.
    silent: bool,
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.alive.store(false, Ordering::Release);
        // Close the channel before the consumer is dropped: RabbitMQ returns a cancelled consumer's
        // messages out of order.
        let (channel, deliveries) = (self.channel.clone(), self.deliveries.clone());
        self.runtime.spawn(async move {
            if channel.status().connected() {
                let _ = answer(CLOSE_PATIENCE, channel.close(200, wire::short("done"))).await;
            }
            drop(deliveries);
        });
    }
}

impl AmqpConsumer {
    pub(super) async fn start(shared: Arc<Shared>, queue: Queue, prefetch: u16) -> Result<Self, BusError> {
        let mut consumer = Self {
            name: Arc::from(queue.name.as_str()),
            shared: shared.clone(),
            queue,
            prefetch: prefetch.max(1),
            stream: None,
            pause: FIRST_PAUSE,
        };
        let mut deletions = 0;
        loop {
            let link = shared.link().await.ok_or(BusError::Closed)?;
            let NotOpened { error, silent } = match consumer.open(&link).await {
                Ok(stream) => {
                    consumer.stream = Some(stream);
                    return Ok(consumer);
                }
                Err(failure) => failure,
            };
            if shared.is_lost(&link, &error).await {
                continue;
            }
            if !silent || deletions == MOST_DELETIONS || !consumer.delete_leaderless(&link).await {
                return Err(error);
            }
            deletions += 1;
            match consumer.declare(&link).await {
                Err(error) if !shared.is_lost(&link, &error).await => return Err(error),
                _ => {}
            }
        }
    }

    async fn declare(&self, link: &Link) -> Result<(), BusError> {
        let queue = std::slice::from_ref(&self.queue);
        declare(&link.consume, &[], queue, self.shared.options.answer_timeout).await
    }

    async fn open(&self, link: &Link) -> Result<Stream, NotOpened> {
        let failed = |refusal: NotDone| NotOpened {
            silent: refusal.silent,
            error: refusal.declare(format!("a consumer of {}", self.queue.name)),
        };
        let patience = self.shared.options.answer_timeout;
        let channel = answer(patience, link.consume.create_channel()).await.map_err(failed)?;
        let per_consumer = BasicQosOptions { global: false };
        answer(patience, channel.basic_qos(self.prefetch, per_consumer))
            .await
            .map_err(failed)?;
        let consume = channel.basic_consume(
            wire::short(&self.queue.name),
            wire::short(""),
            BasicConsumeOptions::default(),
            FieldTable::default(),
        );
        let deliveries = answer(patience, consume).await.map_err(failed)?;
        Ok(Stream {
            deliveries,
            channel,
            alive: Arc::new(AtomicBool::new(true)),
            runtime: Handle::current(),
        })
    }

    /// Declares and consumes again. Returns false if the bus is closed.
    async fn reopen(&mut self) -> bool {
        let Some(link) = self.shared.link().await else {
            return false;
        };
        let opened = match self.declare(&link).await {
            Ok(()) => self.open(&link).await,
            Err(error) => Err(NotOpened { error, silent: false }),
        };
        match opened {
            Ok(stream) => {
                self.stream = Some(stream);
                self.pause = FIRST_PAUSE;
                tracing::info!(queue = %self.name, "consuming again");
            }
            Err(NotOpened { error, silent }) => {
                tracing::warn!(queue = %self.name, %error, "cannot consume; trying again in {:?}", self.pause);
                if silent {
                    self.delete_leaderless(&link).await;
                }
                if link.consume.status().connected() {
                    // On a lost link the supervisor sets the pace.
                    tokio::time::sleep(self.pause).await;
                    self.pause = (self.pause * 2).min(LONGEST_PAUSE);
                } else {
                    link.suspect();
                    tokio::time::sleep(FIRST_PAUSE).await;
                }
            }
        }
        true
    }

    /// Deletes a queue of one incarnation that has lost its leader. Returns true if it is deleted.
    ///
    /// RabbitMQ 3.10 may restore a quorum queue without a leader if the broker was killed in the
    /// second after the queue's declaration. Such a queue is listed, but answers and confirms
    /// nothing, for ever. Deleting it takes 5 seconds and heals it. Results and answers for one
    /// incarnation can be requested again, so their queue is deleted and declared again. Any other
    /// queue needs an operator.
    async fn delete_leaderless(&self, link: &Link) -> bool {
        if !link.consume.status().connected() {
            return false;
        }
        let ours = matches!(
            self.queue.kind,
            QueueKind::Durable {
                expires_after_seconds: Some(_),
                ..
            }
        );
        if !ours {
            tracing::error!(
                queue = %self.name,
                "the queue may have lost its leader. If this continues, delete it (rabbitmqctl delete_queue): it is declared again, and \
                 the ledgers resend its messages"
            );
            return false;
        }
        let patience = self.shared.options.answer_timeout;
        let Ok(channel) = answer(patience, link.consume.create_channel()).await else {
            return false;
        };
        let deleting = channel.queue_delete(wire::short(&self.queue.name), QueueDeleteOptions::default());
        let outcome = answer(patience * 2, deleting).await;
        match &outcome {
            Ok(messages) => tracing::warn!(queue = %self.name, messages, "deleted a queue that did not answer"),
            Err(reason) => {
                tracing::warn!(queue = %self.name, %reason, "a queue that does not answer cannot be deleted")
            }
        }
        let _ = answer(CLOSE_PATIENCE, channel.close(200, wire::short("done"))).await;
        outcome.is_ok()
    }

    fn delivery(&self, mut delivery: lapin::message::Delivery, alive: Arc<AtomicBool>) -> Delivery {
        let wire::Incoming {
            kind,
            message_id,
            correlation_id,
            headers,
            user,
            dead_letter,
            body,
        } = wire::incoming(&mut delivery);
        Delivery {
            kind,
            message_id,
            correlation_id,
            headers,
            user,
            dead_letter,
            body,
            redelivered: delivery.redelivered,
            routing_key: delivery.routing_key.as_str().to_owned(),
            queue: self.name.clone(),
            acker: Arc::new(AmqpAcker {
                acker: delivery.acker,
                alive,
                shared: self.shared.clone(),
            }),
        }
    }
}

#[async_trait]
impl Consumer for AmqpConsumer {
    async fn next(&mut self) -> Option<Delivery> {
        tokio::task::coop::consume_budget().await;
        loop {
            if self.shared.is_closed() {
                self.stream = None;
                return None;
            }
            let Some(stream) = &mut self.stream else {
                tokio::select! {
                    biased;
                    going_on = self.reopen() => if !going_on { return None },
                }
                continue;
            };
            let next = tokio::select! {
                biased;
                next = stream.deliveries.next() => next,
                () = self.shared.until_closed() => continue,
            };
            match next {
                Some(Ok(delivery)) => {
                    let alive = stream.alive.clone();
                    return Some(self.delivery(delivery, alive));
                }
                Some(Err(error)) => tracing::debug!(queue = %self.name, %error, "a consumer's stream failed"),
                None => tracing::warn!(queue = %self.name, "a consumer's stream ended"),
            }
            self.stream = None;
        }
    }
}

impl Drop for AmqpConsumer {
    fn drop(&mut self) {
        if self.queue.kind == QueueKind::Exclusive {
            self.shared.forget(&self.queue.name);
        }
    }
}

#[derive(Debug)]
struct AmqpAcker {
    acker: lapin::Acker,
    alive: Arc<AtomicBool>,
    shared: Arc<Shared>,
}

impl AmqpAcker {
    fn usable(&self) -> bool {
        self.alive.load(Ordering::Acquire) && !self.shared.is_closed()
    }

    /// Returns true if the answer was written to the delivery's own channel, which was alive before
    /// and after.
    async fn send(&self, sent: impl Future<Output = lapin::Result<bool>>) -> bool {
        self.usable() && answer(self.shared.options.answer_timeout, sent).await.unwrap_or(false) && self.usable()
    }
}

#[async_trait]
impl Acker for AmqpAcker {
    async fn ack(&self) -> bool {
        self.send(self.acker.ack(BasicAckOptions::default())).await
    }

    async fn reject(&self, requeue: bool) -> bool {
        self.send(self.acker.reject(BasicRejectOptions { requeue })).await
    }
}
