//! A frozen agent that plays with another agent's past weights. It copies that agent's checkpoints
//! as they appear, keeps the newest few as its own models, and serves the one that is drawn.
//!
//! In a synchronous run the coordinator begins no round before the weights of the other agent's
//! step are served (`coordinator::peers::gate`); that agent makes no step meanwhile. The weights
//! therefore follow from the seed. In an asynchronous run they follow when they arrive, and a
//! checkpoint that was removed before it was copied is skipped.
//!
//! While an evaluation is asked for, the agent holds what it serves, like agents that train, once
//! the other agent holds too: then no renewal can become due.
//!
//! [`renewer`] keeps and serves the models, [`patience`] decides on pauses and retries.

mod patience;
mod renewer;

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use broker::ids::WeightVersion;
use broker::protocol::control::RunPhase;
use configs::Mode;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use trainer::weights::WeightSink;

use super::{Agent, holds};
use crate::base::log_scope;
use crate::engine::{EngineClient, WeightRefusal};
use crate::policy::Prepared;
use crate::turn::past::Past;
use patience::{AfterError, LOOK_EVERY, Patience, WaitLog, WaitMessage, next_pause};
use renewer::Renewer;

/// Pause before weights that the engine rejected are read again.
const REFUSED_PAUSE: Duration = Duration::from_secs(1);

/// The task that renews weights while the run goes on.
#[derive(Default)]
pub(super) struct Renewing(Option<JoinHandle<anyhow::Result<()>>>);

impl Renewing {
    /// Waits until the task fails; waits for ever without a past or after the run's end. Safe to
    /// cancel.
    pub(super) async fn failed(&mut self) -> anyhow::Error {
        if let Some(task) = self.0.as_mut() {
            let ended = task.await;
            self.0 = None;
            match ended {
                Ok(Ok(())) => {}
                Ok(Err(error)) => return error,
                Err(error) => return anyhow::Error::new(error).context("renewing weights of the past"),
            }
        }
        std::future::pending().await
    }
}

/// Serves the first weights as soon as the other agent has written a checkpoint, and renews them
/// until the run is closed.
///
/// # Errors
/// Fails if checkpoints cannot be read or kept several times in succession.
pub(super) async fn start(
    agent: Arc<Agent>,
    past: Past,
    prepared: &Prepared,
    engine: Arc<dyn EngineClient>,
    sinks: Vec<Box<dyn WeightSink>>,
) -> anyhow::Result<Renewing> {
    let mut renewer = Renewer {
        from: agent.folder.checkpoints(&past.config.of),
        pool: agent.folder.past(&agent.name),
        shape: prepared.shape.clone(),
        adapter: prepared.base.is_some(),
        strict: agent.config.run.mode == Mode::Sync,
        past,
        sinks,
        served: None,
    };
    let mut follower = Follower {
        agent,
        refusals: engine.refusals(),
        engine,
        pause: LOOK_EVERY,
        patience: Patience::default(),
        waiting: WaitLog::default(),
    };
    loop {
        // No game can be played without weights: a lasting failure ends the agent in either mode.
        renewer = follower.look(renewer, None, true).await?;
        if renewer.served.is_some() {
            break;
        }
        tokio::time::sleep(follower.pause).await;
    }
    Ok(Renewing(Some(log_scope::spawn(follower.follow(renewer)))))
}

/// Follows the other agent's heartbeats, the engine's rejections and the coordinators' holds.
struct Follower {
    agent: Arc<Agent>,
    engine: Arc<dyn EngineClient>,
    refusals: watch::Receiver<Option<WeightRefusal>>,
    /// Pause before the next look.
    pause: Duration,
    patience: Patience,
    waiting: WaitLog,
}

impl Follower {
    /// Renews when the other agent's heartbeats show that a renewal is due.
    async fn follow(mut self, mut renewer: Renewer) -> anyhow::Result<()> {
        while self.agent.status.borrow().phase != RunPhase::Closed {
            tokio::time::sleep(self.pause).await;
            if self.was_refused(renewer.served) {
                renewer.served = None;
                tokio::time::sleep(REFUSED_PAUSE).await;
            }
            let Some((step, holding)) = self.agent.holding_of(&renewer.past.config.of) else {
                continue;
            };
            let due = renewer.is_due(step);
            self.hold(&renewer, due, &holding);
            if due {
                let strict = renewer.strict;
                renewer = self.look(renewer, Some(step), strict).await?;
            } else {
                self.pause = LOOK_EVERY;
            }
        }
        holds::keep(&self.agent.status, Some(&*self.engine), Vec::new());
        Ok(())
    }

