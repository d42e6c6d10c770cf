//! Weights that the engine rejected: they are sent again a few times. Then the process ends,
//! because it would serve old weights for ever.

use std::time::Duration;

use anyhow::bail;
use broker::ids::WeightVersion;
use tokio::sync::watch;

use crate::engine::WeightRefusal;

/// The number of tries for one version.
const TRIES: u32 = 5;
const FIRST_PAUSE: Duration = Duration::from_millis(200);

/// Follows the engine's rejections.
#[derive(Default)]
pub(super) struct Refused {
    refusals: Option<watch::Receiver<Option<WeightRefusal>>>,
    /// The number of engines; each reports its own rejection.
    engines: u32,
    version: WeightVersion,
    times: u32,
}

impl Refused {
    pub(super) fn new(refusals: watch::Receiver<Option<WeightRefusal>>, engines: usize) -> Self {
        Self {
            refusals: Some(refusals),
            engines: u32::try_from(engines).unwrap_or(1),
            ..Self::default()
        }
    }

    /// Waits until weights are rejected that no version later than `newest` has replaced; returns
    /// the pause before they are sent again. Safe to cancel.
    ///
    /// # Errors
    /// Fails if the same weights were rejected too often.
    pub(super) async fn wait(&mut self, newest: WeightVersion) -> anyhow::Result<Duration> {
        loop {
            let Some(refusals) = self.refusals.as_mut() else {
                return std::future::pending().await;
            };
            if refusals.changed().await.is_err() {
                // The engine has ended: its next caller finds out.
                self.refusals = None;
                continue;
            }
            let refusal = refusals.borrow_and_update().clone();
            if let Some(refusal) = refusal.filter(|refusal| refusal.version >= newest) {
                return self.count(&refusal);
            }
        }
    }

    fn count(&mut self, refusal: &WeightRefusal) -> anyhow::Result<Duration> {
        let WeightRefusal { version, reason } = refusal;
        self.times = if self.version == *version { self.times + 1 } else { 1 };
        self.version = *version;
        let tries = TRIES.saturating_mul(self.engines);
        if self.times >= tries {
            bail!(
                "the engine refused weights {version} {tries} times, last because: {reason}; it would serve old weights \
                 for ever. Start this agent again: the run continues from the newest checkpoint"
            );
        }
        Ok(FIRST_PAUSE * 2_u32.pow((self.times - 1).min(TRIES)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::version;

    fn refusal(step: u64) -> Option<WeightRefusal> {
        Some(WeightRefusal {
            version: version(step),
            reason: "no memory".into(),
        })
    }

    #[tokio::test]
    async fn rejected_weights_are_sent_again_and_finally_an_error() {
        let (send, refusals) = watch::channel(None);
        let mut refused = Refused::new(refusals, 1);
        let mut pauses = Vec::new();
        for _ in 1..TRIES {
            send.send_replace(refusal(3));
            pauses.push(refused.wait(version(3)).await.unwrap());
        }
        assert!(pauses.is_sorted() && pauses[0] < pauses[3], "{pauses:?}");
        send.send_replace(refusal(3));
        let error = refused.wait(version(3)).await.unwrap_err().to_string();
        assert!(error.contains("1.3") && error.contains("no memory"), "{error}");
    }

    #[tokio::test]
    async fn later_weights_replace_rejected_ones() {
        let (send, refusals) = watch::channel(None);
        let mut refused = Refused::new(refusals, 1);
        for step in 0..2 * u64::from(TRIES) {
            send.send_replace(refusal(step));
            let pause = refused.wait(version(step)).await;
            assert_eq!(pause.unwrap(), FIRST_PAUSE, "each version counts for itself");
        }
        send.send_replace(refusal(3));
        let next = refused.wait(version(30));
        assert!(
            tokio::time::timeout(Duration::from_millis(20), next).await.is_err(),
            "older weights are not missed"
        );
    }
}
