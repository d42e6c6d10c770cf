//! Tests weights, masks and policies with values computed by hand.

mod forest;
mod imitate;
mod refill;
mod roles;
mod staleness;
mod weigh;
mod whole_batch;

use super::*;
use crate::sample::tests::{generation, version};
use broker::ids::{Attempt, Digest};
use broker::protocol::bundle::{BundleContent, Sample, SampleStatus};
use broker::protocol::turn::{Generation, VersionSpan};
use configs::{Advantage, Aggregation, RoleName, TokenRecordPolicy, TrainConfig, Truncated, ZeroAdvantage};

/// Returns a sample with one turn for each of `turns`. Prompts are `[1, 2, 3, role, ...]`.
pub(super) fn sample(member: u16, role: &str, reward: f32, turns: &[Generation]) -> Sample {
    Sample {
        member,
        role: role.into(),
        seat: 0,
        subkey: String::new(),
        target: None,
        status: SampleStatus::Completed,
        reward,
        parts: vec![],
        rows: crate::sample::rows(turns),
    }
}

pub(super) fn turn(role: &str, output: &[u32]) -> Generation {
    generation(&[1, 2, 3, role.len() as u32], output)
}

fn bundle(order: u64, samples: Vec<Sample>) -> Bundle {
    let mut members: Vec<u16> = samples.iter().map(|s| s.member).collect();
    members.dedup();
    Bundle {
        group: GroupId([order as u8; 16]),
        task: format!("t/{order}"),
        order,
        attempt: Attempt([0; 16]),
        digest: Digest([0; 16]),
        part: 0,
        parts: 1,
        conversations: members.len() as u16,
        content: BundleContent::Samples(samples),
    }
}

/// Returns two solvers and, after the first, a retry: 2, 3 and 4 tokens.
fn mixed(order: u64) -> Bundle {
    let id = 10 * order as u32;
    bundle(
        order,
        vec![
            sample(0, "retry", 1.0, &[turn("retry", &[id + 1, id + 2, id + 3, id + 4])]),
            sample(0, "solver", 0.0, &[turn("solver", &[id + 5, id + 6])]),
            sample(1, "solver", 1.0, &[turn("solver", &[id + 7, id + 8, id + 9])]),
        ],
    )
}

/// Returns `n` conversations of one solver, all right or every second one right.
fn solvers(order: u64, n: u16, differ: bool) -> Bundle {
    let one = |m: u16| {
        let reward = if differ { f32::from(m % 2) } else { 1.0 };
        sample(m, "solver", reward, &[turn("solver", &[u32::from(m), 9])])
    };
    bundle(order, (0..n).map(one).collect())
}

fn config(groups: usize) -> TrainConfig {
    TrainConfig {
        batch_groups: groups,
        ..TrainConfig::default()
    }
}

/// In these tests, the staleness of a version of lineage 1 is its step. Other lineages are unknown.
fn context(config: &TrainConfig) -> BatchContext<'_> {
    BatchContext {
        config,
        max_new_tokens: 10,
        current: version(0),
        staleness: &|v| if v.lineage == 1 { v.step } else { u64::MAX },
        seed: 5,
        drawn: 0,
        more: true,
        records: TokenRecordPolicy::First,
    }
}

fn formed(bundles: &[Bundle], context: &BatchContext<'_>) -> Batch {
    match form(bundles, context) {
        Formed::Batch(batch) => *batch,
        Formed::More { groups, .. } => panic!("{groups} more groups are wanted"),
    }
}

/// Returns (first trained id, trained ids, weight, advantage) of every row with something to train.
fn trained(batch: &TrainBatch) -> Vec<(u32, usize, f32, f32)> {
    let row = |row: FlatRow| {
        let first = row.mask.iter().position(|m| *m)?;
        let count = row.mask.iter().filter(|m| **m).count();
        Some((row.ids[first], count, row.weight[first], row.advantage[first]))
    };
    flatten(batch).into_iter().filter_map(row).collect()
}

fn spanned(mut turn: Generation, versions: &[u64]) -> Generation {
    let span = |(at, step): (usize, &u64)| VersionSpan {
        version: version(*step),
        start: at as u32,
        end: at as u32 + 1,
    };
    turn.spans = versions.iter().enumerate().map(span).collect();
    turn
}

