//! Weights that the engine did not take: sent again a few times, then the process ends, since it would serve old weights for
//! ever.

use std::time::Duration;

use anyhow::bail;
use broker::ids::WeightVersion;
use tokio::sync::watch;

use crate::engine::WeightRefusal;

/// Tries for one version.
const TRIES: u32 = 5;
const FIRST_PAUSE: Duration = Duration::from_millis(200);

/// Follows what an engine refuses.
#[derive(Default)]
pub(super) struct Refused {
    told: Option<watch::Receiver<Option<WeightRefusal>>>,
    /// Each of them says so when it refuses.
    engines: u32,
    version: WeightVersion,
    times: u32,
}

impl Refused {
    pub(super) fn new(told: watch::Receiver<Option<WeightRefusal>>, engines: usize) -> Self {
        Self {
            told: Some(told),
            engines: u32::try_from(engines).unwrap_or(1),
            ..Self::default()
        }
    }

    /// Waits until weights are refused that none later than `newest` have replaced; answers after what pause to send them
    /// again. Cancelling it loses nothing.
    ///
    /// # Errors
    /// The same weights were refused too often.
    pub(super) async fn wait(&mut self, newest: WeightVersion) -> anyhow::Result<Duration> {
        loop {
            let Some(told) = self.told.as_mut() else {
                return std::future::pending().await;
            };
            if told.changed().await.is_err() {
                // The engine has ended: whoever asks it for something finds out.
                self.told = None;
                continue;
            }
            let refusal = told.borrow_and_update().clone();
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
                "the engine refused weights {version} {tries} times, last because: {reason}; it would serve old weights for \
                 ever. The run goes on from the newest checkpoint when this agent is started again"
            );
        }
        Ok(FIRST_PAUSE * 2_u32.pow((self.times - 1).min(TRIES)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(step: u64) -> WeightVersion {
        WeightVersion { lineage: 1, step }
    }

    fn refusal(step: u64) -> Option<WeightRefusal> {
        Some(WeightRefusal {
            version: version(step),
            reason: "no memory".into(),
        })
    }

    #[tokio::test]
    async fn refused_weights_are_sent_again_and_in_the_end_loudly_given_up() {
        let (tell, told) = watch::channel(None);
        let mut refused = Refused::new(told, 1);
        let mut pauses = Vec::new();
        for _ in 1..TRIES {
            tell.send_replace(refusal(3));
            pauses.push(refused.wait(version(3)).await.unwrap());
        }
        assert!(pauses.is_sorted() && pauses[0] < pauses[3], "{pauses:?}");
        tell.send_replace(refusal(3));
        let error = refused.wait(version(3)).await.unwrap_err().to_string();
        assert!(error.contains("1.3") && error.contains("no memory"), "{error}");
    }

    #[tokio::test]
    async fn later_weights_make_up_for_refused_ones() {
        let (tell, told) = watch::channel(None);
        let mut refused = Refused::new(told, 1);
        for step in 0..2 * u64::from(TRIES) {
            tell.send_replace(refusal(step));
            let pause = refused.wait(version(step)).await;
            assert_eq!(pause.unwrap(), FIRST_PAUSE, "each version counts for itself");
        }
        tell.send_replace(refusal(3));
        let next = refused.wait(version(30));
        assert!(
            tokio::time::timeout(Duration::from_millis(20), next).await.is_err(),
            "older weights are not missed"
        );
    }
}
