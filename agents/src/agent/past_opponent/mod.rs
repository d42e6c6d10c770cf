//! A frozen agent that plays with another's past: takes that agent's checkpoints as they appear, keeps the newest few as models of its
//! own, and serves the one that is drawn.
//!
//! In a synchronous run the coordinator begins no round before the weights of the other agent's step are served
//! (`coordinator::peers::gate`), and that agent makes no step meanwhile: what is played follows from the seed. In an asynchronous one they
//! come when they come, and a checkpoint that went before it was taken is passed over.
//!
//! While an evaluation is asked for, it holds what it serves as agents that train do, once the other agent holds too: then no
//! renewal can become due.
//!
//! [`renewer`] keeps and serves, [`patience`] says how long is waited.

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
use crate::engine::{EngineClient, WeightRefusal};
use crate::policy::Prepared;
use crate::turn::past::Past;
use patience::{LOOK_EVERY, Patience, Verdict, Waiting, Word, next_pause};
use renewer::Renewer;

/// Before weights that the engine refused are read again.
const REFUSED_PAUSE: Duration = Duration::from_secs(1);

/// Renewing, while the run goes on.
#[derive(Default)]
pub(super) struct Renewing(Option<JoinHandle<anyhow::Result<()>>>);

impl Renewing {
    /// Waits until it fails; of an agent without a past, or with its run over, for ever. Cancelling it loses nothing.
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

/// Serves the first weights, as soon as the other agent has written a checkpoint, and goes on renewing until the run is closed.
///
/// # Errors
/// Checkpoints that cannot be read or kept, several times.
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
        waiting: Waiting::default(),
    };
    loop {
        // Without any weights nobody can play: what fails for good ends it in either mode.
        renewer = follower.look(renewer, None, true).await?;
        if renewer.served.is_some() {
            break;
        }
        tokio::time::sleep(follower.pause).await;
    }
    Ok(Renewing(Some(tokio::spawn(follower.follow(renewer)))))
}

/// Follows the other agent's heartbeats, and what the engine and coordinators say.
struct Follower {
    agent: Arc<Agent>,
    engine: Arc<dyn EngineClient>,
    refusals: watch::Receiver<Option<WeightRefusal>>,
    /// Before the next look.
    pause: Duration,
    patience: Patience,
    waiting: Waiting,
}

impl Follower {
    /// Renews as the other agent's heartbeats say that it is time.
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

    /// Looks once, off the threads that messages are handled on, and sets the pause. `step` is the other agent's, None: that of its
    /// newest checkpoint. `ends`: what fails again and again is an error.
    async fn look(&mut self, mut renewer: Renewer, step: Option<u64>, ends: bool) -> anyhow::Result<Renewer> {
        let looked = tokio::task::spawn_blocking(move || {
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
                self.tell_waiting(&renewer);
            }
            Err(error) => self.failed(&renewer, error, ends)?,
        }
        Ok(renewer)
    }

    fn tell_waiting(&mut self, renewer: &Renewer) {
        let (of, folder) = (&renewer.past.config.of, renewer.from.display());
        match self.waiting.word(Instant::now()) {
            Some(Word::Soon) => {
                tracing::info!(%of, %folder, "waiting for a checkpoint of the agent whose past this is");
            }
            Some(Word::Long) => tracing::warn!(
                %of,
                %folder,
                "no checkpoint of the agent whose past this is has come for a minute and more: this process must see the run folder \
                 (volume) of that agent"
            ),
            None => {}
        }
    }

    /// Says what went wrong and how long to wait, or that it is over.
    fn failed(&mut self, renewer: &Renewer, error: anyhow::Error, ends: bool) -> anyhow::Result<()> {
        let reason = format!("{error:#}");
        match self.patience.count(&reason, ends, Instant::now()) {
            Verdict::GiveUp => Err(error.context(format!(
                "renewing the weights of the past of agent {} failed again and again: mend what is named (files are in {} and {}) and \
                 start this agent again; the run goes on where it is",
                renewer.past.config.of,
                renewer.from.display(),
                renewer.pool.display()
            ))),
            Verdict::Again { pause, tell } => {
                self.pause = pause;
                if tell {
                    tracing::warn!(error = reason, "the weights of this agent could not be renewed; trying again");
                }
                Ok(())
            }
        }
    }

    /// Whether the engine has refused what was published last. An engine that drains takes it late, which is none.
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

/// The holds of those that stand that an agent with a past keeps: none before what is due is served, and none that the agent whose past
/// it is does not keep yet, whose next step would make another renewal due.
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
    fn a_hold_is_kept_once_what_is_due_is_served_and_the_other_agent_holds() {
        let names = |names: &[&str]| -> Vec<String> { names.iter().map(|name| (*name).to_owned()).collect() };
        let standing = || names(&["c/1", "d/4"]);
        assert_eq!(kept(standing(), true, &names(&["d/4"])), ["d/4"]);
        assert_eq!(kept(standing(), true, &standing()), standing());
        assert!(kept(standing(), false, &standing()).is_empty(), "a renewal is due");
        assert!(
            kept(standing(), true, &[]).is_empty(),
            "the other agent may still make a step"
        );
        assert!(kept(Vec::new(), true, &standing()).is_empty(), "nobody asks any more");
    }

    #[tokio::test]
    async fn what_ends_renewing_is_told_and_the_end_of_a_run_is_not() {
        let of = |task| Renewing(Some(task));
        let told = of(tokio::spawn(async { Err(anyhow::anyhow!("no room")) }))
            .failed()
            .await;
        assert_eq!(told.to_string(), "no room");
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
