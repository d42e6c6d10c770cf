//! Losses of many tokens through the whole trainer: groups computed together, answers, rejections.

use broker::protocol::train::{ForwardWeights, M2poMode, M2poScope, Policy, Surrogate};
use tch::Tensor;

use super::*;

fn loss(surrogate: Surrogate) -> Loss {
    Loss::Policy(Policy {
        surrogate,
        entropy_coef: 0.02,
        ..Policy::clipped(0.0, 0.0)
    })
}

fn m2po(mode: M2poMode, scope: M2poScope) -> Loss {
    let budget = 0.3;
    loss(Surrogate::M2po { mode, budget, scope })
}

const GSPO: Surrogate = Surrogate::Gspo { low: 0.3, high: 0.3 };

fn options(micro_batch_tokens: usize) -> TrainerOptions {
    TrainerOptions {
        micro_batch_tokens,
        ..defaults()
    }
}

/// Answers of two rows each, in different groups; equal advantages within one answer.
fn torn() -> TrainBatch {
    let mut batch = batch(0);
    for span in batch.spans.iter_mut().filter(|span| span.mask.contains(&true)) {
        span.answer %= 5;
        span.advantage = span.answer as f32 - 1.7;
    }
    batch
}

fn gradient(batch: &TrainBatch, loss: Loss, budget: usize) -> (Tensor, LossStats) {
    let mut trainer = trainer(1, options(budget));
    let batch = batch.clone();
    let reply = trainer.execute(TrainCommand::ForwardBackward { seq: 0, batch, loss });
    (trainer.model.grad().copy(), loss_of(reply.unwrap()))
}

fn gap(one: &Tensor, other: &Tensor) -> f64 {
    ((one - other).norm() / other.norm()).double_value(&[])
}

#[test]
fn what_is_computed_together_does_not_change_the_gradient() {
    let modes = [M2poMode::Clip, M2poMode::Cap, M2poMode::Mask];
    let mut cases: Vec<(TrainBatch, Loss)> = modes.map(|mode| (batch(0), m2po(mode, M2poScope::Minibatch))).into();
    cases.push((batch(0), loss(GSPO)));
    cases.push((torn(), loss(GSPO)));
    for (batch, loss) in cases {
        let (whole, stats) = gradient(&batch, loss, 10_000);
        assert!(
            stats.clipped > 0.0 && stats.clipped < stats.tokens,
            "{loss:?} {stats:?}"
        );
        for budget in [1, 13, 40] {
            let (split, again) = gradient(&batch, loss, budget);
            let gap = gap(&split, &whole);
            assert!(gap < 1e-6, "{loss:?} budget {budget}: {gap}");
            assert!((again.loss - stats.loss).abs() < 1e-6 && again.clipped == stats.clipped);
            assert!((again.second_moment - stats.second_moment).abs() < 1e-4 && again.kept == stats.kept);
        }
    }
}

#[test]
fn the_published_scope_is_what_is_computed_together() {
    let published = m2po(M2poMode::Mask, M2poScope::Microbatch);
    let (whole, _) = gradient(&batch(0), published, 10_000);
    let (minibatch, _) = gradient(&batch(0), m2po(M2poMode::Mask, M2poScope::Minibatch), 10_000);
    assert!(gap(&whole, &minibatch) < 1e-6, "one micro-batch is the minibatch");
    let (split, _) = gradient(&batch(0), published, 13);
    assert!(
        gap(&split, &whole) > 1e-2,
        "as the published codes: it depends on the packing"
    );
}

#[test]
fn an_answer_of_two_rows_is_one() {
    let (together, _) = gradient(&torn(), loss(GSPO), 10_000);
    let mut apart = torn();
    (0u32..).zip(&mut apart.spans).for_each(|(at, span)| span.answer = at);
    let (apart, _) = gradient(&apart, loss(GSPO), 10_000);
    assert!(gap(&apart, &together) > 1e-2, "its rows alone have other ratios");
}

#[test]
fn an_answer_needs_one_advantage_and_no_weight_for_staleness() {
    let mut trainer = trainer(1, options(1000));
    let mut refused = |batch: TrainBatch, loss: Loss| {
        user(
            trainer
                .execute(TrainCommand::ForwardBackward { seq: 0, batch, loss })
                .unwrap_err(),
        )
    };
    let mut two = torn();
    let last = two.spans.last_mut().unwrap();
    last.advantage += 1.0;
    assert!(refused(two, loss(GSPO)).contains("another advantage"));
    let mut each = torn();
    let last = each.spans.last_mut().unwrap();
    last.advantages = vec![1.0; last.ids.len()];
    assert!(refused(each, loss(GSPO)).contains("one for all of it"));
    let decoupled = Loss::Policy(Policy {
        surrogate: GSPO,
        behaviour_cap: Some(5.0),
        ..Policy::clipped(0.0, 0.0)
    });
    assert!(refused(batch(0), decoupled).contains("no weight for single tokens"));
    let budget = Surrogate::M2po {
        mode: M2poMode::Cap,
        budget: 0.0,
        scope: M2poScope::Minibatch,
    };
    assert!(refused(batch(0), loss(budget)).contains("budget"));
    let mut short = batch(0);
    short.spans[1].advantages = vec![1.0; 9];
    assert!(refused(short, POLICY).contains("9 advantages"));
    let mut nan = batch(0);
    nan.spans[1].advantages = vec![f32::NAN; nan.spans[1].ids.len()];
    assert!(refused(nan, POLICY).contains("an advantage of NaN"));
}

#[test]
fn advantages_of_tokens_take_the_place_of_the_spans() {
    let (whole, _) = gradient(&batch(0), POLICY, 1000);
    let mut each = batch(0);
    for span in &mut each.spans {
        span.advantages = vec![span.advantage; span.ids.len()];
        span.advantage = 100.0;
    }
    let (each, _) = gradient(&each, POLICY, 1000);
    assert_eq!(gap(&each, &whole), 0.0);
}

#[test]
fn a_forward_pass_uses_the_requested_weights() {
    let mut trainer = trainer(1, options(1000));
    let forward = |trainer: &mut Trainer, seq, weights| {
        let batch = batch(0);
        trainer.execute(TrainCommand::Forward { seq, batch, weights })
    };
    assert!(user(forward(&mut trainer, 0, ForwardWeights::Reference).unwrap_err()).contains("reference"));
    trainer.take_reference().unwrap();
    let before = forward(&mut trainer, 0, ForwardWeights::Trained).unwrap();
    let step = TrainCommand::ForwardBackward {
        seq: 1,
        batch: batch(0),
        loss: POLICY,
    };
    trainer.execute(step).unwrap();
    trainer
        .execute(TrainCommand::OptimStep { seq: 2, params: OPTIM })
        .unwrap();
    assert_eq!(forward(&mut trainer, 3, ForwardWeights::Reference).unwrap(), before);
    assert_ne!(forward(&mut trainer, 4, ForwardWeights::Trained).unwrap(), before);
}
