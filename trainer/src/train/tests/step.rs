//! Micro-batches, order, rejections, publishing.

use broker::ids::WeightVersion;
use broker::protocol::train::{ForwardWeights, Policy, Span};
use tch::{Device, Kind};

use super::*;
use crate::weights::{MemorySink, Published};

fn options(micro_batch_tokens: usize) -> TrainerOptions {
    TrainerOptions {
        micro_batch_tokens,
        ..defaults()
    }
}

#[test]
fn micro_batches_do_not_change_the_gradient() {
    let grad = |budget: usize| {
        let mut trainer = trainer(1, options(budget));
        let (batch, loss) = (batch(0), POLICY);
        let stats = loss_of(
            trainer
                .execute(TrainCommand::ForwardBackward { seq: 0, batch, loss })
                .unwrap(),
        );
        (trainer.model.grad().copy(), stats)
    };
    let (whole, stats) = grad(10_000);
    for budget in [1, 13, 40] {
        let (split, split_stats) = grad(budget);
        let gap = ((&split - &whole).norm() / whole.norm()).double_value(&[]);
        assert!(gap < 1e-6, "budget {budget}: {gap}");
        assert!((split_stats.loss - stats.loss).abs() < 1e-6 && split_stats.tokens == stats.tokens);
    }
}

#[test]
fn batches_add_up_until_the_step() {
    let mut both = trainer(1, options(1000));
    for seq in 0..2 {
        let (batch, loss) = (batch(seq as u32), POLICY);
        both.execute(TrainCommand::ForwardBackward { seq, batch, loss })
            .unwrap();
    }
    let mut sum = both.model.grad().zeros_like();
    for round in 0..2 {
        let mut one = trainer(1, options(1000));
        let (batch, loss) = (batch(round), POLICY);
        one.execute(TrainCommand::ForwardBackward { seq: 0, batch, loss })
            .unwrap();
        sum += one.model.grad();
    }
    let gap = ((both.model.grad() - &sum).norm() / sum.norm()).double_value(&[]);
    assert!(gap < 1e-6, "{gap}");
    both.execute(TrainCommand::OptimStep { seq: 2, params: OPTIM }).unwrap();
    assert_eq!(both.model.grad().abs().max().double_value(&[]), 0.0);
}

#[test]
fn old_logprobs_default_to_the_behaviours() {
    let stats = |old: bool| {
        let mut batch = batch(0);
        for span in batch.spans.iter_mut().filter(|_| old) {
            span.old_lp = span.behaviour_lp.clone();
        }
        let mut trainer = trainer(1, options(1000));
        loss_of(
            trainer
                .execute(TrainCommand::ForwardBackward {
                    seq: 0,
                    batch,
                    loss: POLICY,
                })
                .unwrap(),
        )
    };
    assert_eq!(stats(false), stats(true));
}

#[test]
fn a_second_step_is_clipped_around_the_start_of_the_batch() {
    let mut trainer = trainer(1, options(1000));
    let forward = |trainer: &mut Trainer, seq, batch: &TrainBatch| {
        let batch = batch.clone();
        let weights = ForwardWeights::Trained;
        match trainer.execute(TrainCommand::Forward { seq, batch, weights }).unwrap() {
            TrainReply::LogProbs(spans) => spans,
            other => panic!("{other:?}"),
        }
    };
    let mut batch = batch(0);
    let start = forward(&mut trainer, 0, &batch);
    assert!(batch.begin_from(start.clone()));
    assert!(!batch.begin_from(start[1..].to_vec()), "another batch's");
    let (low, high, cap) = (0.05_f64, 0.05_f64, 1.5_f64);
    let loss = Loss::Policy(Policy {
        behaviour_cap: Some(cap as f32),
        ..Policy::clipped(low as f32, high as f32)
    });
    let step = |seq, batch: &TrainBatch| TrainCommand::ForwardBackward {
        seq,
        batch: batch.clone(),
        loss,
    };
    let first = loss_of(trainer.execute(step(1, &batch)).unwrap());
    assert!(
        (first.ratio / first.tokens - 1.0).abs() < 1e-6 && first.clipped == 0.0,
        "{first:?}"
    );
    let params = OptimStep { lr: 0.05, ..OPTIM };
    trainer.execute(TrainCommand::OptimStep { seq: 2, params }).unwrap();
    let now = forward(&mut trainer, 3, &batch);
    let second = loss_of(trainer.execute(step(4, &batch)).unwrap());
    // Equation 5 of arXiv:2110.00641 by hand, from the recorded log-probs.
    let (mut expected, mut clipped) = (0.0, 0.0);
    for (s, span) in batch.spans.iter().enumerate() {
        for t in (0..span.ids.len()).filter(|t| span.mask[*t]) {
            let (lp, old) = (f64::from(now[s][t]), f64::from(start[s][t]));
            let weight = (old - f64::from(span.behaviour_lp[t])).exp().min(cap);
            let (ratio, advantage) = ((lp - old).exp(), f64::from(span.advantage));
            let bound = ratio.clamp(1.0 - low, 1.0 + high) * advantage;
            expected -= f64::from(span.weight) * weight * bound.min(ratio * advantage);
            clipped += f64::from(u8::from(bound < ratio * advantage));
        }
    }
    assert!(clipped > 0.0, "the step was large enough to be clipped");
    assert_eq!(second.clipped, clipped);
    assert!(
        (second.loss - expected).abs() < 1e-5 * expected.abs().max(1.0),
        "{second:?} {expected}"
    );
}

