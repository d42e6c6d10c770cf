//! Tries again what the broker or the store could not do, with growing pauses.

use std::sync::Arc;
use std::time::Duration;

use broker::bus::{Bus, Delivery, Outgoing, PublishError};
use broker::store::StoreError;

/// The first pause. Each pause doubles the one before it, up to `LONGEST_PAUSE`.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
pub(crate) const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// The longest time that a delivery is held while something that it needs is missing. The broker
/// closes a channel after 30 minutes; ours is closed after 5.
const HELD: Duration = Duration::from_secs(240);

/// The pauses between tries, each double the one before it, up to the longest. With a bound, they
/// end before their sum exceeds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pauses {
    first: Duration,
    longest: Duration,
    next: Duration,
    /// The rest of the bound. None: the pauses never end.
    left: Option<Duration>,
}

impl Pauses {
    /// Pauses of 20 ms to 2 s for as long as a delivery may be held.
    #[must_use]
    pub fn for_a_delivery() -> Self {
        Self {
            left: Some(HELD),
            ..Self::endless()
        }
    }

    /// Pauses of 20 ms to 2 s without an end.
    #[must_use]
    pub fn endless() -> Self {
        Self::between(FIRST_PAUSE, LONGEST_PAUSE)
    }

    /// Pauses without an end.
    #[must_use]
    pub fn between(first: Duration, longest: Duration) -> Self {
        Self {
            first,
            longest,
            next: first,
            left: None,
        }
    }

    /// Begins with the first pause again.
    pub fn reset(&mut self) {
        self.next = self.first;
    }

    /// Makes the longest pause from now on.
    fn slow_down(&mut self) {
        self.next = self.longest;
    }

    /// Returns the next pause, whatever the bound.
    pub fn next_pause(&mut self) -> Duration {
        let pause = self.next;
        self.next = (pause * 2).min(self.longest);
        pause
    }

    /// Sleeps for the next pause, if there is one.
    pub async fn wait(&mut self) {
        if let Some(pause) = self.next() {
            tokio::time::sleep(pause).await;
        }
    }
}

impl Iterator for Pauses {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        if let Some(left) = &mut self.left {
            *left = left.checked_sub(self.next)?;
        }
        Some(self.next_pause())
    }
}

/// Gives a delivery back that could not be handled now. It would come back at once, so there is a
/// pause before.
pub async fn give_back(delivery: &Delivery) {
    tokio::time::sleep(LONGEST_PAUSE).await;
    delivery.acker.reject(true).await;
}

/// Publishes until the message is in its queue, or the queue does not exist, or the bus is closed.
pub async fn publish(bus: &Arc<dyn Bus>, message: Outgoing) -> Result<(), PublishError> {
    let mut pauses = Pauses::endless();
    loop {
        match bus.publish(message.clone()).await {
            Err(error @ (PublishError::Full(_) | PublishError::Unknown)) => {
                tracing::debug!(%error, message_id = message.message_id, "publishing again");
                pauses.wait().await;
            }
            answer => return answer,
        }
    }
}

/// Repeats a store step until its answer is known. Every step is safe to repeat.
pub async fn settle<T, F>(what: &str, mut step: impl FnMut() -> F) -> Result<T, StoreError>
where
    F: Future<Output = Result<T, StoreError>>,
{
    let mut pauses = Pauses::endless();
    loop {
        match step().await {
            Err(StoreError::Unknown(reason)) => tracing::debug!(what, reason, "the store did not answer; retrying"),
            Err(error @ (StoreError::Unusable(_) | StoreError::Tls { .. } | StoreError::Login { .. })) => {
                tracing::error!(what, %error, "waiting for the store");
                pauses.slow_down();
            }
            answer => return answer,
        }
        pauses.wait().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_for_a_delivery_end_before_the_broker_takes_it() {
        let pauses: Vec<Duration> = Pauses::for_a_delivery().collect();
        assert_eq!(pauses[..3], [20, 40, 80].map(Duration::from_millis));
        assert!(pauses.iter().all(|pause| *pause <= LONGEST_PAUSE));
        let sum: Duration = pauses.iter().sum();
        assert!(sum > HELD - LONGEST_PAUSE && sum <= HELD, "{sum:?}");
    }

    #[test]
    fn endless_pauses_stay_at_the_longest() {
        assert!(Pauses::endless().skip(7).take(200).all(|pause| pause == LONGEST_PAUSE));
    }
}
