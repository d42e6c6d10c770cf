//! One batch: verdicts, optimizer steps, new weights.

use std::time::Instant;

use anyhow::{bail, ensure};
use broker::ids::WeightVersion;
use broker::protocol::bundle::Bundle;
use broker::protocol::train::{
    Kl, Loss, LossStats, OptimStep, Policy, Surrogate, TrainBatch, TrainCommand, TrainReply,
};
use configs::{Dtype, KlKind, LossKind, OptimizerConfig, Ratio, TrainConfig};
use rollout::batch::Batch;

use super::Training;
use crate::agent::figures;

/// Largest |ratio - 1| of tokens whose weights and cache are the trainer's own: f32 sampler and trainer agree to rounding.
const RATIO_GAP: f64 = 1e-4;

impl Training {
    pub(super) async fn train(&mut self, bundles: &[Bundle], batch: Batch, began: Instant) -> anyhow::Result<()> {
        let next = WeightVersion {
            step: self.version.step + 1,
            ..self.version
        };
        // Everyone sees the new step before the batch's groups make room: see the heartbeat.
        self.agent.status.send_modify(|status| {
            status.step = next.step;
            status.reward = batch.stats.reward.get();
        });
        let verdicts = self.former.verdicts(&batch);
        self.agent
            .ledger
            .record_batch(next.lineage, next.step, verdicts)
            .await?;
        broker::fail::point("verdict.recorded");
        self.agent.ledger_changed();
        let outcome = self.optimise(&batch).await?;
        self.version = next;
        broker::fail::point("step.taken");
        self.publish().await?;
        broker::fail::point("weights.published");
        self.report(bundles, &batch, &outcome, began);
        let every = self.settings.train.checkpoint_every;
        if every > 0 && next.step.is_multiple_of(every) {
            self.checkpoint().await?;
        }
        Ok(())
    }

    async fn optimise(&mut self, batch: &Batch) -> anyhow::Result<Outcome> {
        let decoupled = self.settings.train.loss.ratio == Ratio::Decoupled;
        let mut minibatches = batch.minibatches.clone();
        if decoupled {
            self.begin_from_here(&mut minibatches).await?;
        }
        let config = &self.settings.train;
        let loss = loss(config, self.version.step, self.agent.config.run.train_steps);
        let optimizer = config.optimizer;
        let lr = trainer::schedule::learning_rate(&optimizer, self.version.step, self.agent.config.run.train_steps);
        let mut outcome = Outcome {
            lr,
            ..Outcome::default()
        };
        for minibatch in minibatches {
            let stats = self.forward_backward(minibatch, loss).await?;
            let (grad_norm, skipped) = self.optim_step(&optimizer, lr).await?;
            outcome.add(&stats, grad_norm, skipped);
        }
        if self.settings.dtype == Dtype::F32 && outcome.on_policy_gap > RATIO_GAP {
            tracing::warn!(
                gap = outcome.on_policy_gap,
                step = self.version.step,
                "sampler and trainer disagree on-policy"
            );
        }
        Ok(outcome)
    }

    /// Gives every step of the batch the log-probs of the weights as they are, before the first of them moves.
    async fn begin_from_here(&mut self, minibatches: &mut [TrainBatch]) -> anyhow::Result<()> {
        for minibatch in minibatches {
            let batch = minibatch.clone();
            let reply = self.execute(|seq| TrainCommand::Forward { seq, batch }).await?;
            let TrainReply::LogProbs(logprobs) = reply else {
                bail!("the trainer answered a forward pass with {reply:?}");
            };
            ensure!(
                minibatch.begin_from(logprobs),
                "the trainer's log-probs are not of the batch they were asked for"
            );
        }
        Ok(())
    }

    fn report(&mut self, bundles: &[Bundle], batch: &Batch, outcome: &Outcome, began: Instant) {
        let line = figures::train_line(&self.agent, self.version, bundles, batch, outcome, began);
        tracing::debug!(
            step = self.version.step,
            reward = batch.stats.reward.get(),
            loss = outcome.stats.loss,
            "trained a batch"
        );
        self.metrics.write(line);
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
        self.execute(|seq| TrainCommand::Publish { seq, version }).await?;
        Ok(())
    }
}

/// What the optimizer steps of one batch came to.
#[derive(Debug, Default, Clone, Copy)]
pub struct Outcome {
    pub stats: LossStats,
    pub steps: u64,
    pub skipped: u64,
    pub grad_norm: f64,
    pub lr: f64,
    pub on_policy_gap: f64,
}

impl Outcome {
    fn add(&mut self, stats: &LossStats, grad_norm: f64, skipped: bool) {
        let sum = &mut self.stats;
        for (sum, one) in [
            (&mut sum.loss, stats.loss),
            (&mut sum.tokens, stats.tokens),
            (&mut sum.ratio, stats.ratio),
            (&mut sum.clipped, stats.clipped),
            (&mut sum.entropy, stats.entropy),
            (&mut sum.behaviour_kl, stats.behaviour_kl),
            (&mut sum.reference_kl, stats.reference_kl),
        ] {
            *sum += one;
        }
        sum.off_policy_gap = sum.off_policy_gap.max(stats.off_policy_gap);
        self.on_policy_gap = self.on_policy_gap.max(stats.on_policy_gap);
        self.steps += 1;
        self.skipped += u64::from(skipped);
        self.grad_norm = self.grad_norm.max(grad_norm);
    }
}

/// The loss of a step, as the configuration has it.
fn loss(config: &TrainConfig, step: u64, steps: u64) -> Loss {
    let settings = &config.loss;
    let (low, high) = (settings.clip_low as f32, settings.clip_high as f32);
    let surrogate = match settings.kind {
        LossKind::CrossEntropy => return Loss::CrossEntropy,
        LossKind::Grpo => Surrogate::Clipped {
            low,
            high,
            dual: settings.dual_clip.map(|cap| cap as f32),
        },
        LossKind::ImportanceSampling => Surrogate::ImportanceSampling,
        LossKind::Cispo => Surrogate::Cispo { low, high },
        LossKind::Dro => Surrogate::Dro {
            beta: settings.beta as f32,
        },
    };
    Loss::Policy(Policy {
        surrogate,
        kl: match config.kl.kind {
            KlKind::K1 => Kl::K1,
            KlKind::K2 => Kl::K2,
            KlKind::K3 => Kl::K3,
        },
        kl_coef: config.kl.coef as f32,
        entropy_coef: entropy(config, step, steps) as f32,
        behaviour_cap: (settings.ratio == Ratio::Decoupled).then_some(settings.weight_cap as f32),
    })
}

/// The entropy bonus at a step: linear from `entropy` to `entropy_final` over the run.
fn entropy(config: &TrainConfig, step: u64, steps: u64) -> f64 {
    let done = (step as f64 / steps.max(1) as f64).min(1.0);
    config.entropy + (config.entropy_final.unwrap_or(config.entropy) - config.entropy) * done
}