    /// Looks once, on a blocking thread, and sets the pause. `step` is the other agent's step;
    /// `None` stands for its newest checkpoint's. If `ends`, repeated failures are an error.
    async fn look(&mut self, mut renewer: Renewer, step: Option<u64>, ends: bool) -> anyhow::Result<Renewer> {
        let looked = log_scope::spawn_blocking(move || {
            let renewed = renewer.renew(step);
            (renewer, renewed)
        });
        let (renewer, renewed) = looked.await.context("renewing weights of the past")?;
        match renewed {
            Ok(true) => {
                self.pause = LOOK_EVERY;
                self.patience.renew();
                self.waiting.over();
            }
            Ok(false) => {
                self.pause = next_pause(renewer.strict, self.pause);
                self.log_waiting(&renewer);
            }
            Err(error) => self.failed(&renewer, error, ends)?,
        }
        Ok(renewer)
    }

    fn log_waiting(&mut self, renewer: &Renewer) {
        let (of, folder) = (&renewer.past.config.of, renewer.from.display());
        match self.waiting.message(Instant::now()) {
            Some(WaitMessage::Soon) => {
                tracing::info!(%of, %folder, "waiting for a checkpoint of the other agent");
            }
            Some(WaitMessage::Long) => tracing::warn!(
                %of,
                %folder,
                "no checkpoint of the other agent has appeared for over a minute: this process must see that agent's run \
                 folder (volume)"
            ),
            None => {}
        }
    }

    /// Logs the error and sets the pause, or returns it if it came too often.
    fn failed(&mut self, renewer: &Renewer, error: anyhow::Error, ends: bool) -> anyhow::Result<()> {
        let reason = format!("{error:#}");
        match self.patience.count(&reason, ends, Instant::now()) {
            AfterError::GiveUp => Err(error.context(format!(
                "renewing the weights of the past of agent {} failed repeatedly: repair the named files (in {} and {}) and start this \
                 agent again; the run continues where it is",
                renewer.past.config.of,
                renewer.from.display(),
                renewer.pool.display()
            ))),
            AfterError::Again { pause, log } => {
                self.pause = pause;
                if log {
                    tracing::warn!(error = reason, "the weights of this agent could not be renewed; trying again");
                }
                Ok(())
            }
        }
    }

    /// Returns true if the engine rejected the weights that were published last. An engine that
    /// drains adopts them late, which is no rejection.
    fn was_refused(&mut self, served: Option<(u64, WeightVersion)>) -> bool {
        if !self.refusals.has_changed().unwrap_or(false) {
            return false;
        }
        let refusal = self.refusals.borrow_and_update().clone();
        let published = served.map(|(_, version)| version);
        refusal.is_some_and(|refusal| published == Some(refusal.version))
    }

    /// Keeps the holds that can be kept now.
    fn hold(&self, renewer: &Renewer, due: bool, other: &[String]) {
        let (standing, _) = self.agent.holds.borrow().at(Instant::now());
        let serves = *self.engine.versions().borrow();
        let ready = !due && renewer.served.is_some_and(|(_, version)| version == serves);
        holds::keep(&self.agent.status, Some(&*self.engine), kept(standing, ready, other));
    }
}

/// Selects the standing holds to keep: none before the due renewal is served, and none that the
/// other agent does not keep yet, because its next step would make another renewal due.
fn kept(standing: Vec<String>, ready: bool, other: &[String]) -> Vec<String> {
    if !ready {
        return Vec::new();
    }
    standing.into_iter().filter(|name| other.contains(name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hold_is_kept_once_due_weights_serve_and_the_other_holds() {
        let names = |names: &[&str]| -> Vec<String> { names.iter().map(|name| (*name).to_owned()).collect() };
        let standing = || names(&["c/1", "d/4"]);
        assert_eq!(kept(standing(), true, &names(&["d/4"])), ["d/4"]);
        assert_eq!(kept(standing(), true, &standing()), standing());
        assert!(kept(standing(), false, &standing()).is_empty(), "a renewal is due");
        assert!(
            kept(standing(), true, &[]).is_empty(),
            "the other agent may still make a step"
        );
        assert!(
            kept(Vec::new(), true, &standing()).is_empty(),
            "no coordinator asks any more"
        );
    }

    #[tokio::test]
    async fn failed_renewing_is_reported_and_the_end_of_a_run_is_not() {
        let of = |task| Renewing(Some(task));
        let failure = of(tokio::spawn(async { Err(anyhow::anyhow!("no room")) }))
            .failed()
            .await;
        assert_eq!(failure.to_string(), "no room");
        let cut = tokio::spawn(std::future::pending());
        cut.abort();
        let broken = of(cut).failed().await;
        assert!(
            format!("{broken:#}").contains("renewing weights of the past"),
            "{broken:#}"
        );
        for mut quiet in [of(tokio::spawn(async { Ok(()) })), Renewing::default()] {
            let waited = tokio::time::timeout(Duration::from_millis(50), quiet.failed()).await;
            assert!(waited.is_err());
        }
    }
}
