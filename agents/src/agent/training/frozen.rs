//! The warm start of a policy that is not trained.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use broker::AgentName;
use broker::protocol::train::TrainCommand;
use trainer::checkpoint::{self, CheckpointStore};
use trainer::model::{Weights, peft};

use super::Training;
use crate::policy::{Prepared, warn_of_other_base};
use crate::run_folder::RunFolder;

impl Training {
    /// Gives a policy that is not trained what its warm start makes of it: once in a run, and kept as the policy that the run began
    /// with.
    pub(super) async fn warm_frozen(&mut self, prepared: &mut Prepared) -> anyhow::Result<()> {
        if self.settings.train.warm_start.is_none() {
            return Ok(());
        }
        let kept = self.agent.folder.initial(&self.agent.name);
        // What a start that was cut off has left.
        remove(&warming(&kept))?;
        if !kept.is_dir() {
            self.refuse_in_mid_run(&kept)?;
            self.worker = Some(self.worker(self.trainer(prepared)?)?);
            self.warm_start(prepared).await?;
            // To nobody: it is refused where it has diverged.
            self.publish().await?;
            self.keep_warm(&kept).await?;
            if let Some(worker) = self.worker.take() {
                // Its memory is given back before an engine takes its own.
                tokio::task::spawn_blocking(move || worker.end()).await??;
            }
        }
        let sound = checkpoint::sound(&kept).context("reading what the warm start made")?;
        let warm = if let Some(base) = &prepared.base {
            warn_of_other_base(&sound.folder, &prepared.shape, base, &prepared.folder)?;
            peft::load(&sound.folder, &prepared.shape)?.1
        } else {
            Weights::load(&prepared.shape, &sound.folder)?
        };
        prepared.renew(warm);
        Ok(())
    }

    /// Others have trained with this partner as it was: it changes no more. What its warm start made is gone, or the run is of a release
    /// that skipped it.
    fn refuse_in_mid_run(&self, kept: &Path) -> anyhow::Result<()> {
        let (folder, name) = (&self.agent.folder, &self.agent.name);
        let others = self.agent.config.agents.keys().filter(|other| *other != name);
        let mut steps = others.map(|other| (other, step(folder, other)));
        if let Some((other, steps)) = steps.find(|(_, step)| *step > 0) {
            bail!(
                "there is no {}, which the warm start of agent {name} made, and agent {other} has made {steps} steps: bring it back, or \
                 begin a new run. A run of a release that skipped the warm start of agents that are not trained goes on with that release",
                kept.display()
            );
        }
        Ok(())
    }

    /// Keeps what the warm start of a policy that is never trained made of it; nothing else of the trainer stays.
    async fn keep_warm(&mut self, kept: &Path) -> anyhow::Result<()> {
        let root = warming(kept);
        let path = root.display().to_string();
        let meta = serde_json::json!({}).to_string();
        let saved = self.execute(|seq| TrainCommand::SaveState { seq, path, meta }).await;
        saved.context("writing what the warm start made")?;
        let newest = CheckpointStore::new(&root, 1).latest()?;
        checkpoint::keep_model(&newest.folder, kept).context("keeping what the warm start made")?;
        std::fs::remove_dir_all(&root).with_context(|| format!("removing {}", root.display()))
    }
}

/// The step of an agent's newest checkpoint, 0 without one.
fn step(folder: &RunFolder, agent: &AgentName) -> u64 {
    let newest = CheckpointStore::new(&folder.checkpoints(agent), 1).latest();
    newest.map_or(0, |newest| newest.manifest.step)
}

/// Where the trainer of a warm start writes before its model is `kept`.
fn warming(kept: &Path) -> PathBuf {
    kept.with_extension("warm")
}

/// Removes a folder that need not be there.
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
    fn what_a_start_that_was_cut_off_has_left_is_removed() {
        let base = tempfile::tempdir().unwrap();
        let left = warming(&base.path().join("patient"));
        remove(&left).unwrap();
        std::fs::create_dir_all(left.join("step-0")).unwrap();
        remove(&left).unwrap();
        assert!(!left.exists() && base.path().join("patient.warm") == left);
    }
}
