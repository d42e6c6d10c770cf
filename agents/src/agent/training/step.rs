//! One batch: verdicts, optimizer steps, new weights.

use std::time::Instant;

use anyhow::{Context, bail, ensure};
use broker::ids::WeightVersion;
use broker::protocol::bundle::Bundle;
use broker::protocol::train::{ForwardWeights, Loss, LossStats, OptimStep, TrainBatch, TrainCommand, TrainReply};
use configs::{Advantage, Dtype, LossKind, OptimizerConfig, Ratio};
use rollout::batch::Batch;
use trainer::train::{Refusal, TrainError};

use super::Training;
use super::objective;
use super::step_times::StepPart;
use super::traced;
use crate::agent::figures::BatchOutcome;
use crate::agent::observed::TrainedBatch;
use crate::agent::{alarms, broken, figures};
use crate::base::fault::Usage;
use crate::base::log_scope;
use crate::ledger;

/// The largest |ratio - 1| allowed for tokens that the trainer's own weights and cache sampled. An
/// f32 sampler and trainer agree to rounding.
const RATIO_GAP: f64 = 1e-4;

/// Rewards with a smaller standard deviation are equal, up to rounding.
const EQUAL: f64 = 1e-5;

impl Training {
    pub(super) async fn train(&mut self, bundles: &[Bundle], batch: Batch, began: Instant) -> anyhow::Result<()> {
        self.times.begin(began);
        let next = WeightVersion {
            step: self.version.step + 1,
            ..self.version
        };
        // Every agent must see the new step before the batch's groups make room: see the heartbeat.
        self.agent.status.send_modify(|status| {
            status.step = next.step;
            status.reward = batch.stats.reward.mean.get();
        });
        let (verdicts, recording) = (self.former.verdicts(&batch), Instant::now());
        self.agent
            .ledger
            .record_batch(next.lineage, next.step, verdicts)
            .await?;
        self.times.add(StepPart::Ledger, recording.elapsed());
        broker::fail::point("verdict.recorded");
        self.agent.ledger_changed();
        let outcome = self.optimise(&batch).await?;
        self.version = next;
        broker::fail::point("step.taken");
        self.publish().await?;
        broker::fail::point("weights.published");
        let is_idle = self.is_idle(&batch);
        self.report(bundles, &batch, &outcome, began, is_idle);
        self.count_idle(bundles, &batch, is_idle).await?;
        let every = self.settings.train.checkpoint_every;
        if every > 0 && next.step.is_multiple_of(every) {
            let began = Instant::now();
            self.checkpoint().await?;
            self.times.add(StepPart::Checkpoint, began.elapsed());
        }
        Ok(())
    }

    async fn optimise(&mut self, batch: &Batch) -> anyhow::Result<BatchOutcome> {
        let loss = &self.settings.train.loss;
        // Cross-entropy uses no ratio.
        let decoupled = loss.ratio == Ratio::Decoupled && loss.kind != LossKind::CrossEntropy;
        let mut minibatches = batch.minibatches.clone();
        if decoupled {
            self.set_start_logprobs(&mut minibatches).await?;
        }
        let mut advantage_kl = None;
        if self.settings.train.kl_in_reward() {
            advantage_kl = Some(self.subtract_kl(&mut minibatches).await?);
        }
        let config = &self.settings.train;
        let steps = self.agent.config.steps_of(&self.agent.name);
        if objective::outlasts(config, self.version.step, steps) {
            tracing::warn!(
                agent = %self.agent.name,
                "this agent has made all {steps} steps of its schedule and keeps the schedule's last value, because the \
                 lead plays in fewer groups; set optimizer.decay_steps"
            );
        }
        let loss = objective::loss(config, self.version.step, steps);
        let optimizer = config.optimizer;
        let lr = trainer::schedule::learning_rate(&optimizer, self.version.step, steps);
        let mut outcome = BatchOutcome {
            lr,
            advantage_kl,
            ..BatchOutcome::default()
        };
        for ((update, minibatch), answers) in (1..).zip(minibatches).zip(&batch.answers) {
            self.record_tokens((&minibatch, update), answers, &loss).await?;
            let stats = self.forward_backward(minibatch, loss).await?;
            let (grad_norm, skipped) = self.optim_step(&optimizer, lr).await?;
            outcome.add(&stats, grad_norm, skipped);
        }
        let own = !self.settings.engine.kind.is_foreign();
        if own && self.settings.dtype == Dtype::F32 && outcome.on_policy_gap > RATIO_GAP {
            tracing::warn!(
                gap = outcome.on_policy_gap,
                step = self.version.step,
                "sampler and trainer disagree on-policy"
            );
        }
        Ok(outcome)
    }

