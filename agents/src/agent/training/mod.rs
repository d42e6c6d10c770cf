//! Training: closed groups become batches, batches become weights, weights go to the engine.
//!
//! The order makes a crash harmless: raise the step, record the batch's verdicts, change the
//! weights, publish them. At intervals a checkpoint makes all of this permanent. After a restart
//! the trainer continues from the newest checkpoint in a new lineage. It first trains again the
//! batches that were recorded after that checkpoint, in their order.
//!
//! [`begin`] restores a checkpoint ([`resume`]) or begins with the first weights, in a trainer that
//! [`build`] makes. [`frozen`] applies the warm start of a policy that is not trained. [`foreign`]
//! connects SGLang's or vLLM's servers. [`former`] forms the next batch, [`step`] trains it,
//! [`step_times`] accounts for its time, [`recorded`] writes its part in recorded tokens,
//! [`traced`] describes its trace, and [`save`] makes its weights permanent. [`refused`] limits how
//! often rejected weights are sent again. [`ranks`] starts and watches the trainer's further
//! processes, and [`external`] a program that trains instead.

mod begin;
mod build;
mod external;
mod foreign;
mod former;
mod frozen;
mod objective;
pub mod ranks;
mod recorded;
mod refused;
mod resume;
mod save;
mod step;
pub(super) mod step_times;
mod traced;

use std::sync::Arc;
use std::time::{Duration, Instant};

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
use former::BatchFormer;
use refused::Refused;
use step_times::{StepPart, StepTimes};

/// The time in which a trainer must end.
const ENDING: Duration = Duration::from_secs(30);

/// The training side of an agent.
pub struct Training {
    agent: Arc<Agent>,
    settings: AgentConfig,
    /// The trainer's thread; `None` for a frozen policy.
    worker: Option<TrainerThread>,
    /// The engine, which is pinned during holds; `None` for a frozen policy.
    engine: Option<Arc<dyn EngineClient>>,
    /// The version of the newest weights.
    version: WeightVersion,
    former: BatchFormer,
    /// Counts the engine's rejections of weights.
    refused: Refused,
    /// Set for a policy that plays with another agent's past weights.
    renewing: Renewing,
    /// The number of the last command to the trainer.
    seq: u64,
    /// The step of the newest checkpoint.
    saved: Option<u64>,
    metrics: MetricsWriter,
    alarms: Alarms,
    /// True once a batch of the run had anything to learn.
    has_learned: bool,
    times: StepTimes,
    /// Set for the lead agent if it waits for evaluations.
    waiting: Option<EvaluationWait>,
}

impl Training {
    fn next_seq(&mut self) -> u64 {
        self.seq += 1;
        self.seq
    }

    pub(super) async fn execute(&mut self, command: impl FnOnce(u64) -> TrainCommand) -> anyhow::Result<TrainReply> {
        let command = command(self.next_seq());
        let worker = self
            .worker
            .as_ref()
            .context("this agent does not train, so it can run no trainer command")?;
        let (part, began) = (StepPart::of(&command), Instant::now());
        let reply = worker.execute(command).await;
        if let Some(part) = part {
            self.times.add(part, began.elapsed());
        }
        reply
    }

    /// Returns true if recorded batches are to be trained again.
    pub fn replays(&self) -> bool {
        self.former.replays()
    }

