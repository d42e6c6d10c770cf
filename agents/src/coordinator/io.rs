//! What the coordinator does that takes time: every function retries until it knows, and reports back to the actor.

use std::sync::Arc;
use std::time::Duration;

use broker::bus::{Bus, Outgoing, PublishError};
use broker::store::StoreError;

/// Pause between tries, doubled up to a bound.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

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
            answer => return answer,
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}
