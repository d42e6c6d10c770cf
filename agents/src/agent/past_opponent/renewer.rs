//! Copies the models of another agent's checkpoints as they appear, and serves the drawn model.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use broker::ids::WeightVersion;
use trainer::checkpoint::{self, CheckpointError, CheckpointStore};
use trainer::model::{ModelShape, Weights, peft};
use trainer::weights::WeightSink;

use crate::turn::past::Past;

/// An agent's pool of another agent's past weights.
pub(crate) struct Renewer {
    pub(crate) past: Past,
    /// The folder of the other agent's checkpoints.
    pub(crate) from: PathBuf,
    /// The folder of the kept models: `step-N/`.
    pub(crate) pool: PathBuf,
    pub(crate) shape: ModelShape,
    /// True if the checkpoints are adapters.
    pub(crate) adapter: bool,
    /// True if only the drawn weights may be served.
    pub(crate) strict: bool,
    pub(crate) sinks: Vec<Box<dyn WeightSink>>,
    /// The newest renewal, and the version under which its weights were published.
    pub(crate) served: Option<(u64, WeightVersion)>,
}

impl Renewer {
    pub(crate) fn is_due(&self, step: u64) -> bool {
        let renewal = self.past.config.renewal(step);
        // After a restart the other agent may report a lower step than before, because it trains
        // those batches again. Only a later renewal is therefore due.
        self.served.is_none_or(|(newest, _)| renewal > newest)
    }

    /// Serves the weights drawn at this step of the other agent. `None` stands for the highest step
    /// with a checkpoint or a kept model. Returns `false` while the checkpoint to keep is missing.
    /// Blocking.
    pub(crate) fn renew(&mut self, step: Option<u64>) -> anyhow::Result<bool> {
        // A kept model proves that the other agent has reached its step. After a restart from an
        // earlier step, that agent will reach it again.
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

    /// Copies the model of the other agent's checkpoint of this step into the pool. If this
    /// checkpoint is gone, copies the model of the next later one. Returns `false` while neither is
    /// written. A damaged copy is made again.
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

    /// Returns true if an undamaged model of this step is kept. Removes a damaged one.
    fn is_kept(&self, step: u64) -> anyhow::Result<bool> {
        let folder = self.kept(step);
        if !folder.is_dir() {
            return Ok(false);
        }
        match checkpoint::sound(&folder) {
            Ok(_) => Ok(true),
            // The folder stays: if it cannot be read now, it may be readable later.
            Err(error @ CheckpointError::Io { .. }) => Err(error.into()),
            Err(error) => {
                tracing::warn!(%error, "past weights are damaged: they are removed, and copied again if their checkpoint still exists");
                std::fs::remove_dir_all(&folder).with_context(|| format!("removing {}", folder.display()))?;
                Ok(false)
            }
        }
    }

    /// Returns the step to serve for `drawn`, and its weights. [`Self::choose`] replaces a step
    /// that is not kept.
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

    /// Returns true if the other agent has a checkpoint of exactly this step.
    fn saved(&self, step: u64) -> anyhow::Result<bool> {
        let found = CheckpointStore::new(&self.from, 1).list()?;
        Ok(found.iter().any(|checkpoint| checkpoint.manifest.step == step))
    }

    /// Returns the step to serve for `drawn`: `drawn` itself if it is kept, else the nearest kept
    /// step before it, else the earliest kept step. If `strict`, a `drawn` that is not kept is an
    /// error.
    fn choose(&self, drawn: u64) -> anyhow::Result<u64> {
        let kept = kept(&self.pool);
        if kept.contains(&drawn) {
            return Ok(drawn);
        }
        if self.strict {
            bail!(
                "{} is gone or was damaged: it holds the weights of step {drawn} of agent {}, which this run draws next; \
                 restore it, or begin a new run",
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

    /// Reads the weights in a folder. The caller has just verified its files.
    fn read(&self, folder: &Path) -> anyhow::Result<Weights> {
        let weights = if self.adapter {
            peft::load(folder, &self.shape)?.1
        } else {
            Weights::load(&self.shape, folder)?
        };
        Ok(weights)
    }

    /// Removes the models that no later renewal may draw.
    fn forget(&self, earliest: u64) {
        for step in kept(&self.pool).into_iter().filter(|step| *step < earliest) {
            let folder = self.kept(step);
            if let Err(error) = std::fs::remove_dir_all(&folder) {
                tracing::warn!(%error, folder = %folder.display(), "old weights could not be removed; remove the folder by hand");
            }
        }
    }

    fn kept(&self, step: u64) -> PathBuf {
        self.pool.join(format!("step-{step}"))
    }
}

/// Returns the step of the newest checkpoint in `root`, or `None` without a readable one.
fn newest(root: &Path) -> Option<u64> {
    let latest = CheckpointStore::new(root, 1).latest().ok()?;
    Some(latest.manifest.step)
}

/// Returns the steps of the models in a pool.
fn kept(pool: &Path) -> Vec<u64> {
    let entries = std::fs::read_dir(pool).into_iter().flatten().flatten();
    let step = |name: std::ffi::OsString| name.to_str()?.strip_prefix("step-")?.parse().ok();
    entries.filter_map(|entry| step(entry.file_name())).collect()
}

#[cfg(test)]
mod tests;
