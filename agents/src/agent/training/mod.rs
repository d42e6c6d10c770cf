//! Training: closed groups become batches, batches become weights, weights go to the engine.
//!
//! The order that makes a crash harmless: the step is raised, the batch's verdicts are recorded, the weights move, they are
//! published, and now and then a checkpoint makes it all permanent. After a restart the trainer goes on from the newest
//! checkpoint in a new lineage, and the batches that were recorded after it are trained again first, in their order.
//!
//! [`begin`] restores or begins, [`frozen`] warms what is not trained, [`foreign`] drives engines that are other people's servers,
//! [`former`] says what is trained next, [`step`] trains it, [`save`] makes it permanent.

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
use super::due::Waiting;
use super::holds;
use super::past_opponent::Renewing;
use super::worker::Worker;
use crate::engine::EngineClient;
use crate::run_folder::metrics::{Metrics, MetricsWriter};
use former::Former;
use refused::Refused;

/// The training side of an agent.
pub struct Training {
    agent: Arc<Agent>,
    settings: AgentConfig,
    /// None for a frozen policy.
    worker: Option<Worker>,
    /// Of a policy that trains.
    engine: Option<Arc<dyn EngineClient>>,
    version: WeightVersion,
    former: Former,
    /// Weights that the engine did not take.
    refused: Refused,
    /// Of a policy that plays with another's past.
    renewing: Renewing,
    seq: u64,
    /// Step of the newest checkpoint.
    saved: Option<u64>,
    metrics: MetricsWriter,
    alarms: Alarms,
    /// Of the lead, where it waits for evaluations.
    waiting: Option<Waiting>,
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

    /// Trains the batches again that a restart cut off.
    pub async fn catch_up(&mut self) -> anyhow::Result<()> {
        while self.former.replays() {
            self.step().await?;
        }
        Ok(())
    }

    /// Trains until the run is closed, then writes the last checkpoint and waits for the others.
    pub async fn run(mut self) -> anyhow::Result<()> {
        if self.agent.ledger.state().await?.phase == RunPhase::Closed {
            tracing::info!("this run was closed before");
            self.agent.closing.notify_one();
        }
        if self.worker.is_some() {
            let mut changed = self.agent.changed.subscribe();
            let mut wanted = self.agent.wanted.subscribe();
            let mut asked = self.agent.holds.subscribe();
            let mut due = self.agent.due.subscribe();
            loop {
                let until = self.train_what_may_be().await?;
                tokio::select! {
                    changes = changed.changed() => changes?,
                    refused = self.refused.wait(self.version) => self.publish_again(refused?).await?,
                    asked = wanted.changed() => {
                        asked?;
                        let name = wanted.borrow_and_update().clone();
                        self.snapshot(name).await?;
                    }
                    told = asked.changed() => told?,
                    told = due.changed() => told?,
                    () = holds::over(until) => {}
                    () = self.agent.closing.notified() => break,
                }
            }
            // The run is closed: nobody evaluates any more.
            self.keep_holds(Vec::new());
            while self.step().await? {}
            self.last_batch().await?;
            self.end().await?;
        } else {
            self.stand_by().await?;
        }
        self.agent.close(self.version).await
    }

    /// Trains batches until there is none, or none may be begun; then keeps the holds that stand, and answers when the first of them, or the
    /// wait for an evaluation, is over. Whatever was begun is published by then: this task does one thing after the other.
    async fn train_what_may_be(&mut self) -> anyhow::Result<Option<tokio::time::Instant>> {
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

    /// Until when no batch is begun at this step, since an evaluation is due.
    fn waits_until(&mut self, now: tokio::time::Instant) -> Option<tokio::time::Instant> {
        let phase = self.agent.status.borrow().run.phase;
        let due = self.agent.due.borrow();
        self.waiting.as_mut()?.until(phase, self.version.step, &due, now)
    }

    /// As [`holds::keep`], before the next batch begins.
    fn keep_holds(&self, names: Vec<String>) {
        let first = names.first().cloned();
        if !holds::keep(&self.agent.status, self.engine.as_deref(), names) {
            return;
        }
        let (agent, step) = (&self.agent.name, self.version.step);
        match first {
            Some(hold) => {
                tracing::info!(%agent, step, hold, "holding: no batch is begun until an evaluation is over")
            }
            None => tracing::info!(%agent, step, "holding no longer"),
        }
    }

    /// Waits until the run is closed, or weights of the past cannot be renewed any more. Engines that refuse weights which nobody will
    /// replace ask for them again by themselves; they may refuse them a few times.
    async fn stand_by(&mut self) -> anyhow::Result<()> {
        loop {
            tokio::select! {
                refused = self.refused.wait(self.version) => { refused?; }
                error = self.renewing.failed() => return Err(error),
                () = self.agent.closing.notified() => return Ok(()),
            }
        }
    }

    /// Sends the newest weights again after a pause; later ones make up for those that were refused before.
    async fn publish_again(&mut self, pause: std::time::Duration) -> anyhow::Result<()> {
        // To processes its driver announces them again.
        if self.settings.engine.kind == EngineKind::Dyad {
            return Ok(());
        }
        tokio::time::sleep(pause).await;
        self.publish().await
    }

    /// The lead agent trains so many batches and no more.
    fn has_done_all(&self) -> bool {
        let run = &self.agent.config;
        run.lead() == Some(&self.agent.name) && self.version.step >= run.run.train_steps
    }

    /// What is left when the run ends is less than a batch, or nothing that the lead agent may still train on.
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

    /// Trains one batch if there is one.
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
