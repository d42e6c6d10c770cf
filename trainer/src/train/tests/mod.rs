//! Tests of the whole trainer.

mod adapted_base;
mod average;
mod joint;
mod learn;
mod parity;
mod parity_lora;
mod parity_losses;
mod parity_models;
mod ranks;
mod recompute;
mod resume;
mod roles;
mod sample;
mod step;
mod warm;

use broker::protocol::train::{Loss, LossStats, OptimStep, Policy, Span, TrainBatch, TrainCommand, TrainReply};

use super::{TrainError, Trainer, TrainerClient, TrainerOptions};
use crate::device::of_tests;
use crate::model::{Architecture, Biases, Init, ModelShape, Rope, Weights};

const POLICY: Loss = Loss::Policy(Policy {
    entropy_coef: 0.02,
    ..Policy::clipped(0.2, 0.28)
});

pub(super) const OPTIM: OptimStep = OptimStep {
    lr: 3e-3,
    beta1: 0.9,
    beta2: 0.99,
    eps: 1e-8,
    weight_decay: 0.1,
    clip_norm: 1.0,
};

fn shape(tied: bool) -> ModelShape {
    ModelShape {
        arch: Architecture::Qwen3,
        biases: Biases::default(),
        vocab: 24,
        layers: 2,
        hidden: 16,
        heads: 4,
        kv_heads: 2,
        head_dim: 4,
        intermediate: 24,
        max_context: 32,
        rms_eps: 1e-6,
        rope: Rope::plain(10_000.0),
        tied,
        bos: None,
        eos: vec![0],
        pad: None,
    }
}

/// The default options, on the device of the tests.
pub(in crate::train) fn defaults() -> TrainerOptions {
    TrainerOptions {
        device: of_tests(),
        ..TrainerOptions::default()
    }
}

fn trainer(seed: u64, options: TrainerOptions) -> Trainer {
    let init = Init {
        embedding_std: 1.0,
        matrix_std: 0.2,
    };
    let weights = Weights::random(&shape(false), init, seed).unwrap();
    Trainer::new(shape(false), weights, options).unwrap()
}

/// Three groups of a prompt and four completions of mixed lengths; `round` changes all of them.
pub(in crate::train) fn batch(round: u32) -> TrainBatch {
    let mut spans = Vec::new();
    for group in 0..3u32 {
        let parent = spans.len() as u32;
        let ids = |n: u32, salt: u32| {
            (0..n)
                .map(|i| (i * 7 + salt * 5 + round * 3 + group) % 24)
                .collect::<Vec<u32>>()
        };
        spans.push(Span {
            ids: ids(2 + group, 1),
            mask: vec![false; 2 + group as usize],
            behaviour_lp: vec![0.0; 2 + group as usize],
            ..Span::default()
        });
        for member in 0..4u32 {
            let n = (1 + (member * 3 + group) % 6) as usize;
            spans.push(Span {
                parent: Some(parent),
                ids: ids(n as u32, 2 + member),
                mask: vec![true; n],
                behaviour_lp: vec![-2.5; n],
                old_lp: Vec::new(),
                advantage: member as f32 - 1.5,
                advantages: Vec::new(),
                answer: 4 * group + member,
                role: (member % 2) as u16,
                weight: 1.0 / 40.0,
                temperature: if member == 2 { 0.8 } else { 1.0 },
                on_policy: false,
            });
        }
    }
    TrainBatch { spans, tokens: 40 }
}

fn loss_of(reply: TrainReply) -> LossStats {
    match reply {
        TrainReply::Loss(stats) => stats,
        other => panic!("{other:?}"),
    }
}

/// One optimizer step on `batch(round)`, as commands `2 round` and `2 round + 1`.
fn train(trainer: &mut Trainer, round: u32) {
    let seq = 2 * u64::from(round);
    let (batch, loss) = (batch(round), POLICY);
    trainer
        .execute(TrainCommand::ForwardBackward { seq, batch, loss })
        .unwrap();
    let params = OPTIM;
    let reply = trainer
        .execute(TrainCommand::OptimStep { seq: seq + 1, params })
        .unwrap();
    assert!(matches!(reply, TrainReply::Step { skipped: false, .. }));
}

fn digest(trainer: &Trainer) -> String {
    trainer.weights().digest().unwrap().to_hex().to_string()
}

fn user(error: TrainError) -> String {
    assert!(matches!(error, TrainError::User { .. }), "{error}");
    error.to_string()
}
