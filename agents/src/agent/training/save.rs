//! Writes checkpoints, and removes the payloads that they make superfluous.

use std::path::Path;

use anyhow::Context;
use broker::ids::WeightVersion;
use broker::protocol::control::Saved;
use broker::protocol::train::{TrainCommand, TrainReply};
use trainer::checkpoint::{self, CheckpointStore, TrainerState};

use super::Training;
use crate::run_folder::metrics::Metrics;

impl Training {
    pub(super) async fn checkpoint(&mut self) -> anyhow::Result<()> {
        if self.saved == Some(self.version.step) {
            return Ok(());
        }
        let root = self.agent.folder.checkpoints(&self.agent.name);
        let path = root.display().to_string();
        let consumed = self.agent.ledger.consumed(self.version).await?;
        let meta = serde_json::json!({ "deterministic": { "consumed": consumed.digest } }).to_string();
        let saved = self.execute(|seq| TrainCommand::SaveState { seq, path, meta }).await;
        let reply = saved.context("writing a checkpoint")?;
        self.saved = Some(self.version.step);
        if let TrainReply::Saved { digest } = reply {
            tracing::info!(step = self.version.step, digest, "checkpoint");
            let line = Metrics::new("checkpoint", self.version.step).with("agent", self.agent.name.as_str());
            self.metrics.write(line.with("digest", digest));
        }
        self.prune(&root).await
    }

    /// Keeps the run's initial policy. No later checkpoint has it, and after a warm start it cannot
    /// be computed again. Without a warm start it follows from the configuration.
    pub(super) fn keep_initial(&self) -> anyhow::Result<()> {
        let kept = self.agent.folder.initial(&self.agent.name);
        if self.version.step > 0 || self.settings.train.warm_start.is_none() || kept.is_dir() {
            return Ok(());
        }
        let root = self.agent.folder.checkpoints(&self.agent.name);
        let first = CheckpointStore::new(&root, self.settings.train.keep_checkpoints).latest()?;
        checkpoint::keep_model(&first.folder, &kept).context("keeping the run's initial policy")
    }

    /// Writes this agent's part of a joint snapshot: the newest checkpoint, which is at this step,
    /// and its place in the ledger.
    pub(super) async fn snapshot(&mut self, name: Option<String>) -> anyhow::Result<()> {
        let Some(name) = name else { return Ok(()) };
        self.checkpoint().await?;
        let root = self.agent.folder.checkpoints(&self.agent.name);
        let newest = CheckpointStore::new(&root, self.settings.train.keep_checkpoints).latest()?;
        let state = TrainerState::read(&newest.folder)?;
        let version = version_of(&state).context("the checkpoint does not say which version it holds")?;
        let consumed = self.agent.ledger.consumed(version).await?;
        let saved = Saved {
            snapshot: name,
            lineage: version.lineage,
            step: version.step,
            digest: newest.manifest.digest,
            sequence: consumed.sequence,
            consumed: consumed.digest.to_string(),
        };
        self.agent.status.send_modify(|status| status.saved = Some(saved));
        Ok(())
    }

    /// Removes payloads that no retained checkpoint can need again.
    async fn prune(&self, root: &Path) -> anyhow::Result<()> {
        let retained = CheckpointStore::new(root, self.settings.train.keep_checkpoints).list()?;
        let versions: Vec<WeightVersion> = retained
            .iter()
            .filter_map(|checkpoint| version_of(&TrainerState::read(&checkpoint.folder).ok()?))
            .collect();
        if versions.len() == retained.len() {
            self.agent.ledger.prune(versions).await?;
        }
        Ok(())
    }
}

/// The version that a checkpoint holds.
pub(super) fn version_of(state: &TrainerState) -> Option<WeightVersion> {
    state.version.map(|(lineage, step)| WeightVersion { lineage, step })
}
