//! Tokens of old weights: masks, denominators and policies.

use broker::protocol::turn::LogProbs;
use configs::Stale;

use super::*;

/// Returns a solver with 4 tokens of ages 0, 2, 3 and 0 steps, and a fresh one.
fn aged() -> Bundle {
    let old = spanned(turn("solver", &[5, 6, 7, 8]), &[0, 2, 3, 0]);
    bundle(
        0,
        vec![
            sample(0, "solver", 1.0, &[old]),
            sample(1, "solver", 0.0, &[turn("solver", &[9])]),
        ],
    )
}

#[test]
fn stale_tokens_are_masked_and_denominators_stay() {
    let mut config = config(1);
    config.max_staleness = 2;
    let batch = formed(&[aged()], &context(&config));
    assert_eq!(trained(&batch.minibatches[0]), [(5, 3, 0.2, 1.0), (9, 1, 0.2, -1.0)]);
    assert_eq!(
        flatten(&batch.minibatches[0])[0].behaviour_lp,
        [0.0, 0.0, 0.0, 0.0, -0.005, -0.006, 0.0, -0.008]
    );
    assert_eq!(
        (batch.stats.stale_tokens, batch.stats.trained_tokens, batch.stats.tokens),
        (1, 4, 5)
    );
    let stale = |batch: &Batch| batch.stats.by_role["solver"].stale_tokens;
    assert_eq!(stale(&batch), 1);
    assert_eq!(
        (batch.stats.staleness.max, &batch.stats.staleness.histogram[..]),
        (3, &[1, 0, 0, 1][..])
    );
    assert!(batch.verdicts.iter().all(|v| v.outcome.is_ok()));

    config.stale = Stale::DropSample;
    let batch = formed(&[aged()], &context(&config));
    // Its reward stays in the other's baseline, and its tokens stay in D.
    assert_eq!(trained(&batch.minibatches[0]), [(9, 1, 0.2, -1.0)]);
    assert_eq!(batch.verdicts[0].outcome, Err(Discard::Stale));
    assert_eq!(batch.stats.discarded[&Discard::Stale], 1);

    config.stale = Stale::Keep;
    let batch = formed(&[aged()], &context(&config));
    assert_eq!(trained(&batch.minibatches[0])[0].1, 4);
    assert_eq!((stale(&batch), batch.stats.stale_tokens), (0, 1), "they are trained");
    config.stale = Stale::Mask;
    config.max_staleness = 0;
    let all_old = bundle(
        0,
        vec![
            sample(0, "solver", 1.0, &[spanned(turn("solver", &[5, 6]), &[1, 2])]),
            sample(1, "solver", 0.0, &[turn("solver", &[9])]),
        ],
    );
    let batch = formed(&[all_old], &context(&config));
    assert_eq!(batch.verdicts[0].outcome, Err(Discard::Stale));
    assert_eq!(batch.minibatches[0].tokens, 3);
}

#[test]
fn weights_of_an_unknown_lineage_are_stale() {
    let mut unknown = turn("solver", &[5]);
    unknown.spans[0].version.lineage = 9;
    let groups = [bundle(
        0,
        vec![
            sample(0, "solver", 1.0, &[unknown]),
            sample(1, "solver", 0.0, &[turn("solver", &[9])]),
        ],
    )];
    let config = config(1);
    let batch = formed(&groups, &context(&config));
    assert_eq!(
        (batch.verdicts[0].outcome, batch.stats.staleness.unknown),
        (Err(Discard::Stale), 1)
    );
    assert_eq!(batch.stats.staleness.mean.get(), Some(0.0));
}

#[test]
fn only_rows_of_the_same_weights_are_on_policy_at_first() {
    let mut stale_kv = turn("solver", &[5]);
    stale_kv.oldest_kv = version(1);
    let mixed = spanned(turn("solver", &[6, 7]), &[0, 1]);
    let mut cut = turn("solver", &[8]);
    cut.logprobs_of = LogProbs::Truncated;
    let samples = vec![
        sample(0, "solver", 1.0, &[turn("solver", &[4])]),
        sample(1, "solver", 0.0, &[stale_kv]),
        sample(2, "solver", 0.0, &[mixed]),
        sample(3, "solver", 0.0, &[cut]),
    ];
    let mut config = config(2);
    config.minibatches = 2;
    config.epochs = 2;
    let batch = formed(&[bundle(0, samples.clone()), bundle(1, samples)], &context(&config));
    assert_eq!(batch.minibatches.len(), 4);
    let flags = |b: &TrainBatch| flatten(b).iter().map(|r| r.on_policy[4]).collect::<Vec<_>>();
    assert_eq!(flags(&batch.minibatches[0]), [true, false, false, false]);
    assert!(batch.minibatches[1..].iter().all(|m| flags(m) == [false; 4]));
    assert_eq!(batch.stats.on_policy_rows, 2);
}
