//! Several ranks compute the gradient of one rank, for every loss.

use broker::protocol::train::{ForwardWeights, Kl, M2poMode, M2poScope, Policy, Surrogate};
use configs::{Dtype, Offload};
use tch::{Device, Kind, Tensor};

use super::*;
use crate::train::TrainerClient;
use crate::train::tests::{Loss, OPTIM, OptimStep, TrainBatch, TrainCommand, TrainReply, batch, loss_of};

/// Relative to the gradient's norm.
const GAP: f64 = 1e-6;

struct Case {
    name: String,
    loss: Loss,
    batch: TrainBatch,
    clip_norm: f64,
}

fn case(name: &str, surrogate: Surrogate, change: impl FnOnce(&mut Policy)) -> Case {
    let mut policy = Policy {
        surrogate,
        entropy_coef: 0.02,
        ..Policy::clipped(0.0, 0.0)
    };
    change(&mut policy);
    Case {
        name: name.into(),
        loss: Loss::Policy(policy),
        batch: batch(0),
        clip_norm: 0.0,
    }
}

/// Answers of two rows each, which are in different micro-batches.
fn torn() -> TrainBatch {
    let mut batch = batch(0);
    for span in batch.spans.iter_mut().filter(|span| span.mask.contains(&true)) {
        span.answer %= 5;
        span.advantage = span.answer as f32 - 1.7;
    }
    batch
}

fn cases() -> Vec<Case> {
    let clipped = |dual| Surrogate::Clipped {
        low: 0.2,
        high: 0.28,
        dual,
    };
    let gspo = Surrogate::Gspo { low: 0.3, high: 0.3 };
    let mut cases = vec![
        case("clipped", clipped(None), |_| {}),
        case("dual", clipped(Some(1.5)), |_| {}),
        case("decoupled", clipped(None), |policy| policy.behaviour_cap = Some(2.0)),
        case("importance", Surrogate::ImportanceSampling, |_| {}),
        case("cispo", Surrogate::Cispo { low: 0.5, high: 1.0 }, |_| {}),
        case("dro", Surrogate::Dro { beta: 0.3 }, |_| {}),
        case("gspo", gspo, |_| {}),
        Case {
            batch: torn(),
            ..case("torn-gspo", gspo, |_| {})
        },
        Case {
            loss: Loss::CrossEntropy,
            ..case("cross-entropy", clipped(None), |_| {})
        },
        Case {
            clip_norm: 1e-3,
            ..case("small-norm", clipped(None), |_| {})
        },
    ];
    for (kl, name) in [(Kl::K1, "k1"), (Kl::K2, "k2"), (Kl::K3, "k3")] {
        cases.push(case(name, clipped(None), |policy| {
            policy.kl = kl;
            policy.kl_coef = 0.1;
        }));
    }
    for mode in [M2poMode::Clip, M2poMode::Cap, M2poMode::Mask] {
        for scope in [M2poScope::Minibatch, M2poScope::Microbatch] {
            let surrogate = Surrogate::M2po {
                mode,
                budget: 0.3,
                scope,
            };
            cases.push(case(&format!("m2po-{mode:?}-{scope:?}"), surrogate, |_| {}));
        }
    }
    cases
}

/// The results of a step.
struct Made {
    stats: broker::protocol::train::LossStats,
    norm: f64,
    logprobs: Vec<Vec<f32>>,
}

/// Moves the weights away from the reference, then takes one step of the case.
fn step(trainer: &mut Trainer, case: &Case) -> Made {
    trainer.take_reference().unwrap();
    let mut execute = |command| trainer.execute(command).unwrap();
    let (batch, weights) = (case.batch.clone(), ForwardWeights::Trained);
    let TrainReply::LogProbs(logprobs) = execute(TrainCommand::Forward { seq: 0, batch, weights }) else {
        panic!("a forward pass gives log-probs");
    };
    execute(TrainCommand::ForwardBackward {
        seq: 1,
        batch: super::super::batch(3),
        loss: Loss::CrossEntropy,
    });
    // No momentum: the first moment after the second step is its gradient alone, after clipping. A
    // large eps: the first step is a smooth function of the gradient.
    let params = OptimStep {
        lr: 0.05,
        beta1: 0.0,
        beta2: 0.0,
        eps: 0.1,
        clip_norm: case.clip_norm,
        ..OPTIM
    };
    execute(TrainCommand::OptimStep { seq: 2, params });
    let (batch, loss) = (case.batch.clone(), case.loss);
    let stats = loss_of(execute(TrainCommand::ForwardBackward { seq: 3, batch, loss }));
    let reply = execute(TrainCommand::OptimStep { seq: 4, params });
    let TrainReply::Step {
        grad_norm,
        skipped: false,
    } = reply
    else {
        panic!("{reply:?}");
    };
    Made {
        stats,
        norm: grad_norm,
        logprobs,
    }
}

