//! One line of metrics for one trained batch.

use std::time::{Duration, Instant};

use broker::ids::WeightVersion;
use broker::protocol::bundle::Bundle;
use broker::protocol::train::{LossStats, RoleLoss};
use rollout::batch::{Batch, RoleStats};
use serde_json::Value;

use super::Agent;
use crate::run_folder::metrics::Metrics;
use crate::run_folder::telemetry::LEARNING;

/// The totals of one batch's optimizer steps.
#[derive(Debug, Default, Clone)]
pub struct BatchOutcome {
    pub stats: LossStats,
    pub steps: u64,
    pub skipped: u64,
    pub grad_norm: f64,
    pub lr: f64,
    pub on_policy_gap: f64,
    /// Mean KL estimate per token, where it was subtracted from the advantages.
    pub advantage_kl: Option<f64>,
}

impl BatchOutcome {
    pub(crate) fn add(&mut self, stats: &LossStats, grad_norm: f64, skipped: bool) {
        let sum = &mut self.stats;
        for (sum, one) in [
            (&mut sum.loss, stats.loss),
            (&mut sum.tokens, stats.tokens),
            (&mut sum.ratio, stats.ratio),
            (&mut sum.clipped, stats.clipped),
            (&mut sum.entropy, stats.entropy),
            (&mut sum.behaviour_kl, stats.behaviour_kl),
            (&mut sum.reference_kl, stats.reference_kl),
            (&mut sum.bounded, stats.bounded),
            (&mut sum.second_moment, stats.second_moment),
            (&mut sum.kept, stats.kept),
            (&mut sum.second_moment_kept, stats.second_moment_kept),
        ] {
            *sum += one;
        }
        for (number, one) in (0..).zip(&stats.by_role) {
            sum.role(number).add(one);
        }
        sum.off_policy_gap = sum.off_policy_gap.max(stats.off_policy_gap);
        self.on_policy_gap = self.on_policy_gap.max(stats.on_policy_gap);
        self.steps += 1;
        self.skipped += u64::from(skipped);
        self.grad_norm = self.grad_norm.max(grad_norm);
    }
}

/// Builds the metrics of a batch. Only keys that begin with `time/` vary between equal runs.
#[must_use]
pub fn train_line(
    agent: &Agent,
    version: WeightVersion,
    bundles: &[Bundle],
    batch: &Batch,
    outcome: &BatchOutcome,
    began: Instant,
) -> Metrics {
    let (stats, loss) = (&batch.stats, &outcome.stats);
    let tokens = loss.tokens.max(1.0);
    let mut line = Metrics::train(&agent.name, version.step);
    let mut put = |key: &str, value: Value| line.set(key, value);
    put("reward/mean", stats.reward.mean.get().into());
    put("reward/std", stats.reward.std().into());
    for (role, found) in &stats.by_role {
        put(&format!("reward/{role}"), found.reward.mean.get().into());
        put(&format!("reward_std/{role}"), found.reward.std().into());
    }
    for ((role, part), mean) in &stats.reward_parts {
        put(&format!("part/{role}/{part}"), mean.get().into());
    }
    put("groups", stats.groups.into());
    put("samples", stats.samples.into());
    put("tokens", stats.tokens.into());
    put("tokens/trained", stats.trained_tokens.into());
    put("tokens/stale", stats.stale_tokens.into());
    put("tokens/per_sample", stats.tokens_per_sample.get().into());
    put("collapse/repetition", stats.repetition.get().into());
    put("collapse/sameness", stats.sameness.get().into());
    put("samples/truncated", stats.truncated.into());
    // With a KL in the reward the trainer computes the advantages later: the number of zeros is not
    // known here.
    let known = stats.advantage_abs.get().is_some();
    for (role, found) in &stats.by_role {
        for (name, value) in of_role(found, known) {
            put(&format!("role/{role}/{name}"), value);
        }
    }
    for (role, found) in batch
        .roles
        .iter()
        .zip(&loss.by_role)
        .filter(|(_, found)| found.tokens > 0.0)
    {
        put(&format!("role/{role}/entropy"), (found.entropy / found.tokens).into());
        if compared(found) {
            for (name, sum) in [
                ("clipped", found.clipped),
                ("ratio", found.ratio),
                ("reference_kl", found.reference_kl),
                ("behaviour_kl", found.behaviour_kl),
            ] {
                put(&format!("role/{role}/{name}"), (sum / found.tokens).into());
            }
            put(&format!("role/{role}/ratio_max"), found.largest_ratio.into());
        }
        // The maximum over no tokens is unknown, not 0.
        for (name, gap, of) in [
            ("on_policy_gap", found.on_policy_gap, found.on_policy_tokens),
            ("off_policy_gap", found.off_policy_gap, found.off_policy_tokens),
        ] {
            if of > 0.0 {
                put(&format!("role/{role}/{name}"), gap.into());
            }
        }
    }
    for (reason, count) in &stats.discarded {
        put(&format!("discarded/{}", reason.as_str()), (*count).into());
    }
    put("advantage/abs", stats.advantage_abs.get().into());
    put("advantage/zero_share", stats.zero_share().into());
    put("staleness/mean", stats.staleness.mean.get().into());
    put("staleness/max", stats.staleness.max.into());
    for (steps, samples) in stats.staleness.histogram.iter().enumerate() {
        put(&format!("staleness/samples/{steps}"), (*samples).into());
    }
    put("loss", loss.loss.into());
    put("loss/entropy", (loss.entropy / tokens).into());
    put("loss/clipped", (loss.clipped / tokens).into());
    put("loss/ratio", (loss.ratio / tokens).into());
    if loss.by_role.iter().any(compared) {
        let largest = loss.by_role.iter().map(|role| role.largest_ratio).fold(0.0, f64::max);
        put("loss/ratio_max", largest.into());
    }
    put("loss/reference_kl", (loss.reference_kl / tokens).into());
    if let Some(kl) = outcome.advantage_kl {
        put("advantage/kl", kl.into());
    }
    if loss.bounded > 0.0 {
        put("m2po/second_moment", (loss.second_moment / loss.bounded).into());
        put(
            "m2po/second_moment_kept",
            (loss.second_moment_kept / loss.kept.max(1.0)).into(),
        );
        put("m2po/kept", (loss.kept / loss.bounded).into());
    }
    put("mismatch/behaviour_kl", (loss.behaviour_kl / tokens).into());
    put("mismatch/on_policy_gap", outcome.on_policy_gap.into());
    put("mismatch/off_policy_gap", loss.off_policy_gap.into());
    put("optim/grad_norm", outcome.grad_norm.into());
    put("optim/lr", outcome.lr.into());
    put("optim/skipped", outcome.skipped.into());
    put("time/train_s", began.elapsed().as_secs_f64().into());
    put("time/groups_waiting", bundles.len().into());
    line
}