    /// Trains recorded batches again, because a restart lost the weights that they led to.
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
            tracing::info!("the run is already closed");
            self.agent.closing.notify_one();
        }
        if self.worker.is_some() {
            let mut ledger_changes = self.agent.changed.subscribe();
            let mut snapshots = self.agent.wanted.subscribe();
            let mut hold_changes = self.agent.holds.subscribe();
            let mut due_changes = self.agent.due.subscribe();
            loop {
                let until = self.train_ready_batches().await?;
                tokio::select! {
                    changed = ledger_changes.changed() => changed?,
                    refused = self.refused.wait(self.version) => self.publish_again(refused?).await?,
                    changed = snapshots.changed() => {
                        changed?;
                        let name = snapshots.borrow_and_update().clone();
                        self.snapshot(name).await?;
                    }
                    changed = hold_changes.changed() => changed?,
                    changed = due_changes.changed() => changed?,
                    () = holds::over(until) => {}
                    () = self.agent.closing.notified() => break,
                }
            }
            // A closed run has no more evaluations, so holds have no purpose now.
            self.keep_holds(Vec::new());
            while self.step().await? {}
            self.last_batch().await?;
            self.end().await?;
            self.end_trainer().await?;
        } else {
            self.stand_by().await?;
        }
        self.agent.close(self.version).await
    }

    /// Ends the trainer, so that its ranks leave together. Ranks on other hosts would report this
    /// process as lost if it ended first.
    async fn end_trainer(&mut self) -> anyhow::Result<()> {
        let Some(worker) = self.worker.take() else {
            return Ok(());
        };
        match tokio::time::timeout(ENDING, worker.end()).await {
            Ok(ended) => ended,
            Err(_) => {
                tracing::warn!(
                    "the trainer did not end within {ENDING:?}: its other ranks may report this process as lost"
                );
                Ok(())
            }
        }
    }

    /// Trains batches until none is ready or none may begin, then keeps the holds that coordinators
    /// ask for. Returns the time at which the first hold or the wait for an evaluation ends.
    ///
    /// The agent confirms a hold only after it has published the last batch, because this task does
    /// one thing at a time.
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

    /// Returns the time until which no batch may begin, because an evaluation is due at this step.
    fn waits_until(&mut self, now: tokio::time::Instant) -> Option<tokio::time::Instant> {
        let phase = self.agent.status.borrow().run.phase;
        let due = self.agent.due.borrow();
        self.waiting.as_mut()?.until(phase, self.version.step, &due, now)
    }

    /// Keeps exactly these holds, and logs if holding begins or ends. Must be called without holds
    /// before a batch begins: then the heartbeat confirms none.
    fn keep_holds(&self, names: Vec<String>) {
        let first = names.first().cloned();
        if !holds::keep(&self.agent.status, self.engine.as_deref(), names) {
            return;
        }
        let (agent, step) = (&self.agent.name, self.version.step);
        match first {
            Some(hold) => {
                tracing::debug!(%agent, step, hold, "holding: no batch begins until the evaluation ends")
            }
            None => tracing::debug!(%agent, step, "the hold has ended: batches may begin"),
        }
    }

    /// Waits until the run of a frozen agent is closed. Fails if past weights cannot be renewed any
    /// more, or if the engine rejected the same weights too often. Rejected weights are not sent
    /// again from here: the engine's driver or [`Renewing`] does it.
    async fn stand_by(&mut self) -> anyhow::Result<()> {
        loop {
            tokio::select! {
                refused = self.refused.wait(self.version) => { refused?; }
                error = self.renewing.failed() => return Err(error),
                () = self.agent.closing.notified() => return Ok(()),
            }
        }
    }

    /// Sends the newest weights again after a pause, because the engine rejected them.
    async fn publish_again(&mut self, pause: std::time::Duration) -> anyhow::Result<()> {
        // The driver of an engine process announces rejected weights again by itself.
        if self.settings.engine.kind == EngineKind::Dyad {
            return Ok(());
        }
        tokio::time::sleep(pause).await;
        self.publish().await
    }

    /// Returns true if this is the lead agent and it has trained `run.train_steps` batches.
    fn has_trained_all_steps(&self) -> bool {
        let run = &self.agent.config;
        run.lead() == Some(&self.agent.name) && self.version.step >= run.run.train_steps
    }

    /// Trains on the groups that are left at the run's end, or discards them. They are too few for
    /// a batch, or the lead agent has already trained all its steps.
    async fn last_batch(&mut self) -> anyhow::Result<()> {
        let train = self.agent.config.run.last_batch == LastBatch::Train && !self.has_trained_all_steps();
        if train && let Some((bundles, batch)) = self.former.rest(&self.agent.ledger, self.version).await? {
            tracing::info!(groups = batch.groups.len(), "training a last batch with fewer groups");
            self.train(&bundles, batch, Instant::now()).await?;
        }
        let (lineage, next) = (self.version.lineage, self.version.step + 1);
        let samples = self.agent.ledger.discard_ready(lineage, next, "run_ended").await?;
        if samples > 0 {
            tracing::info!(samples, "discarded the samples that were left: the run has ended");
            let line = Metrics::new("discarded", self.version.step).with("agent", self.agent.name.as_str());
            self.metrics.write(line.with("discarded/run_ended", samples));
        }
        Ok(())
    }

    /// Trains one batch if enough groups are ready. Returns true if it trained one.
    async fn step(&mut self) -> anyhow::Result<bool> {
        if self.has_trained_all_steps() {
            return Ok(false);
        }
        self.times.count_next(!self.former.replays());
        let Some((bundles, batch)) = self.former.next(&self.agent.ledger, self.version).await? else {
            return Ok(false);
        };
        let began = Instant::now();
        self.train(&bundles, batch, began).await?;
        Ok(true)
    }

    /// Writes the last checkpoint and metrics.
    async fn end(&mut self) -> anyhow::Result<()> {
        self.checkpoint().await?;
        self.metrics.flush();
        Ok(())
    }
}
