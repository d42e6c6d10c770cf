//! What the coordinator does that takes time: every function retries until it knows, and reports back to the actor.

use std::sync::Arc;
use std::time::Duration;

use broker::bus::{Bus, Delivery, Outgoing, PublishError};
use broker::store::StoreError;

/// Pause between tries, doubled up to a bound.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
pub(crate) const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// How long a delivery is held at most while what it needs is not there; the broker closes a channel after 30 minutes, and
/// ours after 5.
const HELD: Duration = Duration::from_secs(240);

/// Growing pauses between tries, as long as it makes sense to go on.
#[derive(Debug)]
pub struct Pauses {
    next: Duration,
    left: Duration,
}

impl Pauses {
    /// For as long as a delivery may be held.
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

/// Gives a delivery back that could not be handled now, after a pause: at once it would come back at once.
pub async fn give_back(delivery: &Delivery) {
    tokio::time::sleep(LONGEST_PAUSE).await;
    delivery.acker.reject(true).await;
}

/// Publishes until the message is in its queue, or nobody is there to take it, or the bus is closed.
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
            Err(StoreError::Unknown(reason)) => tracing::debug!(what, reason, "the store did not answer, trying again"),
            Err(StoreError::Unusable(reason)) => {
                tracing::error!(what, reason, "the store cannot be used; waiting for it");
                pause = LONGEST_PAUSE;
            }
            Err(StoreError::Tls { url, reason }) => {
                tracing::error!(
                    what,
                    reason = format!("cannot speak TLS with Redis at {url}: {reason}"),
                    "the store cannot be used; waiting for it"
                );
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
    fn pauses_grow_to_a_bound_and_end_before_the_broker_takes_the_delivery_back() {
        let pauses: Vec<Duration> = Pauses::for_a_delivery().collect();
        assert_eq!(pauses[..3], [20, 40, 80].map(Duration::from_millis));
        assert!(pauses.iter().all(|pause| *pause <= LONGEST_PAUSE));
        let sum: Duration = pauses.iter().sum();
        assert!(sum > HELD - LONGEST_PAUSE && sum <= HELD, "{sum:?}");
    }
}
