//! Activation checkpointing gives exactly the same gradients. Shared beginnings of rows, with any
//! number of rows at once.

use broker::protocol::train::Surrogate;
use configs::Dtype;

use super::*;
use crate::model::{LoraShape, Module};

/// Groups with prompts long enough to be computed once, and a conversation that continues.
fn long_batch() -> TrainBatch {
    let mut spans = Vec::new();
    for group in 0..2u32 {
        let parent = spans.len() as u32;
        let ids = |n: u32, salt: u32| {
            (0..n)
                .map(|i| (i * 7 + i * i + salt * 5 + group) % 24)
                .collect::<Vec<u32>>()
        };
        spans.push(Span {
            ids: ids(18, 1),
            mask: vec![false; 18],
            behaviour_lp: vec![0.0; 18],
            ..Span::default()
        });
        for member in 0..4u32 {
            let n = 2 + (member * 3 + group) % 6;
            spans.push(Span {
                parent: Some(parent),
                ids: ids(n, 2 + member),
                mask: vec![true; n as usize],
                behaviour_lp: vec![-2.5; n as usize],
                advantage: member as f32 - 1.5,
                answer: 4 * group + member,
                weight: 1.0 / 40.0,
                temperature: 1.0,
                ..Span::default()
            });
        }
    }
    TrainBatch { spans, tokens: 40 }
}

fn gradient(
    make: &impl Fn(TrainerOptions) -> Trainer,
    budget: usize,
    loss: &Loss,
    checkpoint: bool,
) -> (Vec<f32>, LossStats) {
    let mut trainer = make(TrainerOptions {
        micro_batch_tokens: budget,
        checkpoint_activations: checkpoint,
        ..defaults()
    });
    let (batch, loss) = (long_batch(), *loss);
    let stats = loss_of(
        trainer
            .execute(TrainCommand::ForwardBackward { seq: 0, batch, loss })
            .unwrap(),
    );
    (trainer.model.grad().try_into().unwrap(), stats)
}

fn check(make: impl Fn(TrainerOptions) -> Trainer) {
    tch::set_num_threads(1);
    let sequences = Loss::Policy(Policy {
        surrogate: Surrogate::Gspo { low: 0.2, high: 0.28 },
        ..Policy::clipped(0.2, 0.28)
    });
    for loss in [POLICY, sequences] {
        for budget in [30, 4096] {
            let (plain, stats) = gradient(&make, budget, &loss, false);
            let (again, measured) = gradient(&make, budget, &loss, true);
            assert!(plain.iter().any(|g| *g != 0.0));
            let at = format!("of {loss:?} in micro-batches of {budget}");
            if of_tests() == tch::Device::Cpu {
                assert_eq!(plain, again, "{at}");
                assert_eq!(stats, measured);
            } else {
                // Some backward kernels of a GPU add in any order.
                let gap = gap(&plain, &again);
                assert!(gap < 1e-6, "{at}: {gap}");
                assert_eq!(stats.tokens, measured.tokens);
            }
        }
    }
}

fn norm(values: &[f32]) -> f64 {
    values.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>().sqrt()
}

/// The norm of the difference, as a share of the first gradient's norm.
fn gap(one: &[f32], other: &[f32]) -> f64 {
    let gap: Vec<f32> = one.iter().zip(other).map(|(a, b)| a - b).collect();
    norm(&gap) / norm(one)
}

/// The number of rows computed at once decides how many share a beginning. It changes the gradient
/// only by rounding.
fn same_in_micro_batches(make: impl Fn(TrainerOptions) -> Trainer) {
    tch::set_num_threads(1);
    let (alone, stats) = gradient(&make, 1, &POLICY, false);
    assert!(norm(&alone) > 0.0);
    for budget in [30, 4096] {
        let (shared, measured) = gradient(&make, budget, &POLICY, false);
        assert_ne!(alone, shared, "a row by itself was computed otherwise");
        let gap = gap(&alone, &shared);
        assert!(gap < 1e-6, "in micro-batches of {budget}: {gap}");
        assert_eq!(stats.tokens, measured.tokens);
        assert!((stats.loss - measured.loss).abs() < 1e-6, "{stats:?}, {measured:?}");
    }
}

#[test]
fn shared_beginnings_have_one_gradient_in_any_micro_batch() {
    for tied in [false, true] {
        same_in_micro_batches(|options| Trainer::new(shape(tied), weights(&shape(tied)), options).unwrap());
    }
}

#[test]
fn so_they_have_under_adapters() {
    same_in_micro_batches(|options| {
        Trainer::with_base(shape(false), weights(&shape(false)), moved(&Module::ALL), options).unwrap()
    });
}

/// An adapter of some modules that already changes its base.
fn moved(modules: &[Module]) -> Weights {
    let lora = LoraShape {
        rank: 2,
        alpha: 4.0,
        targets: modules.iter().copied().collect(),
    };
    let adapter = Weights::adapter(&shape(false), &lora, 5).unwrap();
    let _guard = tch::no_grad_guard();
    let _ = adapter.flat().shallow_clone().f_add_scalar_(0.01).unwrap();
    adapter
}

fn weights(shape: &ModelShape) -> Weights {
    let init = Init {
        embedding_std: 1.0,
        matrix_std: 0.2,
    };
    let weights = Weights::random(shape, init, 3).unwrap();
    weights.copied_to(of_tests(), Dtype::F32).unwrap()
}

#[test]
fn a_recomputed_layer_has_the_same_gradient_bit_for_bit() {
    for tied in [false, true] {
        check(|options| Trainer::new(shape(tied), weights(&shape(tied)), options).unwrap());
    }
}

/// Products of sizes that are computed differently when a gradient is needed.
#[test]
fn a_recomputed_layer_has_the_same_gradient_with_large_products() {
    let wide = ModelShape {
        hidden: 384,
        head_dim: 96,
        intermediate: 768,
        ..shape(false)
    };
    check(|options| Trainer::new(wide.clone(), weights(&wide), options).unwrap());
}

#[test]
fn so_it_has_in_bf16() {
    check(|options| {
        let options = TrainerOptions {
            dtype: Dtype::Bf16,
            ..options
        };
        Trainer::new(shape(false), weights(&shape(false)), options).unwrap()
    });
}

#[test]
fn recomputed_adapters_of_any_modules_have_the_same_gradient() {
    for modules in [&Module::ALL[..], &[Module::Down], &[Module::Head]] {
        check(|options| Trainer::with_base(shape(false), weights(&shape(false)), moved(modules), options).unwrap());
    }
}