    /// Gives every step of the batch the log-probs of the current weights, before the first step
    /// moves them.
    async fn set_start_logprobs(&mut self, minibatches: &mut [TrainBatch]) -> anyhow::Result<()> {
        for minibatch in minibatches {
            let logprobs = self.logprobs(minibatch.clone(), ForwardWeights::Trained).await?;
            ensure!(
                minibatch.begin_from(logprobs),
                "the trainer's log-probs do not match the batch"
            );
        }
        Ok(())
    }

    /// Subtracts the KL to the reference from the advantages, token by token; returns its mean per
    /// token.
    async fn subtract_kl(&mut self, minibatches: &mut [TrainBatch]) -> anyhow::Result<f64> {
        let mut reference = Vec::with_capacity(minibatches.len());
        for minibatch in minibatches.iter() {
            reference.push(self.logprobs(minibatch.clone(), ForwardWeights::Reference).await?);
        }
        let kl = self.settings.train.kl;
        let mean = trainer::loss::kl_returns(minibatches, &reference, trainer::loss::estimate(kl.kind), kl.coef);
        mean.context("the reference's log-probs do not match the batch")
    }

    pub(super) async fn logprobs(
        &mut self,
        batch: TrainBatch,
        weights: ForwardWeights,
    ) -> anyhow::Result<Vec<Vec<f32>>> {
        match self
            .execute(|seq| TrainCommand::Forward { seq, batch, weights })
            .await?
        {
            TrainReply::LogProbs(logprobs) => Ok(logprobs),
            other => bail!("the trainer answered a forward pass with {other:?}"),
        }
    }

    /// Returns true if nothing can be learned from the batch: its rewards are equal where they are
    /// compared, or no token is trained.
    fn is_idle(&self, batch: &Batch) -> bool {
        let (train, stats) = (&self.settings.train, &batch.stats);
        let is_equal = match train.advantage {
            // Cross-entropy compares no rewards.
            _ if train.loss.kind == LossKind::CrossEntropy => false,
            // Compared over the whole batch.
            Advantage::ReinforcePlusPlus => stats.reward.std().is_none_or(|std| std < EQUAL),
            _ => stats.zero_share() >= 1.0,
        };
        is_equal || stats.trained_tokens == 0
    }

    /// Counts the groups of own tasks from which nothing can be learned, until the agent learns
    /// from a batch for the first time.
    async fn count_idle(&mut self, bundles: &[Bundle], batch: &Batch, is_idle: bool) -> anyhow::Result<()> {
        self.alarms.count_idle(&self.agent.name, self.version.step, is_idle);
        if self.has_learned {
            return Ok(());
        }
        if !is_idle {
            self.has_learned = true;
            let version = self.version.to_string();
            self.agent.ledger.set_note(ledger::LEARNED, version).await?;
        }
        let is_own = bundles.iter().all(|bundle| bundle.order < ledger::PUBLISHED);
        let groups = if is_own {
            batch.stats.groups + batch.stats.refilled
        } else {
            0
        };
        self.agent.status.send_modify(|status| {
            status.idle_groups = if is_idle { status.idle_groups + groups as u64 } else { 0 };
        });
        Ok(())
    }

