//! Known answers in the place of what was said.

use super::*;
use configs::{LossConfig, LossKind};

/// Letters as ids from 40 on, then the end of the turn.
fn encode(answer: &str) -> Result<Vec<u32>, std::convert::Infallible> {
    Ok(answer.bytes().map(|b| u32::from(b - b'a') + 40).chain([99]).collect())
}

fn told(target: Option<&str>, sample: Sample) -> Sample {
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
fn the_known_answer_stands_behind_what_was_really_asked_and_nothing_else_is_trained() {
    let group = bundle(
        0,
        vec![
            told(Some("ab"), sample(0, "solver", 0.0, &[turn("solver", &[7, 8, 9])])),
            told(None, sample(1, "solver", 1.0, &[turn("solver", &[5])])),
        ],
    );
    let bundles = imitate(&[group], encode).unwrap();
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
        "nobody sampled it"
    );
    let outcomes: Vec<_> = batch.verdicts.iter().map(|v| v.outcome).collect();
    assert_eq!(outcomes, [Ok(()), Err(Discard::NoTarget)]);
}

#[test]
fn of_several_turns_the_last_is_corrected_in_its_own_context() {
    let (first, second) = (turn("solver", &[7]), generation(&[1, 2, 3, 6, 7, 30], &[8, 9]));
    let group = bundle(0, vec![told(Some("a"), sample(0, "solver", 0.0, &[first, second]))]);
    let bundles = imitate(&[group], encode).unwrap();
    let BundleContent::Samples(samples) = &bundles[0].content else {
        panic!()
    };
    let row = &samples[0].rows[0];
    assert_eq!(
        (row.ids.as_slice(), row.trained_tokens()),
        ([1, 2, 3, 6, 7, 30, 40, 99].as_slice(), 2)
    );
    assert_eq!(row.segments[0].start, 6);
    assert!(bundles[0].validate().is_ok());
}