#[test]
fn a_masked_truncated_sample_stays_in_the_baseline() {
    let mut group = solvers(0, 2, true);
    if let BundleContent::Samples(samples) = &mut group.content {
        samples[0].status = SampleStatus::Truncated;
    }
    let mut config = config(1);
    assert_eq!(
        trained(&formed(std::slice::from_ref(&group), &context(&config)).minibatches[0]).len(),
        2
    );
    config.truncated = Truncated::Mask;
    let batch = formed(&[group], &context(&config));
    assert_eq!(trained(&batch.minibatches[0]), [(1, 2, 0.25, 1.0)]);
    assert_eq!(
        (batch.verdicts[0].outcome, batch.stats.truncated),
        (Err(Discard::Truncated), 1)
    );
}

#[test]
fn skipping_zero_advantages_changes_no_weight() {
    let groups = [solvers(0, 2, false), solvers(1, 2, true)];
    let mut config = config(2);
    let kept = trained(&formed(&groups, &context(&config)).minibatches[0]);
    config.zero_advantage = ZeroAdvantage::Skip;
    let skipped = formed(&groups, &context(&config));
    assert_eq!(trained(&skipped.minibatches[0]), kept[2..]);
    assert_eq!(skipped.minibatches[0].tokens, 8);
    assert_eq!(skipped.stats.discarded[&Discard::ZeroAdvantage], 2);
    assert_eq!((skipped.stats.zero_groups, skipped.stats.zero_share()), (1, 0.5));
    // With KL a token of advantage 0 still has a gradient, so it is kept.
    config.kl.coef = 0.1;
    assert_eq!(trained(&formed(&groups, &context(&config)).minibatches[0]), kept);
}

#[test]
fn an_answer_is_everything_a_seat_sampled() {
    let config = config(2);
    // Two rows of one sample with prompts that differ from the first id on.
    let two = [turn("solver", &[31, 32]), generation(&[9, 9, 9, 9, 9, 9, 9], &[33])];
    let group = bundle(
        1,
        vec![
            sample(0, "solver", 1.0, &two),
            sample(1, "solver", 0.0, &[turn("solver", &[34])]),
        ],
    );
    let batch = formed(&[mixed(0), group], &context(&config));
    let spans = batch.minibatches[0]
        .spans
        .iter()
        .filter(|span| span.mask.contains(&true));
    let answers: Vec<(u32, u32)> = spans
        .map(|span| {
            let first = span.mask.iter().position(|m| *m).unwrap_or(0);
            (span.ids[first], span.answer)
        })
        .collect();
    assert_eq!(answers, [(1, 0), (5, 1), (7, 2), (31, 3), (33, 3), (34, 4)]);
}

#[test]
fn rewards_are_counted_by_role_and_part() {
    let config = config(1);
    let stats = formed(&[mixed(0)], &context(&config)).stats;
    assert_eq!((stats.samples, stats.tokens, stats.rows), (3, 9, 3));
    assert_eq!(stats.reward.mean.get(), Some(2.0 / 3.0));
    let solver = &stats.by_role["solver"];
    assert_eq!((solver.reward.mean.get(), solver.reward.std()), (Some(0.5), Some(0.5)));
    let roles = stats.by_role.values();
    let (samples, tokens, trained) = roles.fold((0, 0, 0), |(samples, tokens, trained), role| {
        (
            samples + role.samples,
            tokens + role.tokens,
            trained + role.trained_tokens,
        )
    });
    assert_eq!((samples, tokens, trained), (3, 9, stats.trained_tokens));
    // The verifier is alone in its key, so it has no advantage.
    assert_eq!((solver.zero_advantage, solver.discarded, solver.truncated), (0, 0, 0));
    assert!(
        stats
            .by_role
            .iter()
            .any(|(name, role)| name != "solver" && role.zero_advantage == role.samples)
    );
    assert_eq!(
        (stats.keys, stats.alone_keys, stats.equal_keys, stats.zero_groups),
        (2, 1, 0, 0)
    );
    // The solvers differ, and the retry has nothing to compare with.
    let zero = |role: &RoleStats| stats.zero_share_of(role);
    let shares: Vec<f64> = stats.by_role.values().map(zero).collect();
    assert_eq!((zero(solver), shares.iter().sum()), (0.0, 1.0));
    assert_eq!(stats.tokens_per_sample.get(), Some(3.0));
    assert!((stats.advantage_abs.get().unwrap() - 2.0 / 3.0).abs() < 1e-6);
}
