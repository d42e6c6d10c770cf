//! Retries for slow operations: each function retries until the result is known, then returns it.

use std::sync::Arc;
use std::time::Duration;

use broker::bus::{Bus, Delivery, Outgoing, PublishError};
use broker::store::StoreError;

/// Pause between tries, doubled up to a bound.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
pub(crate) const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// The longest time a delivery is held while something it needs is missing. The broker closes a
/// channel after 30 minutes by default, and after 5 as we configure it.
const HELD: Duration = Duration::from_secs(240);

/// Growing pauses between tries, for as long as a retry makes sense.
#[derive(Debug)]
pub struct Pauses {
    next: Duration,
    left: Duration,
}

impl Pauses {
    /// Returns the pauses for a delivery that may be held for [`HELD`].
    #[must_use]
    pub fn for_a_delivery() -> Self {
        Self {
            next: FIRST_PAUSE,
            left: HELD,
        }
    }
}

impl Iterator for Pauses {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let pause = self.next;
        self.left = self.left.checked_sub(pause)?;
        self.next = (pause * 2).min(LONGEST_PAUSE);
        Some(pause)
    }
}

/// Returns a delivery to its queue after a pause: without the pause it would come back at once.
pub async fn give_back(delivery: &Delivery) {
    tokio::time::sleep(LONGEST_PAUSE).await;
    delivery.acker.reject(true).await;
}

/// Publishes until the message is in its queue, or it has no receiver, or the bus is closed.
pub async fn publish(bus: &Arc<dyn Bus>, message: Outgoing) -> Result<(), PublishError> {
    let mut pause = FIRST_PAUSE;
    loop {
        match bus.publish(message.clone()).await {
            Err(error @ (PublishError::Full(_) | PublishError::Unknown)) => {
                tracing::debug!(%error, message_id = message.message_id, "publishing again");
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
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
    let mut pause = FIRST_PAUSE;
    loop {
        match step().await {
            Err(StoreError::Unknown(reason)) => tracing::debug!(what, reason, "the store did not answer; retrying"),
            Err(StoreError::Unusable(reason)) => {
                tracing::error!(what, reason, "the store cannot be used; waiting for it");
                pause = LONGEST_PAUSE;
            }
            answer => return answer,
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_bound_and_end_before_redelivery() {
        let pauses: Vec<Duration> = Pauses::for_a_delivery().collect();
        assert_eq!(pauses[..3], [20, 40, 80].map(Duration::from_millis));
        assert!(pauses.iter().all(|pause| *pause <= LONGEST_PAUSE));
        let sum: Duration = pauses.iter().sum();
        assert!(sum > HELD - LONGEST_PAUSE && sum <= HELD, "{sum:?}");
    }
}