#[test]
fn the_ratio_of_tokens_sampled_by_these_very_weights_is_one() {
    let mut trainer = trainer(1, options(1000));
    let mut batch = batch(0);
    let reply = trainer
        .execute(TrainCommand::Forward {
            seq: 0,
            batch: batch.clone(),
            weights: ForwardWeights::Trained,
        })
        .unwrap();
    let TrainReply::LogProbs(spans) = reply else {
        panic!("{reply:?}")
    };
    for (span, lps) in batch.spans.iter_mut().zip(spans) {
        span.behaviour_lp = lps;
        span.on_policy = true;
    }
    let command = |seq, batch| TrainCommand::ForwardBackward {
        seq,
        batch,
        loss: POLICY,
    };
    let stats = loss_of(trainer.execute(command(1, batch.clone())).unwrap());
    assert!(stats.on_policy_gap < 1e-5, "{stats:?}");
    assert!(stats.behaviour_kl < 1e-9 && stats.clipped == 0.0 && stats.off_policy_gap == 0.0);
    assert!((stats.ratio / stats.tokens - 1.0).abs() < 1e-6);
    // A token with a recorded log-prob that is wrong by 0.001 is visible.
    batch.spans[3].behaviour_lp[0] -= 1e-3;
    let stats = loss_of(trainer.execute(command(2, batch)).unwrap());
    assert!(stats.on_policy_gap > 9e-4, "{stats:?}");
}

#[test]
fn a_repeated_command_has_one_effect_and_the_same_reply() {
    let mut trainer = trainer(1, options(1000));
    train(&mut trainer, 0);
    let step = || TrainCommand::OptimStep { seq: 1, params: OPTIM };
    let before = digest(&trainer);
    let first = trainer.execute(step()).unwrap();
    assert_eq!(trainer.execute(step()).unwrap(), first);
    assert_eq!(digest(&trainer), before);
    let other = OptimStep { lr: 1.0, ..OPTIM };
    assert!(
        user(
            trainer
                .execute(TrainCommand::OptimStep { seq: 1, params: other })
                .unwrap_err()
        )
        .contains("another")
    );
    assert!(
        user(
            trainer
                .execute(TrainCommand::OptimStep { seq: 9, params: OPTIM })
                .unwrap_err()
        )
        .contains("is 2")
    );
}

#[test]
fn a_refused_command_changes_nothing_and_its_number_is_free() {
    let mut trainer = trainer(1, options(1000));
    let mut broken = batch(0);
    broken.spans[1].ids[0] = 99;
    let command = |batch| TrainCommand::ForwardBackward {
        seq: 0,
        batch,
        loss: POLICY,
    };
    assert!(user(trainer.execute(command(broken)).unwrap_err()).contains("token 99"));
    let loss = Loss::Policy(Policy {
        kl_coef: 0.1,
        ..Policy::clipped(0.2, 0.2)
    });
    let kl = TrainCommand::ForwardBackward {
        seq: 0,
        batch: batch(0),
        loss,
    };
    assert!(user(trainer.execute(kl).unwrap_err()).contains("reference"));
    let hot = OptimStep { lr: f64::NAN, ..OPTIM };
    assert!(
        user(
            trainer
                .execute(TrainCommand::OptimStep { seq: 0, params: hot })
                .unwrap_err()
        )
        .contains("lr")
    );
    assert_eq!(trainer.model.grad().abs().max().double_value(&[]), 0.0);
    trainer.execute(command(batch(0))).unwrap();
}