/// Logs what a batch has taught, in one line.
pub(crate) fn log_batch(step: u64, batch: &Batch, outcome: &BatchOutcome, wait: Duration, train: Duration) {
    let three = |value: f64| (value * 1e3).round() / 1e3;
    let mean = |reward: Option<f64>| reward.map_or_else(|| "-".to_owned(), |reward| format!("{reward:.3}"));
    let by_role = batch.stats.by_role.iter();
    let rewards: Vec<String> = by_role
        .map(|(role, found)| format!("{role} {}", mean(found.reward.mean.get())))
        .collect();
    let tokens = outcome.stats.tokens;
    tracing::info!(
        target: LEARNING,
        step,
        reward = mean(batch.stats.reward.mean.get()),
        rewards = rewards.join(", "),
        entropy = three(outcome.stats.entropy / tokens.max(1.0)),
        tokens_per_s = (tokens / train.as_secs_f64().max(1e-6)).round(),
        wait_s = three(wait.as_secs_f64()),
        train_s = three(train.as_secs_f64()),
        "trained a batch"
    );
}

/// Builds a role's figures. `advantages` is true if the advantages are known.
fn of_role(found: &RoleStats, advantages: bool) -> Vec<(String, Value)> {
    let part = |count: u64| Value::from(count as f64 / found.samples.max(1) as f64);
    let zero = advantages.then(|| part(found.zero_advantage));
    let figures = [
        ("zero_advantage", zero.unwrap_or_default()),
        ("truncated", part(found.truncated)),
        ("discarded", part(found.discarded)),
        ("tokens_per_sample", part(found.tokens)),
        ("tokens", found.tokens.into()),
        ("tokens_trained", found.trained_tokens.into()),
        ("repetition", found.repetition.get().into()),
        ("staleness/mean", found.staleness.mean.get().into()),
        ("staleness/max", found.staleness.max.into()),
    ];
    let figures = figures.map(|(name, value)| (name.to_owned(), value)).into_iter();
    let reasons = found.discarded_by.iter();
    let ages = found.staleness.histogram.iter().enumerate();
    figures
        .chain(reasons.map(|(reason, count)| (format!("discarded/{}", reason.as_str()), (*count).into())))
        .chain(ages.map(|(steps, samples)| (format!("staleness/samples/{steps}"), (*samples).into())))
        .collect()
}

/// Returns true if any of these tokens had a behaviour log-prob. Without one there is no ratio, and
/// a 0 would mislead.
fn compared(found: &RoleLoss) -> bool {
    found.on_policy_tokens + found.off_policy_tokens > 0.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn role_figures_hold_sample_ages_and_null_for_unknown_values() {
        let mut found = RoleStats {
            samples: 4,
            zero_advantage: 1,
            ..RoleStats::default()
        };
        found.staleness.histogram = vec![3, 0, 1];
        let figure = |advantages: bool, wanted: &str| {
            let mut all = of_role(&found, advantages).into_iter();
            all.find(|(name, _)| name == wanted).map(|(_, value)| value)
        };
        let ages = ["0", "1", "2", "3"].map(|steps| figure(true, &format!("staleness/samples/{steps}")));
        assert_eq!(ages, [Some(3.into()), Some(0.into()), Some(1.into()), None]);
        assert_eq!(figure(true, "zero_advantage"), Some(0.25.into()));
        assert_eq!(figure(false, "zero_advantage"), Some(Value::Null));
    }
}
