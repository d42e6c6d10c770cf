//! Training: closed groups become batches, batches become weights, weights go to the engine.
//!
//! The order makes a crash harmless. The step is raised, the batch's verdicts are recorded, the
//! weights move and are published, and from time to time a checkpoint makes all of it permanent.
//! After a restart the trainer continues from the newest checkpoint in a new lineage. The batches
//! that were recorded after that checkpoint are trained again first, in their order.
//!
//! [`begin`] restores or begins, [`frozen`] warms policies that are not trained, [`foreign`] drives
//! external engine servers, [`former`] forms the next batch, [`step`] trains it, [`save`] makes it
//! permanent.

mod begin;
mod foreign;
mod former;
mod frozen;
mod objective;
mod refused;
mod save;
mod step;

use std::sync::Arc;
use std::time::Instant;

use anyhow::Context;
use broker::ids::WeightVersion;
use broker::protocol::control::RunPhase;
use broker::protocol::train::{TrainCommand, TrainReply};
use configs::{AgentConfig, EngineKind, LastBatch};

use super::Agent;
use super::alarms::Alarms;
use super::due::EvaluationWait;
use super::holds;
use super::past_opponent::Renewing;
use super::trainer_thread::TrainerThread;
use crate::engine::EngineClient;
use crate::run_folder::metrics::{Metrics, MetricsWriter};
use former::Former;
use refused::Refused;

/// The training side of an agent.
pub struct Training {
    agent: Arc<Agent>,
    settings: AgentConfig,
    /// `None` for a frozen policy.
    worker: Option<TrainerThread>,
    /// Set for a policy that trains.
    engine: Option<Arc<dyn EngineClient>>,
    version: WeightVersion,
    former: Former,
    /// Weights that the engine rejected.
    refused: Refused,
    /// Set for a policy that plays with another agent's past weights.
    renewing: Renewing,
    seq: u64,
    /// The step of the newest checkpoint.
    saved: Option<u64>,
    metrics: MetricsWriter,
    alarms: Alarms,
    /// The end of the batch before, for the time that the trainer waits.
    idle_since: Instant,
    /// Set for the lead agent where it waits for evaluations.
    waiting: Option<EvaluationWait>,
}

impl Training {
    fn next_seq(&mut self) -> u64 {
        self.seq += 1;
        self.seq
    }

    pub(super) async fn execute(&mut self, command: impl FnOnce(u64) -> TrainCommand) -> anyhow::Result<TrainReply> {
        let seq = self.next_seq();
        let worker = self.worker.as_ref().context("this agent does not train")?;
        worker.execute(command(seq)).await
    }

    /// Trains the batches that a restart cut off again.
    pub async fn catch_up(&mut self) -> anyhow::Result<()> {
        while self.former.replays() {
            self.step().await?;
        }
        Ok(())
    }

    /// Trains until the run is closed, then writes the last checkpoint and waits for the other
    /// agents.
    pub async fn run(mut self) -> anyhow::Result<()> {
        if self.agent.ledger.state().await?.phase == RunPhase::Closed {
            tracing::info!("this run is closed already");
            self.agent.closing.notify_one();
        }
        if self.worker.is_some() {
            let mut changed = self.agent.changed.subscribe();
            let mut wanted = self.agent.wanted.subscribe();
            let mut asked = self.agent.holds.subscribe();
            let mut due = self.agent.due.subscribe();
            loop {
                let until = self.train_ready_batches().await?;
                tokio::select! {
                    changes = changed.changed() => changes?,
                    refused = self.refused.wait(self.version) => self.publish_again(refused?).await?,
                    asked = wanted.changed() => {
                        asked?;
                        let name = wanted.borrow_and_update().clone();
                        self.snapshot(name).await?;
                    }
                    changed = asked.changed() => changed?,
                    changed = due.changed() => changed?,
                    () = holds::over(until) => {}
                    () = self.agent.closing.notified() => break,
                }
            }
            // The run is closed: no coordinator evaluates any more.
            self.keep_holds(Vec::new());
            while self.step().await? {}
            self.last_batch().await?;
            self.end().await?;
        } else {
            self.stand_by().await?;
        }
        self.agent.close(self.version).await
    }

