//! The unconfirmed messages of one channel, and the match of each confirm to its message.
//!
//! lapin hands a returned (unroutable) message to the next confirm that it resolves, so only the
//! message's own id decides. lapin resolves a batch of confirms in one critical section, in no
//! order. Before it credits any of a batch, the window passes through that section itself
//! ([`Window::settle`]); then the whole batch is known.

use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use lapin::options::BasicPublishOptions;
use lapin::{Channel, Confirmation};
use tokio::sync::oneshot;

use super::wire;
use crate::bus::{Outgoing, PublishError};

/// A message to publish, and the channel for its outcome.
pub(super) struct Job {
    pub(super) message: Outgoing,
    pub(super) reply: oneshot::Sender<Result<(), PublishError>>,
}

impl Job {
    pub(super) fn finish(self, outcome: Result<(), PublishError>) {
        // A caller that has given up waiting sends the same message again.
        let _ = self.reply.send(outcome);
    }
}

type Confirmed = (u64, lapin::Result<Confirmation>);
type Pending = Pin<Box<dyn Future<Output = Confirmed> + Send>>;

/// Unconfirmed messages in the order of their publishing.
pub(super) struct Window {
    channel: Arc<Channel>,
    /// The user of the connection.
    user: String,
    confirms: FuturesUnordered<Pending>,
    jobs: BTreeMap<u64, Job>,
    next: u64,
    bytes: usize,
}

impl Window {
    pub(super) fn new(channel: Channel, user: &str) -> Self {
        Self {
            channel: Arc::new(channel),
            user: user.to_owned(),
            confirms: FuturesUnordered::new(),
            jobs: BTreeMap::new(),
            next: 0,
            bytes: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.jobs.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Puts a message on the wire without waiting. The order of calls is the order on the wire: the
    /// first poll takes the confirm's number and queues the frames, and only this task ever polls.
    pub(super) async fn publish(&mut self, job: Job) {
        let number = self.next;
        self.next += 1;
        let channel = self.channel.clone();
        let properties = wire::properties(&job.message, &self.user);
        let (exchange, key) = (
            wire::short(&job.message.to.exchange),
            wire::short(&job.message.to.routing_key),
        );
        let body: Bytes = job.message.body.clone();
        let mut pending: Pending = Box::pin(async move {
            let options = BasicPublishOptions {
                mandatory: true,
                ..Default::default()
            };
            let written = channel.basic_publish(exchange, key, options, &body, properties).await;
            let confirmed = match written {
                Ok(confirm) => confirm.await,
                Err(error) => Err(error),
            };
            (number, confirmed)
        });
        self.bytes += job.message.body.len();
        self.jobs.insert(number, job);
        let first = std::future::poll_fn(|context| Poll::Ready(pending.as_mut().poll(context))).await;
        self.confirms.push(match first {
            Poll::Pending => pending,
            Poll::Ready(confirmed) => Box::pin(std::future::ready(confirmed)),
        });
    }

    /// Waits for confirms and answers the callers. An error means that the channel is lost. The
    /// future may be dropped at any time.
    pub(super) async fn settle(&mut self) -> lapin::Result<usize> {
        let Some(first) = self.confirms.next().await else {
            return std::future::pending().await;
        };
        // No await from here on: everything taken out of `confirms` is settled.
        let mut batch = vec![first];
        self.drain(&mut batch);
        self.pass_critical_section();
        self.drain(&mut batch);
        self.credit(batch)
    }

    fn drain(&mut self, batch: &mut Vec<Confirmed>) {
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        while let Poll::Ready(Some(confirmed)) = self.confirms.poll_next_unpin(&mut context) {
            batch.push(confirmed);
        }
    }

    /// Takes and releases lapin's lock on the channel's confirms: the first poll of
    /// `wait_for_confirms` does exactly that.
    fn pass_critical_section(&self) {
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        let mut waiting = Box::pin(self.channel.wait_for_confirms());
        let _ = waiting.as_mut().poll(&mut context);
    }

    fn credit(&mut self, batch: Vec<Confirmed>) -> lapin::Result<usize> {
        let count = batch.len();
        let mut returned: HashMap<String, usize> = HashMap::new();
        let mut outcomes = Vec::with_capacity(count);
        let mut broken = None;
        for (number, confirmed) in batch {
            match confirmed {
                Ok(confirmation) => {
                    outcomes.push((number, !confirmation.is_nack()));
                    if let Some(message) = confirmation.take_message() {
                        let id = message.delivery.properties.message_id();
                        *returned
                            .entry(id.as_ref().map_or_else(String::new, |id| id.as_str().to_owned()))
                            .or_default() += 1;
                    }
                }
                Err(error) => broken = Some(error),
            }
        }
        for (number, acked) in outcomes {
            self.answer(number, acked, &mut returned);
        }
        // These returns came with the confirm of another message, before their own.
        for (id, count) in returned {
            self.answer_early(&id, count);
        }
        broken.map_or(Ok(count), Err)
    }

    fn answer(&mut self, number: u64, acked: bool, returned: &mut HashMap<String, usize>) {
        let Some(job) = self.remove(number) else {
            return;
        };
        let id = wire::short(&job.message.message_id);
        let key = job.message.to.routing_key.clone();
        let outcome = match returned.get_mut(id.as_str()) {
            Some(count) if *count > 0 => {
                *count -= 1;
                Err(PublishError::Unroutable(key))
            }
            _ if acked => Ok(()),
            _ => Err(PublishError::Full(key)),
        };
        job.finish(outcome);
    }

    fn answer_early(&mut self, id: &str, count: usize) {
        let early: Vec<u64> = self
            .jobs
            .iter()
            .filter(|(_, job)| wire::short(&job.message.message_id).as_str() == id)
            .map(|(number, _)| *number)
            .take(count)
            .collect();
        if early.len() < count {
            tracing::error!(
                message_id = id,
                "RabbitMQ returned a message after its confirm was accepted"
            );
        }
        for number in early {
            if let Some(job) = self.remove(number) {
                let key = job.message.to.routing_key.clone();
                job.finish(Err(PublishError::Unroutable(key)));
            }
        }
    }

    fn remove(&mut self, number: u64) -> Option<Job> {
        let job = self.jobs.remove(&number)?;
        self.bytes -= job.message.body.len();
        Some(job)
    }

    /// Returns the unconfirmed messages in order, to be sent again with the same ids.
    pub(super) fn into_unconfirmed(self) -> impl Iterator<Item = Job> {
        self.jobs.into_values()
    }
}