#[test]
fn a_gradient_that_is_not_finite_is_counted_and_left_out() {
    let mut trainer = trainer(1, options(1000));
    let mut huge = batch(0);
    for span in &mut huge.spans {
        span.weight *= 1e38;
        span.advantage *= 1e30;
    }
    let before = digest(&trainer);
    trainer
        .execute(TrainCommand::ForwardBackward {
            seq: 0,
            batch: huge,
            loss: POLICY,
        })
        .unwrap();
    let reply = trainer
        .execute(TrainCommand::OptimStep { seq: 1, params: OPTIM })
        .unwrap();
    assert!(matches!(reply, TrainReply::Step { skipped: true, .. }), "{reply:?}");
    assert_eq!(
        (digest(&trainer), trainer.skipped_steps(), trainer.optimizer_steps()),
        (before, 1, 0)
    );
    train(&mut trainer, 1);
    assert_eq!(trainer.optimizer_steps(), 1);
}

/// Finite gradients and a learning rate that is too high.
#[test]
fn weights_that_are_not_finite_are_not_published() {
    let mut trainer = trainer(1, options(1000));
    let (send, receive) = std::sync::mpsc::channel::<Published>();
    let deliver = Box::new(move |published| send.send(published).is_ok());
    trainer.add_sink(Box::new(MemorySink::new(Device::Cpu, Kind::Float, deliver)));
    let version = |step| WeightVersion { lineage: 3, step };
    let publish = |seq, step| TrainCommand::Publish {
        seq,
        version: version(step),
    };
    trainer.execute(publish(1, 0)).unwrap();
    let params = OptimStep {
        lr: 1e37,
        weight_decay: 0.1,
        ..OPTIM
    };
    for seq in [2, 3] {
        // The gradient is zero; the decay alone multiplies by more than 1e35.
        let reply = trainer.execute(TrainCommand::OptimStep { seq, params }).unwrap();
        assert!(matches!(reply, TrainReply::Step { skipped: false, .. }), "{reply:?}");
    }
    let said = user(trainer.execute(publish(4, 1)).unwrap_err());
    assert!(said.contains("3.1") && said.contains("model."), "{said}");
    assert_eq!(trainer.version(), Some(version(0)));
    assert_eq!(receive.try_iter().count(), 1, "no engine gets them");
}

#[test]
fn version_zero_is_the_reference_and_publishing_copies() {
    let mut trainer = trainer(
        1,
        TrainerOptions {
            keep_reference: true,
            ..options(1000)
        },
    );
    let (send, receive) = std::sync::mpsc::channel::<Published>();
    let deliver = Box::new(move |published| send.send(published).is_ok());
    trainer.add_sink(Box::new(MemorySink::new(Device::Cpu, Kind::Float, deliver)));
    let version = WeightVersion { lineage: 3, step: 0 };
    let at_start = digest(&trainer);
    trainer.execute(TrainCommand::Publish { seq: 1, version }).unwrap();
    train(&mut trainer, 1);
    let published = receive.recv().unwrap();
    assert_eq!(
        (
            published.version(),
            published.weights().unwrap().digest().unwrap().to_hex().to_string()
        ),
        (version, at_start)
    );
    let loss = Loss::Policy(Policy {
        kl_coef: 0.1,
        ..Policy::clipped(0.2, 0.2)
    });
    let stats = loss_of(
        trainer
            .execute(TrainCommand::ForwardBackward {
                seq: 4,
                batch: batch(1),
                loss,
            })
            .unwrap(),
    );
    assert!(
        stats.reference_kl > 1e-6,
        "the trained weights moved away from version 0"
    );
}

#[test]
fn an_empty_batch_is_no_gradient() {
    let mut trainer = trainer(1, options(1000));
    let prompt = Span {
        ids: vec![1, 2],
        mask: vec![false; 2],
        behaviour_lp: vec![0.0; 2],
        ..Span::default()
    };
    let batch = TrainBatch {
        spans: vec![prompt],
        tokens: 0,
    };
    let stats = loss_of(
        trainer
            .execute(TrainCommand::ForwardBackward {
                seq: 0,
                batch,
                loss: POLICY,
            })
            .unwrap(),
    );
    assert_eq!(stats, LossStats::default());
}
