//! The warm start of a frozen agent: imitation before the run, and no training afterwards.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use broker::protocol::train::TrainCommand;
use trainer::checkpoint::{self, CheckpointStore};
use trainer::model::{Weights, peft};

use super::Training;
use super::build::trainer;
use crate::policy::{Prepared, warn_of_other_base};

impl Training {
    /// Gives a frozen agent the weights of its warm start, if it has one. The run's first start
    /// trains them and keeps them as the agent's initial policy; later starts load them.
    pub(super) async fn warm_frozen(&mut self, prepared: &mut Prepared) -> anyhow::Result<()> {
        if self.settings.train.warm_start.is_none() {
            return Ok(());
        }
        let kept = self.agent.folder.initial(&self.agent.name);
        // An interrupted warm start leaves this folder.
        remove_if_exists(&work_folder(&kept))?;
        if !kept.is_dir() {
            self.refuse_in_mid_run(&kept)?;
            let trainer = trainer(prepared, None)?;
            let pulse = trainer.pulse();
            self.worker = Some(self.worker(Box::new(trainer), pulse)?);
            self.warm_start(prepared).await?;
            // No engine receives these weights yet. Publishing fails if they have diverged.
            self.publish().await?;
            self.keep_warm(&kept).await?;
            if let Some(worker) = self.worker.take() {
                // Frees the trainer's memory before an engine allocates its own.
                worker.end().await?;
            }
        }
        let verified = checkpoint::sound(&kept).context("reading the warm start's model")?;
        let warm = if let Some(base) = &prepared.base {
            warn_of_other_base(&verified.folder, &prepared.shape, base, &prepared.folder)?;
            peft::load(&verified.folder, &prepared.shape)?.1
        } else {
            Weights::load(&prepared.shape, &verified.folder)?
        };
        prepared.renew(warm);
        Ok(())
    }

    /// Rejects a warm start if another agent has already trained, since it trained with other
    /// weights of this agent. Either the kept model was removed, or an older release without this
    /// warm start began the run.
    fn refuse_in_mid_run(&self, kept: &Path) -> anyhow::Result<()> {
        let (folder, name) = (&self.agent.folder, &self.agent.name);
        let others = self.agent.config.agents.keys().filter(|other| *other != name);
        let mut newest_steps = others.map(|other| (other, folder.newest_step(other)));
        if let Some((other, steps)) = newest_steps.find(|(_, step)| *step > 0) {
            bail!(
                "the warm start's model of agent {name} is missing: there is no {}. Agent {other} has already made \
                 {steps} steps in this run: restore the folder, or begin a new run. If an older release began this run \
                 and skipped the warm start of frozen agents, continue the run with that release",
                kept.display()
            );
        }
        Ok(())
    }

    /// Saves the warm start's model as `kept`, and removes the trainer's other files.
    async fn keep_warm(&mut self, kept: &Path) -> anyhow::Result<()> {
        let root = work_folder(kept);
        let path = root.display().to_string();
        let meta = serde_json::json!({}).to_string();
        let saved = self.execute(|seq| TrainCommand::SaveState { seq, path, meta }).await;
        saved.context("writing the warm start's model")?;
        let newest = CheckpointStore::new(&root, 1).latest()?;
        checkpoint::keep_model(&newest.folder, kept).context("keeping the warm start's model")?;
        std::fs::remove_dir_all(&root).with_context(|| format!("removing {}", root.display()))
    }
}

/// The folder that the trainer writes to during the warm start, next to the model's folder `kept`.
fn work_folder(kept: &Path) -> PathBuf {
    kept.with_extension("warm")
}

/// Removes a folder if it exists.
fn remove_if_exists(folder: &Path) -> anyhow::Result<()> {
    if !folder.exists() {
        return Ok(());
    }
    std::fs::remove_dir_all(folder).with_context(|| format!("removing {}", folder.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_of_an_interrupted_start_is_removed() {
        let base = tempfile::tempdir().unwrap();
        let left = work_folder(&base.path().join("patient"));
        remove_if_exists(&left).unwrap();
        std::fs::create_dir_all(left.join("step-0")).unwrap();
        remove_if_exists(&left).unwrap();
        assert!(!left.exists() && base.path().join("patient.warm") == left);
    }
}
