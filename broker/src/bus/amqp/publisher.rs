//! The publisher of one exchange: one task and one channel, with many unconfirmed messages at once.
//!
//! No other task publishes on its channel: two tasks on one confirm channel can receive each
//! other's confirms. After a lost channel it resends the unconfirmed messages in order, with the
//! same ids. Its callers do not notice.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use lapin::options::ConfirmSelectOptions;
use lapin::protocol::{AMQPErrorKind, AMQPSoftError};
use tokio::sync::mpsc;

use super::declare::answer;
use super::link::{Link, Shared};
use super::window::{Job, Window};
use crate::bus::{BusHealth, PublishError};

const PAUSE: Duration = Duration::from_millis(100);

/// The reason why a channel is no longer used.
enum Broken {
    Closed,
    /// The exchange is missing, or this user may not publish to it.
    Refused(String),
    Lost(String),
}

pub(super) struct Publisher {
    shared: Arc<Shared>,
    exchange: String,
    jobs: mpsc::Receiver<Job>,
    /// Messages to publish for the first time or again.
    waiting: VecDeque<Job>,
}

impl Publisher {
    pub(super) fn spawn(shared: Arc<Shared>, exchange: String) -> mpsc::Sender<Job> {
        let (sender, jobs) = mpsc::channel(shared.options.window);
        let publisher = Self {
            shared,
            exchange,
            jobs,
            waiting: VecDeque::new(),
        };
        tokio::spawn(publisher.run());
        sender
    }

    async fn run(mut self) {
        loop {
            // Without work there is no need for a channel.
            if self.waiting.is_empty() {
                tokio::select! {
                    biased;
                    () = self.shared.until_closed() => break,
                    job = self.jobs.recv() => match job {
                        Some(job) => self.waiting.push_back(job),
                        None => break,
                    },
                }
            }
            let Some(link) = self.shared.link().await else {
                break;
            };
            match self.serve(&link).await {
                Broken::Closed => break,
                Broken::Refused(reason) => self.refuse(&reason),
                Broken::Lost(reason) => {
                    let oldest = self.waiting.front().map(|job| job.message.to.routing_key.as_str());
                    tracing::warn!(
                        exchange = %self.exchange, %reason, unconfirmed = self.waiting.len(), oldest,
                        "a publishing channel was lost"
                    );
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
        self.jobs.close();
        while let Ok(job) = self.jobs.try_recv() {
            self.waiting.push_back(job);
        }
        for job in self.waiting.drain(..) {
            job.finish(Err(PublishError::Closed));
        }
    }

    fn refuse(&mut self, reason: &str) {
        tracing::error!(exchange = %self.exchange, %reason, "RabbitMQ rejects publishes to this exchange");
        for job in self.waiting.drain(..) {
            let key = job.message.to.routing_key.clone();
            job.finish(Err(PublishError::Unroutable(key)));
        }
    }

    /// Publishes on one channel until it breaks. The unconfirmed messages then return to `waiting`.
    async fn serve(&mut self, link: &Arc<Link>) -> Broken {
        let patience = self.shared.options.answer_timeout;
        let channel = match answer(patience, link.publish.create_channel()).await {
            Ok(channel) => channel,
            Err(refusal) => {
                link.suspect();
                return Broken::Lost(refusal.reason);
            }
        };
        if let Err(refusal) = answer(patience, channel.confirm_select(ConfirmSelectOptions::default())).await {
            link.suspect();
            return Broken::Lost(refusal.reason);
        }
        let mut window = Window::new(channel, self.shared.url.user());
        let broken = self.pump(link, &mut window).await;
        // Messages without a waiting caller are dropped: the caller decides about a resend.
        let unconfirmed: VecDeque<Job> = window.into_unconfirmed().filter(|job| !job.reply.is_closed()).collect();
        let later = std::mem::replace(&mut self.waiting, unconfirmed);
        self.waiting.extend(later);
        broken
    }

    async fn pump(&mut self, link: &Arc<Link>, window: &mut Window) -> Broken {
        let shared = self.shared.clone();
        let (most, most_bytes) = (shared.options.window * 4, shared.options.window_bytes);
        let mut links = shared.link.subscribe();
        let mut silent_since = tokio::time::Instant::now();
        loop {
            while window.len() < most && window.bytes() < most_bytes {
                let Some(job) = self.waiting.pop_front().or_else(|| self.jobs.try_recv().ok()) else {
                    break;
                };
                if window.is_empty() {
                    silent_since = tokio::time::Instant::now();
                }
                if !job.reply.is_closed() {
                    window.publish(job).await;
                }
            }
            let room = window.len() < most && window.bytes() < most_bytes;
            let quiet = silent_since + shared.options.confirm_timeout;
            tokio::select! {
                biased;
                settled = window.settle() => match settled {
                    Ok(_) => silent_since = tokio::time::Instant::now(),
                    Err(error) => return judge(&error),
                },
                job = self.jobs.recv(), if room => match job {
                    Some(job) => self.waiting.push_back(job),
                    None => return Broken::Closed,
                },
                () = shared.until_closed() => return Broken::Closed,
                _ = links.wait_for(|now| !now.as_ref().is_some_and(|now| Arc::ptr_eq(now, link))) => {
                    return Broken::Lost("the connection was lost".into());
                }
                () = tokio::time::sleep_until(quiet), if !window.is_empty() => {
                    let blocked = matches!(&*shared.health.borrow(), BusHealth::Blocked(_));
                    if !blocked {
                        link.suspect();
                        return Broken::Lost(format!("no confirm within {:?}", shared.options.confirm_timeout));
                    }
                    silent_since = tokio::time::Instant::now();
                }
            }
        }
    }
}

fn judge(error: &lapin::Error) -> Broken {
    if let lapin::ErrorKind::ProtocolError(refusal) = error.kind()
        && let AMQPErrorKind::Soft(AMQPSoftError::NOTFOUND | AMQPSoftError::ACCESSREFUSED) = refusal.kind()
    {
        return Broken::Refused(refusal.get_message().to_string());
    }
    Broken::Lost(error.to_string())
}