/// Norm of the gap, relative to the norm of `want`.
fn gap(got: &Tensor, want: &Tensor) -> f64 {
    let (got, want) = (got.to_device(Device::Cpu), want.to_device(Device::Cpu));
    let gap: Tensor = (got - &want).to_kind(Kind::Double);
    (gap.norm() / want.to_kind(Kind::Double).norm()).double_value(&[])
}

/// Compares one case and returns the gap of the gradient.
fn compare(member: &Member, case: &Case, trains: Trains, options: TrainerOptions) -> f64 {
    let TrainerOptions {
        shard, offload, dtype, ..
    } = options;
    let name = format!("{}-{trains:?}-{shard:?}-{offload:?}-{dtype:?}", case.name);
    let mut ranks = rank_of(member, &name, trains, options.clone());
    let mut made = None;
    drive(member, &mut ranks, |trainer| made = Some(step(trainer, case)));
    // The first moment without momentum is the gradient.
    let moments = ranks.whole_moments();
    let (Some(made), Some([gradient, _])) = (made, moments) else {
        return 0.0;
    };
    let mut one = alone(trains, options);
    let want = step(&mut one, case);
    let is_clipped = case.clip_norm > 0.0;
    assert!(!is_clipped || want.norm > 2.0 * case.clip_norm, "{name}: {}", want.norm);
    let gap = gap(&gradient, one.owned.optimizer.moments().0);
    assert!(gap <= GAP, "{name}: {gap}");
    assert!(
        (made.norm / want.norm - 1.0).abs() <= GAP,
        "{name}: {} {}",
        made.norm,
        want.norm
    );
    assert_eq!(made.logprobs, want.logprobs, "{name}");
    let (got, all) = (&made.stats, &want.stats);
    assert!(
        all.tokens > 30.0 && (got.tokens, got.clipped) == (all.tokens, all.clipped),
        "{name}"
    );
    for (got, want) in [(got.loss, all.loss), (got.entropy, all.entropy), (got.kept, all.kept)] {
        assert!((got - want).abs() <= 1e-6 * want.abs().max(1.0), "{name}: {got} {want}");
    }
    assert!(
        (got.second_moment - all.second_moment).abs() <= 1e-6 * all.second_moment.max(1.0),
        "{name}"
    );
    gap
}

fn parity(member: &Member) {
    tch::set_num_threads(1);
    let mut widest: f64 = 0.0;
    for (at, case) in cases().iter().enumerate() {
        for trains in BOTH {
            // Each case takes one of the ways to split the state.
            let ways = match trains {
                Trains::Whole => vec![options(false), options(true), by_gradient(), fully()],
                Trains::Adapter => vec![by_gradient(), options(false), options(true)],
            };
            let way = ways[at % ways.len()].clone();
            widest = widest.max(compare(member, case, trains, way));
        }
    }
    let clipped = &cases()[0];
    for trains in BOTH {
        for (shard, offload) in [
            (Shard::Optimizer, Offload::None),
            (Shard::Optimizer, Offload::Optimizer),
            (Shard::Gradient, Offload::None),
            (Shard::Gradient, Offload::Optimizer),
            (Shard::Full, Offload::None),
            (Shard::Full, Offload::Optimizer),
        ] {
            if trains == Trains::Adapter && shard == Shard::Full {
                continue;
            }
            let options = TrainerOptions {
                dtype: Dtype::Bf16,
                checkpoint_activations: true,
                shard,
                offload,
                ..options(true)
            };
            widest = widest.max(compare(member, clipped, trains, options));
        }
    }
    if member.rank == 0 {
        println!("{} ranks: widest gap {widest:.1e} of the gradient's norm", member.ranks);
    }
}

#[test]
fn two_ranks_have_the_gradient_of_one_for_every_loss() {
    match Member::here() {
        Some(member) => parity(&member),
        None => in_ranks(
            "train::tests::ranks::parity::two_ranks_have_the_gradient_of_one_for_every_loss",
            2,
        ),
    }
}

#[test]
#[ignore = "seven processes; two ranks are tested by default"]
fn three_and_four_ranks_have_it_too() {
    match Member::here() {
        Some(member) => parity(&member),
        None => (3..=4).for_each(|ranks| {
            in_ranks("train::tests::ranks::parity::three_and_four_ranks_have_it_too", ranks);
        }),
    }
}