    /// Trains batches until none is ready or none may begin, then keeps the standing holds. Returns
    /// when the first hold, or the wait for an evaluation, ends. Every begun batch is published by
    /// then, because this task does one thing at a time.
    async fn train_ready_batches(&mut self) -> anyhow::Result<Option<tokio::time::Instant>> {
        loop {
            let now = tokio::time::Instant::now();
            let (asked, until) = self.agent.holds.borrow().at(now);
            let waits = self.waits_until(now);
            let begins = {
                let status = self.agent.status.borrow();
                holds::may_begin(status.run.phase, &status.holding, &asked)
            };
            if begins && waits.is_none() {
                self.keep_holds(Vec::new());
                if self.step().await? {
                    continue;
                }
            }
            self.keep_holds(asked);
            return Ok(until.into_iter().chain(waits).min());
        }
    }

    /// Until when no batch is begun at this step, because an evaluation is due.
    fn waits_until(&mut self, now: tokio::time::Instant) -> Option<tokio::time::Instant> {
        let phase = self.agent.status.borrow().run.phase;
        let due = self.agent.due.borrow();
        self.waiting.as_mut()?.until(phase, self.version.step, &due, now)
    }

    /// Calls [`holds::keep`] before the next batch begins.
    fn keep_holds(&self, names: Vec<String>) {
        let first = names.first().cloned();
        if !holds::keep(&self.agent.status, self.engine.as_deref(), names) {
            return;
        }
        let (agent, step) = (&self.agent.name, self.version.step);
        match first {
            Some(hold) => {
                tracing::debug!(%agent, step, hold, "holding: no batch is begun until an evaluation is over")
            }
            None => tracing::debug!(%agent, step, "holding no longer"),
        }
    }

    /// Waits until the run is closed, or past weights cannot be renewed any more. Engines that
    /// reject weights without a successor ask for them again by themselves, a few times at most.
    async fn stand_by(&mut self) -> anyhow::Result<()> {
        loop {
            tokio::select! {
                refused = self.refused.wait(self.version) => { refused?; }
                error = self.renewing.failed() => return Err(error),
                () = self.agent.closing.notified() => return Ok(()),
            }
        }
    }

    /// Sends the newest weights again after a pause; later weights replace those that were rejected
    /// before.
    async fn publish_again(&mut self, pause: std::time::Duration) -> anyhow::Result<()> {
        // An engine process's driver announces the weights again itself.
        if self.settings.engine.kind == EngineKind::Dyad {
            return Ok(());
        }
        tokio::time::sleep(pause).await;
        self.publish().await
    }

    /// Returns true if this is the lead agent and it has trained `run.train_steps` batches.
    fn has_done_all(&self) -> bool {
        let run = &self.agent.config;
        run.lead() == Some(&self.agent.name) && self.version.step >= run.run.train_steps
    }

    /// Handles the rest at the run's end: less than a batch, or groups that the lead agent may no
    /// longer train on.
    async fn last_batch(&mut self) -> anyhow::Result<()> {
        let train = self.agent.config.run.last_batch == LastBatch::Train && !self.has_done_all();
        if train && let Some((bundles, batch)) = self.former.rest(&self.agent.ledger, self.version).await? {
            tracing::info!(groups = batch.groups.len(), "training the last short batch");
            self.train(&bundles, batch, Instant::now()).await?;
        }
        let (lineage, next) = (self.version.lineage, self.version.step + 1);
        let samples = self.agent.ledger.discard_ready(lineage, next, "run_ended").await?;
        if samples > 0 {
            tracing::info!(samples, "discarded: the run has ended");
            let line = Metrics::new("discarded", self.version.step).with("agent", self.agent.name.as_str());
            self.metrics.write(line.with("discarded/run_ended", samples));
        }
        Ok(())
    }

    /// Trains one batch if one is ready.
    async fn step(&mut self) -> anyhow::Result<bool> {
        if self.has_done_all() {
            return Ok(false);
        }
        let Some((bundles, batch)) = self.former.next(&self.agent.ledger, self.version).await? else {
            return Ok(false);
        };
        let began = Instant::now();
        self.train(&bundles, batch, began).await?;
        Ok(true)
    }

    async fn end(&mut self) -> anyhow::Result<()> {
        self.checkpoint().await?;
        self.metrics.flush();
        Ok(())
    }
}
