//! A warm start learns its examples.

use broker::protocol::train::Span;

use super::*;
use crate::train::warm_start;

/// Copies: `[x, 23] -> x` for every x below 20, as a mean over tokens.
fn lesson() -> TrainBatch {
    let spans = (0..20).map(|x| Span {
        ids: vec![x, 23, x, 0],
        mask: vec![false, false, true, true],
        behaviour_lp: vec![0.0; 4],
        weight: 1.0 / 40.0,
        temperature: 1.0,
        ..Span::default()
    });
    TrainBatch {
        spans: spans.collect(),
        tokens: 40,
    }
}

#[test]
fn cross_entropy_falls_until_the_answers_are_known() {
    let mut trainer = trainer(1, defaults());
    let params = |step: u64| OptimStep {
        lr: if step < 5 { 0.002 * (step + 1) as f64 } else { 0.01 },
        weight_decay: 0.0,
        ..OPTIM
    };
    let mut losses = Vec::new();
    let next = warm_start(
        &mut trainer,
        10,
        std::iter::repeat_with(lesson).take(80),
        params,
        |step| {
            assert_eq!(step.stats.tokens, 40.0);
            losses.push(step.stats.loss);
        },
    );
    assert_eq!((next.unwrap(), losses.len()), (170, 80));
    assert!(losses[0] > 2.0 && losses[79] < 0.05, "{} {}", losses[0], losses[79]);
}
