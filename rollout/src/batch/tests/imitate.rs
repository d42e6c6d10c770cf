//! Known answers in place of sampled ones.

use super::*;
use broker::protocol::turn::LogProbs;
use configs::{LossConfig, LossKind};

/// Encodes letters as ids from 40 on, then the end of the turn.
fn encode(_asked: &[u32], answer: &str) -> Result<Vec<u32>, std::convert::Infallible> {
    Ok(answer.bytes().map(|b| u32::from(b - b'a') + 40).chain([99]).collect())
}

fn with_target(target: Option<&str>, sample: Sample) -> Sample {
    Sample {
        target: target.map(str::to_owned),
        ..sample
    }
}

fn imitating() -> TrainConfig {
    TrainConfig {
        loss: LossConfig {
            kind: LossKind::CrossEntropy,
            ..LossConfig::default()
        },
        ..config(1)
    }
}

#[test]
fn only_the_known_answer_after_the_real_prompt_is_trained() {
    let group = bundle(
        0,
        vec![
            with_target(Some("ab"), sample(0, "solver", 0.0, &[turn("solver", &[7, 8, 9])])),
            with_target(None, sample(1, "solver", 1.0, &[turn("solver", &[5])])),
        ],
    );
    let bundles = imitate(&[group], 64, encode).bundles;
    let config = imitating();
    let batch = formed(&bundles, &context(&config));
    let rows = flatten(&batch.minibatches[0]);
    assert_eq!(rows.len(), 1, "a sample without a target is not trained");
    assert_eq!(rows[0].ids, [1, 2, 3, 6, 40, 41, 99]);
    assert_eq!(rows[0].mask, [false, false, false, false, true, true, true]);
    let weights: f32 = rows[0]
        .weight
        .iter()
        .zip(&rows[0].mask)
        .filter(|(_, m)| **m)
        .map(|(w, _)| w)
        .sum();
    assert!(
        (weights - 1.0).abs() < 1e-6,
        "the mean over the answers' tokens: {weights}"
    );
    assert!(
        batch.minibatches[0].spans.iter().all(|span| !span.on_policy),
        "it was not sampled"
    );
    let outcomes: Vec<_> = batch.verdicts.iter().map(|v| v.outcome).collect();
    assert_eq!(outcomes, [Ok(()), Err(Discard::NoTarget)]);
}

#[test]
fn the_last_of_several_turns_is_corrected_in_its_context() {
    let (first, second) = (turn("solver", &[7]), generation(&[1, 2, 3, 6, 7, 30], &[8, 9]));
    let group = bundle(
        0,
        vec![with_target(Some("a"), sample(0, "solver", 0.0, &[first, second]))],
    );
    let bundles = imitate(&[group], 64, encode).bundles;
    let BundleContent::Samples(samples) = &bundles[0].content else {
        panic!()
    };
    let row = &samples[0].rows[0];
    assert_eq!(
        (row.ids.as_slice(), row.trained_tokens()),
        ([1, 2, 3, 6, 7, 30, 40, 99].as_slice(), 2)
    );
    assert_eq!(row.segments[0].start, 6);
    // Segments, spans and numbers are those of a valid bundle. It cannot be sent, because a bundle
    // that is sent names the sampler of every token.
    assert_eq!(row.segments[0].logprobs_of, LogProbs::Absent);
    let mut row = row.clone();
    assert!(row.validate().is_err());
    row.segments[0].logprobs_of = LogProbs::Sampled;
    assert_eq!(row.validate(), Ok(()));
}

/// The trainer rejects a row that is longer than the context, and with it a whole batch that is
/// already recorded.
#[test]
fn a_known_answer_that_does_not_fit_is_left_out_alone() {
    let letters = |asked: &[u32], answer: &str| {
        assert_eq!(asked, [1, 2, 3, 6]);
        match answer {
            "?" => Err("no such letter"),
            answer => encode(asked, answer).map_err(|never| match never {}),
        }
    };
    // The prompt has 4 tokens, and the end of the turn is one more.
    let targets = [Some("ab"), Some("abc"), Some("?"), None];
    let samples = (0..).zip(targets).map(|(member, target)| {
        let said = sample(member, "solver", 0.0, &[turn("solver", &[7])]);
        with_target(target, said)
    });
    let group = bundle(0, samples.collect());
    let imitated = imitate(std::slice::from_ref(&group), 7, letters);
    assert_eq!((imitated.too_long, imitated.unreadable), (1, vec!["no such letter"]));
    let config = imitating();
    let batch = formed(&imitated.bundles, &context(&config));
    let rows = flatten(&batch.minibatches[0]);
    let ids: Vec<_> = rows.iter().map(|row| row.ids.as_slice()).collect();
    assert_eq!(ids, [[1, 2, 3, 6, 40, 41, 99].as_slice()], "as long as the context");
    let outcomes: Vec<_> = batch.verdicts.iter().map(|v| v.outcome).collect();
    let unfit = Err(Discard::TargetUnfit);
    assert_eq!(outcomes, [Ok(()), unfit, unfit, Err(Discard::NoTarget)]);
    assert_eq!(batch.stats.discarded[&Discard::TargetUnfit], 2);
    let short = imitate(&[group], 6, letters);
    assert_eq!(short.too_long, 2, "one token less");
}
