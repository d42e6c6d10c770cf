//! A frozen agent that plays with another's past: takes that agent's checkpoints as they appear, keeps the newest few as models of its
//! own, and serves the one that is drawn.
//!
//! In a synchronous run the coordinator begins no round before the weights of the other agent's step are served
//! (`coordinator::gate`), and that agent makes no step meanwhile: what is played follows from the seed. In an asynchronous one they
//! come when they come, and a checkpoint that went before it was taken is passed over.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use broker::ids::WeightVersion;
use broker::protocol::control::RunPhase;
use configs::Mode;
use tokio::time::Instant;
use trainer::checkpoint::{self, CheckpointStore};
use trainer::model::{ModelShape, Weights, peft};
use trainer::weights::WeightSink;

use super::Agent;
use super::policy::Prepared;
use crate::engine::EngineClient;
use crate::past::Past;

/// Between two looks at the other agent's step and checkpoints.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// An engine that serves other weights for so long has refused them.
const REFUSED_AFTER: Duration = Duration::from_secs(5);
/// Between two words about one that waits.
const TELL_EVERY: Duration = Duration::from_secs(10);

/// Serves the first weights, as soon as the other agent has written a checkpoint, and goes on renewing until the run is closed.
///
/// # Errors
/// Checkpoints that cannot be read or kept.
pub(super) async fn start(
    agent: Arc<Agent>,
    past: Past,
    prepared: &Prepared,
    engine: Arc<dyn EngineClient>,
    sinks: Vec<Box<dyn WeightSink>>,
) -> anyhow::Result<()> {
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
    let mut told = Instant::now();
    loop {
        let (back, renewed) = look(renewer, None).await?;
        renewer = back;
        if renewed? {
            break;
        }
        if told.elapsed() >= TELL_EVERY {
            told = Instant::now();
            tracing::info!(
                of = %renewer.past.config.of,
                folder = %renewer.from.display(),
                "waiting for the first checkpoint of the agent whose past this is"
            );
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    tokio::spawn(follow(agent, engine, renewer));
    Ok(())
}

/// Looks once, off the threads that messages are handled on. `step` is the other agent's, None: that of its newest checkpoint.
async fn look(mut renewer: Renewer, step: Option<u64>) -> anyhow::Result<(Renewer, anyhow::Result<bool>)> {
    let looked = tokio::task::spawn_blocking(move || {
        let renewed = renewer.renew(step);
        (renewer, renewed)
    });
    looked.await.context("renewing weights")
}

/// Renews as the other agent's heartbeats say that it is time.
async fn follow(agent: Arc<Agent>, engine: Arc<dyn EngineClient>, mut renewer: Renewer) {
    let mut published = Instant::now();
    let mut complained: Option<Instant> = None;
    while agent.status.borrow().phase != RunPhase::Closed {
        tokio::time::sleep(LOOK_EVERY).await;
        let serves = *engine.versions().borrow();
        if renewer.served.is_some_and(|(_, version)| version != serves) && published.elapsed() >= REFUSED_AFTER {
            renewer.served = None;
        }
        let Some(step) = agent.step_of(&renewer.past.config.of) else {
            continue;
        };
        if !renewer.is_due(step) {
            continue;
        }
        let (back, renewed) = match look(renewer, Some(step)).await {
            Ok(looked) => looked,
            Err(error) => {
                tracing::error!(%error, "the weights of this agent are renewed no more");
                return;
            }
        };
        renewer = back;
        match renewed {
            Ok(true) => published = Instant::now(),
            // Its checkpoint is still to be written.
            Ok(false) => {}
            Err(error) if complained.is_none_or(|at| at.elapsed() >= TELL_EVERY) => {
                complained = Some(Instant::now());
                tracing::warn!(
                    error = format!("{error:#}"),
                    "the weights of this agent could not be renewed; trying again"
                );
            }
            Err(_) => {}
        }
    }
}

struct Renewer {
    past: Past,
    /// The other agent's checkpoints.
    from: PathBuf,
    /// Models that were kept of them: `step-N/`.
    pool: PathBuf,
    shape: ModelShape,
    /// Checkpoints are adapters.
    adapter: bool,
    /// Nothing but what was drawn will do.
    strict: bool,
    sinks: Vec<Box<dyn WeightSink>>,
    /// The newest renewal, and what it was published as.
    served: Option<(u64, WeightVersion)>,
}

impl Renewer {
    fn is_due(&self, step: u64) -> bool {
        let renewal = self.past.config.renewal(step);
        // After a restart the other agent may say less than it said before: those batches are trained again.
        self.served.is_none_or(|(newest, _)| renewal > newest)
    }

    /// Serves what is drawn at this step of the other agent; `false` while its checkpoint is not there. Blocking.
    fn renew(&mut self, step: Option<u64>) -> anyhow::Result<bool> {
        // What is kept was seen before: the other agent will be there again.
        let Some(step) = step.or_else(|| newest(&self.from).max(kept(&self.pool).into_iter().max())) else {
            return Ok(false);
        };
        let renewal = self.past.config.renewal(step);
        if !self.keep(self.past.config.step(renewal))? {
            return Ok(false);
        }
        let taken = self.choose(self.past.drawn(renewal))?;
        let weights = self.read(&self.kept(taken))?;
        let version = self.past.version(renewal, taken);
        for sink in &mut self.sinks {
            sink.publish(&weights, version)?;
        }
        self.served = Some((renewal, version));
        tracing::info!(of = %self.past.config.of, renewal, step = taken, "plays with weights of the past");
        self.forget(self.past.config.step(self.past.config.earliest(renewal)));
        Ok(true)
    }

    /// Keeps the model of the other agent's checkpoint of this step, or of a later one where that is gone; `false` while it is still to
    /// be written.
    fn keep(&self, step: u64) -> anyhow::Result<bool> {
        if self.kept(step).is_dir() {
            return Ok(true);
        }
        let found = CheckpointStore::new(&self.from, 1).list()?;
        let wanted = found.iter().find(|checkpoint| checkpoint.manifest.step == step);
        let later = found.iter().filter(|checkpoint| checkpoint.manifest.step > step);
        let Some(found) = wanted.or_else(|| later.min_by_key(|checkpoint| checkpoint.manifest.step)) else {
            return Ok(false);
        };
        let target = self.kept(found.manifest.step);
        if !target.is_dir() {
            std::fs::create_dir_all(&self.pool).with_context(|| format!("making {}", self.pool.display()))?;
            checkpoint::keep_model(&found.folder, &target)
                .with_context(|| format!("keeping {} as {}", found.folder.display(), target.display()))?;
        }
        Ok(true)
    }

    /// The step whose weights are taken where those of `drawn` are wanted: the same, or of what is kept the nearest before it, else
    /// the earliest.
    fn choose(&self, drawn: u64) -> anyhow::Result<u64> {
        let kept = kept(&self.pool);
        if kept.contains(&drawn) {
            return Ok(drawn);
        }
        if self.strict {
            bail!(
                "{} is gone: the weights of step {drawn} of agent {}, which this run draws next; bring it back, or begin a new run",
                self.kept(drawn).display(),
                self.past.config.of
            );
        }
        let before = kept.iter().filter(|step| **step < drawn).max();
        before
            .or_else(|| kept.iter().min())
            .copied()
            .context("no weights of the past are kept")
    }

    fn read(&self, folder: &Path) -> anyhow::Result<Weights> {
        let sound = checkpoint::sound(folder).with_context(|| format!("reading {}", folder.display()))?;
        let weights = if self.adapter {
            peft::load(&sound.folder, &self.shape)?.1
        } else {
            Weights::load(&self.shape, &sound.folder)?
        };
        Ok(weights)
    }

    /// Removes what no later renewal may draw.
    fn forget(&self, earliest: u64) {
        for step in kept(&self.pool).into_iter().filter(|step| *step < earliest) {
            let folder = self.kept(step);
            if let Err(error) = std::fs::remove_dir_all(&folder) {
                tracing::warn!(%error, folder = %folder.display(), "weights that are not drawn any more stay");
            }
        }
    }

    fn kept(&self, step: u64) -> PathBuf {
        self.pool.join(format!("step-{step}"))
    }
}

/// The step of the newest checkpoint in `root`, if there is one.
fn newest(root: &Path) -> Option<u64> {
    let latest = CheckpointStore::new(root, 1).latest().ok()?;
    Some(latest.manifest.step)
}

/// Steps of the models in a pool.
fn kept(pool: &Path) -> Vec<u64> {
    let entries = std::fs::read_dir(pool).into_iter().flatten().flatten();
    let step = |name: std::ffi::OsString| name.to_str()?.strip_prefix("step-")?.parse().ok();
    entries.filter_map(|entry| step(entry.file_name())).collect()
}

#[cfg(test)]
#[path = "renewing_tests.rs"]
mod tests;