    fn report(&mut self, bundles: &[Bundle], batch: &Batch, outcome: &BatchOutcome, began: Instant, is_idle: bool) {
        let entropy = outcome.stats.entropy / outcome.stats.tokens.max(1.0);
        let alarms = alarms::raised(
            &self.settings.train.alarms,
            &alarms::BatchFigures::of(&batch.stats, entropy),
        );
        self.alarms.log_changes(&self.agent.name, self.version.step, &alarms);
        let mut line = figures::train_line(&self.agent, self.version, bundles, batch, outcome, began)
            .with("collapse/alarms", alarms.len())
            .with("collapse/idle", u64::from(is_idle));
        figures::log_batch(self.version.step, batch, outcome, self.times.wait(), began.elapsed());
        let times = self.times.end(Instant::now());
        for (name, seconds) in &times {
            line.set(name, *seconds);
        }
        self.metrics.write(line);
        if self.agent.traces.is_on() {
            let trained = traced::trained_step(
                &self.agent.name,
                self.version,
                (batch, outcome),
                &times,
                began.elapsed(),
            );
            self.agent.traces.send_batch(&trained);
        }
        if let Some(series) = self.agent.observer.series() {
            let trained = TrainedBatch {
                agent: self.agent.name.as_str(),
                batch,
                outcome,
                watched: &self.settings.train.alarms,
                alarms: &alarms,
                times: &times,
                median: self.times.median(),
                ledger: &self.agent.folder.ledger(&self.agent.name),
            };
            trained.show(series);
        }
    }

    pub(super) async fn forward_backward(&mut self, batch: TrainBatch, loss: Loss) -> anyhow::Result<LossStats> {
        match self
            .execute(|seq| TrainCommand::ForwardBackward { seq, batch, loss })
            .await?
        {
            TrainReply::Loss(stats) => Ok(stats),
            other => bail!("the trainer answered a loss with {other:?}"),
        }
    }

    pub(super) async fn optim_step(&mut self, optimizer: &OptimizerConfig, lr: f64) -> anyhow::Result<(f64, bool)> {
        let params = OptimStep {
            lr,
            beta1: optimizer.beta1,
            beta2: optimizer.beta2,
            eps: optimizer.eps,
            weight_decay: optimizer.weight_decay,
            clip_norm: optimizer.clip_norm,
        };
        match self.execute(|seq| TrainCommand::OptimStep { seq, params }).await? {
            TrainReply::Step { grad_norm, skipped } => Ok((grad_norm, skipped)),
            other => bail!("the trainer answered a step with {other:?}"),
        }
    }

    pub(super) async fn publish(&mut self) -> anyhow::Result<()> {
        let version = self.version;
        self.time_swap();
        let published = self.execute(|seq| TrainCommand::Publish { seq, version }).await;
        match published {
            Err(error) if has_diverged(&error) => {
                let agent = &self.agent.name;
                // Before the first step only the warm start can have moved the weights.
                let (what, advice) = match version.step {
                    0 => ("warm start", broken::lower_warm_start(agent)),
                    _ => ("training", broken::advice(agent)),
                };
                // Restarted from its checkpoint it would diverge again: no supervisor may restart
                // it.
                Err(Usage::new(format!("agent {agent}: its {what} has diverged: {error}"))
                    .hint(advice)
                    .into())
            }
            published => published.map(|_| ()),
        }
    }
}

impl Training {
    /// Measures how long the engine takes to serve the weights that are published now.
    fn time_swap(&self) {
        let (Some(series), Some(engine)) = (self.agent.observer.series(), &self.engine) else {
            return;
        };
        let swaps = series.training.swap.of([self.agent.name.as_str()]);
        let (mut served, version, begun) = (engine.versions(), self.version, Instant::now());
        log_scope::spawn(async move {
            if served.wait_for(|serves| *serves >= version).await.is_ok() {
                swaps.observe(begun.elapsed().as_secs_f64());
            }
        });
    }
}

/// Returns true if the trainer published nothing because its weights are not finite.
fn has_diverged(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<TrainError>();
    matches!(
        error,
        Some(TrainError::User {
            reason: Refusal::NotFinite { .. },
            ..
        })
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_weights_that_are_not_finite_count_as_diverged() {
        let refused = |reason| anyhow::Error::from(TrainError::User { seq: 7, reason });
        let tensor = "lm_head.weight".to_owned();
        let version = WeightVersion { lineage: 1, step: 5 };
        assert!(has_diverged(&refused(Refusal::NotFinite { version, tensor })));
        assert!(!has_diverged(&refused(Refusal::PendingGradient)));
        assert!(!has_diverged(&anyhow::anyhow!("the trainer's thread has ended")));
    }
}
