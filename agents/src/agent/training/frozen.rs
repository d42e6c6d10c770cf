//! The warm start of a policy that is not trained.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use broker::AgentName;
use broker::protocol::train::TrainCommand;
use trainer::checkpoint::{self, CheckpointStore};
use trainer::model::{Weights, peft};

use super::Training;
use crate::base::log_scope;
use crate::policy::{Prepared, warn_of_other_base};
use crate::run_folder::RunFolder;

impl Training {
    /// Applies the warm start of a policy that is not trained: once in a run. The result is kept as
    /// the run's initial policy.
    pub(super) async fn warm_frozen(&mut self, prepared: &mut Prepared) -> anyhow::Result<()> {
        if self.settings.train.warm_start.is_none() {
            return Ok(());
        }
        let kept = self.agent.folder.initial(&self.agent.name);
        // Leftovers of a start that was cut off.
        remove(&warming(&kept))?;
        if !kept.is_dir() {
            self.refuse_in_mid_run(&kept)?;
            self.worker = Some(self.worker(self.trainer(prepared)?)?);
            self.warm_start(prepared).await?;
            // No engine receives these weights; publishing rejects them if they have diverged.
            self.publish().await?;
            self.keep_warm(&kept).await?;
            if let Some(worker) = self.worker.take() {
                // The trainer's memory is freed before an engine takes its own.
                log_scope::spawn_blocking(move || worker.end()).await??;
            }
        }
        let sound = checkpoint::sound(&kept).context("reading the warm start's model")?;
        let warm = if let Some(base) = &prepared.base {
            warn_of_other_base(&sound.folder, &prepared.shape, base, &prepared.folder)?;
            peft::load(&sound.folder, &prepared.shape)?.1
        } else {
            Weights::load(&prepared.shape, &sound.folder)?
        };
        prepared.renew(warm);
        Ok(())
    }

    /// Rejects a warm start in mid-run: the other agents have trained with this partner as it was.
    /// Either the warm start's result is gone, or the run began under a release that skipped it.
    fn refuse_in_mid_run(&self, kept: &Path) -> anyhow::Result<()> {
        let (folder, name) = (&self.agent.folder, &self.agent.name);
        let others = self.agent.config.agents.keys().filter(|other| *other != name);
        let mut steps = others.map(|other| (other, step(folder, other)));
        if let Some((other, steps)) = steps.find(|(_, step)| *step > 0) {
            bail!(
                "there is no {}, the warm start's model of agent {name}, and agent {other} has made {steps} steps: restore it, \
                 or begin a new run. Continue a run of a release that skipped the warm start of frozen agents with that release",
                kept.display()
            );
        }
        Ok(())
    }

    /// Keeps the warm start's model of a policy that is never trained, and removes the trainer's
    /// other files.
    async fn keep_warm(&mut self, kept: &Path) -> anyhow::Result<()> {
        let root = warming(kept);
        let path = root.display().to_string();
        let meta = serde_json::json!({}).to_string();
        let saved = self.execute(|seq| TrainCommand::SaveState { seq, path, meta }).await;
        saved.context("writing the warm start's model")?;
        let newest = CheckpointStore::new(&root, 1).latest()?;
        checkpoint::keep_model(&newest.folder, kept).context("keeping the warm start's model")?;
        std::fs::remove_dir_all(&root).with_context(|| format!("removing {}", root.display()))
    }
}

/// The step of an agent's newest checkpoint, 0 without a checkpoint.
fn step(folder: &RunFolder, agent: &AgentName) -> u64 {
    let newest = CheckpointStore::new(&folder.checkpoints(agent), 1).latest();
    newest.map_or(0, |newest| newest.manifest.step)
}

/// The folder that the trainer of a warm start writes to before its model is `kept`.
fn warming(kept: &Path) -> PathBuf {
    kept.with_extension("warm")
}

/// Removes a folder if it exists.
fn remove(folder: &Path) -> anyhow::Result<()> {
    if !folder.exists() {
        return Ok(());
    }
    std::fs::remove_dir_all(folder).with_context(|| format!("removing {}", folder.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run_folder::tests::config_in;

    #[test]
    fn an_agent_without_a_checkpoint_has_made_no_step() {
        let base = tempfile::tempdir().unwrap();
        let folder = RunFolder::create(base.path(), &config_in(base.path()), None).unwrap();
        let (a, b) = (AgentName::new("a").unwrap(), AgentName::new("b").unwrap());
        for saved in [0, 7] {
            let mut store = CheckpointStore::new(&folder.checkpoints(&a), 1);
            store.save(saved, "digest", |_| Ok(())).unwrap();
            assert_eq!((step(&folder, &a), step(&folder, &b)), (saved, 0));
        }
    }

    #[test]
    fn leftovers_of_an_interrupted_start_are_removed() {
        let base = tempfile::tempdir().unwrap();
        let left = warming(&base.path().join("patient"));
        remove(&left).unwrap();
        std::fs::create_dir_all(left.join("step-0")).unwrap();
        remove(&left).unwrap();
        assert!(!left.exists() && base.path().join("patient.warm") == left);
    }
}
