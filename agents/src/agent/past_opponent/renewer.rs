//! Models of another agent's checkpoints, kept as they appear, and the one of them that is served.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use broker::ids::WeightVersion;
use trainer::checkpoint::{self, CheckpointError, CheckpointStore};
use trainer::model::{ModelShape, Weights, peft};
use trainer::weights::WeightSink;

use crate::turn::past::Past;

/// An agent's pool of another's past.
pub(crate) struct Renewer {
    pub(crate) past: Past,
    /// The other agent's checkpoints.
    pub(crate) from: PathBuf,
    /// Models that were kept of them: `step-N/`.
    pub(crate) pool: PathBuf,
    pub(crate) shape: ModelShape,
    /// Checkpoints are adapters.
    pub(crate) adapter: bool,
    /// Nothing but what was drawn will do.
    pub(crate) strict: bool,
    pub(crate) sinks: Vec<Box<dyn WeightSink>>,
    /// The newest renewal, and what it was published as.
    pub(crate) served: Option<(u64, WeightVersion)>,
}

impl Renewer {
    pub(crate) fn is_due(&self, step: u64) -> bool {
        let renewal = self.past.config.renewal(step);
        // After a restart the other agent may say less than it said before: those batches are trained again.
        self.served.is_none_or(|(newest, _)| renewal > newest)
    }

    /// Serves what is drawn at this step of the other agent; `false` while its checkpoint is not there. Blocking.
    pub(crate) fn renew(&mut self, step: Option<u64>) -> anyhow::Result<bool> {
        // What is kept was seen before: the other agent will be there again.
        let Some(step) = step.or_else(|| newest(&self.from).max(kept(&self.pool).into_iter().max())) else {
            return Ok(false);
        };
        let renewal = self.past.config.renewal(step);
        if !self.keep(self.past.config.step(renewal))? {
            return Ok(false);
        }
        let (taken, weights) = self.take(self.past.drawn(renewal))?;
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
    /// be written. A kept one that is damaged is taken again.
    fn keep(&self, step: u64) -> anyhow::Result<bool> {
        if self.is_kept(step)? {
            return Ok(true);
        }
        let found = CheckpointStore::new(&self.from, 1).list()?;
        let wanted = found.iter().find(|checkpoint| checkpoint.manifest.step == step);
        let later = found.iter().filter(|checkpoint| checkpoint.manifest.step > step);
        let Some(found) = wanted.or_else(|| later.min_by_key(|checkpoint| checkpoint.manifest.step)) else {
            return Ok(false);
        };
        let step = found.manifest.step;
        if !self.is_kept(step)? {
            let target = self.kept(step);
            std::fs::create_dir_all(&self.pool).with_context(|| format!("making {}", self.pool.display()))?;
            checkpoint::keep_model(&found.folder, &target)
                .with_context(|| format!("keeping {} as {}", found.folder.display(), target.display()))?;
        }
        Ok(true)
    }

    /// Whether a sound model of this step is kept; a damaged one is removed.
    fn is_kept(&self, step: u64) -> anyhow::Result<bool> {
        let folder = self.kept(step);
        if !folder.is_dir() {
            return Ok(false);
        }
        match checkpoint::sound(&folder) {
            Ok(_) => Ok(true),
            // What cannot be read now may be read later.
            Err(error @ CheckpointError::Io { .. }) => Err(error.into()),
            Err(error) => {
                tracing::warn!(%error, "weights of the past are damaged: they are removed, and taken again where their checkpoint is there");
                std::fs::remove_dir_all(&folder).with_context(|| format!("removing {}", folder.display()))?;
                Ok(false)
            }
        }
    }

    /// The weights of the step that is drawn, or of the one in its place, and their step.
    fn take(&self, drawn: u64) -> anyhow::Result<(u64, Weights)> {
        loop {
            if !self.is_kept(drawn)? && self.saved(drawn)? {
                self.keep(drawn)?;
            }
            let taken = self.choose(drawn)?;
            if taken == drawn || self.is_kept(taken)? {
                return Ok((taken, self.read(&self.kept(taken))?));
            }
        }
    }

    /// Whether the other agent has its checkpoint of this very step.
    fn saved(&self, step: u64) -> anyhow::Result<bool> {
        let found = CheckpointStore::new(&self.from, 1).list()?;
        Ok(found.iter().any(|checkpoint| checkpoint.manifest.step == step))
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
                "{} is gone, or was damaged: the weights of step {drawn} of agent {}, which this run draws next; bring it back, or begin a new \
                 run",
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

    /// Of a folder whose files were just verified.
    fn read(&self, folder: &Path) -> anyhow::Result<Weights> {
        let weights = if self.adapter {
            peft::load(folder, &self.shape)?.1
        } else {
            Weights::load(&self.shape, folder)?
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
mod tests;
