//! One line of metrics for one trained batch.

use std::time::Instant;

use broker::ids::WeightVersion;
use broker::protocol::bundle::Bundle;
use broker::protocol::train::RoleLoss;
use rollout::batch::{Batch, Staleness};
use serde_json::Value;

use super::Agent;
use super::training::Outcome;
use crate::metrics::Metrics;

/// The figures of a batch. Keys that begin with `time/` vary between equal runs; no other does.
#[must_use]
pub fn train_line(
    agent: &Agent,
    version: WeightVersion,
    bundles: &[Bundle],
    batch: &Batch,
    outcome: &Outcome,
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
    for (role, found) in &stats.by_role {
        let part = |count: u64| Value::from(count as f64 / found.samples.max(1) as f64);
        put(&format!("role/{role}/zero_advantage"), part(found.zero_advantage));
        put(&format!("role/{role}/truncated"), part(found.truncated));
        put(&format!("role/{role}/discarded"), part(found.discarded));
        for (reason, count) in &found.discarded_by {
            put(&format!("role/{role}/discarded/{}", reason.as_str()), (*count).into());
        }
        put(&format!("role/{role}/tokens_per_sample"), part(found.tokens));
        put(&format!("role/{role}/tokens"), found.tokens.into());
        put(&format!("role/{role}/tokens_trained"), found.trained_tokens.into());
        put(&format!("role/{role}/repetition"), found.repetition.get().into());
        for (key, value) in staleness(&format!("role/{role}/"), &found.staleness) {
            put(&key, value);
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
        // The largest of none is no gap of 0.
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
    for (key, value) in staleness("", &stats.staleness) {
        put(&key, value);
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

/// How old samples were, under these keys: all of a batch, or those of a role.
fn staleness(before: &str, found: &Staleness) -> Vec<(String, Value)> {
    let places = found.histogram.iter().enumerate();
    let samples = places.map(|(steps, samples)| (format!("{before}staleness/samples/{steps}"), (*samples).into()));
    let mean = (format!("{before}staleness/mean"), found.mean.get().into());
    let max = (format!("{before}staleness/max"), found.max.into());
    [mean, max].into_iter().chain(samples).collect()
}

/// Whether any of these tokens had a behaviour log-prob: without one there is no ratio, and its 0 says nothing.
fn compared(found: &RoleLoss) -> bool {
    found.on_policy_tokens + found.off_policy_tokens > 0.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_roles_samples_are_counted_by_age_as_all_are() {
        let found = Staleness {
            max: 2,
            histogram: vec![3, 0, 1],
            ..Staleness::default()
        };
        for before in ["", "role/solver/"] {
            let line: std::collections::BTreeMap<String, Value> = staleness(before, &found).into_iter().collect();
            let samples = |age: usize| line[&format!("{before}staleness/samples/{age}")].as_u64();
            assert_eq!((0..3).map(samples).collect::<Vec<_>>(), [Some(3), Some(0), Some(1)]);
            assert_eq!(line[&format!("{before}staleness/max")], 2);
        }
    }
}
