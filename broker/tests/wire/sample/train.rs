//! Messages to and from a trainer.

use broker::protocol::train::{
    Drawn, ForwardWeights, Loss, LossStats, M2poMode, M2poScope, OptimStep, Policy, RoleLoss, SampleParams, Span,
    Surrogate, TrainBatch, TrainCommand, TrainReply,
};
use broker::protocol::turn::Finish;

use super::version;

pub(crate) fn train_commands() -> Vec<TrainCommand> {
    let batch = TrainBatch {
        spans: vec![Span {
            parent: Some(0),
            ids: vec![1, 2],
            mask: vec![false, true],
            behaviour_lp: vec![0.0, -0.5],
            old_lp: vec![0.0, -0.25],
            advantage: -1.5,
            advantages: vec![0.0, -1.25],
            answer: 3,
            role: 1,
            weight: 0.125,
            temperature: 1.0,
            on_policy: true,
        }],
        tokens: 1,
    };
    let policy = Loss::Policy(Policy {
        kl_coef: 0.001,
        entropy_coef: 0.01,
        behaviour_cap: Some(4.0),
        ..Policy::clipped(0.2, 0.28)
    });
    let of = |surrogate| {
        Loss::Policy(Policy {
            surrogate,
            ..Policy::clipped(0.0, 0.0)
        })
    };
    let m2po = Surrogate::M2po {
        mode: M2poMode::Mask,
        budget: 0.04,
        scope: M2poScope::Microbatch,
    };
    let params = OptimStep {
        lr: 3e-4,
        beta1: 0.9,
        beta2: 0.95,
        eps: 1e-8,
        weight_decay: 0.01,
        clip_norm: 1.0,
    };
    vec![
        TrainCommand::ForwardBackward {
            seq: 1,
            batch: batch.clone(),
            loss: policy,
        },
        TrainCommand::ForwardBackward {
            seq: 2,
            batch: batch.clone(),
            loss: Loss::CrossEntropy,
        },
        TrainCommand::OptimStep { seq: 3, params },
        TrainCommand::Forward {
            seq: 4,
            batch: batch.clone(),
            weights: ForwardWeights::Reference,
        },
        TrainCommand::SaveState {
            seq: 5,
            path: "step-1".into(),
            meta: "{}".into(),
        },
        TrainCommand::LoadState {
            seq: 6,
            path: "step-1".into(),
        },
        TrainCommand::Publish {
            seq: 7,
            version: version(2, 40),
        },
        TrainCommand::ForwardBackward {
            seq: 8,
            batch: batch.clone(),
            loss: of(Surrogate::Gspo { low: 3e-4, high: 4e-4 }),
        },
        TrainCommand::ForwardBackward {
            seq: 9,
            batch,
            loss: of(m2po),
        },
        TrainCommand::Sample {
            seq: 10,
            prompts: vec![vec![1, 2, 70_000], vec![]],
            params: SampleParams {
                temperature: 0.7,
                top_p: 0.95,
                top_k: 20,
                min_p: 0.05,
                max_new_tokens: 16,
                stop_ids: vec![0],
                seed: u64::MAX - 1,
            },
        },
    ]
}

pub(crate) fn train_replies() -> Vec<TrainReply> {
    let stats = LossStats {
        loss: 0.5,
        tokens: 64.0,
        ratio: 64.25,
        clipped: 2.0,
        entropy: 10.0,
        behaviour_kl: 0.125,
        reference_kl: 0.25,
        on_policy_gap: 1e-6,
        off_policy_gap: 0.5,
        bounded: 12.0,
        second_moment: 0.75,
        kept: 10.0,
        second_moment_kept: 0.25,
        by_role: vec![
            RoleLoss::default(),
            RoleLoss {
                tokens: 64.0,
                ratio: 64.25,
                clipped: 2.0,
                entropy: 10.0,
                behaviour_kl: 0.125,
                reference_kl: 0.25,
                largest_ratio: 1.5,
                on_policy_gap: 1e-6,
                off_policy_gap: 0.5,
                on_policy_tokens: 48.0,
                off_policy_tokens: 16.0,
            },
        ],
    };
    vec![
        TrainReply::Loss(stats),
        TrainReply::Step {
            grad_norm: 1.5,
            skipped: true,
        },
        TrainReply::LogProbs(vec![vec![-0.5], vec![]]),
        TrainReply::Saved { digest: "d1".into() },
        TrainReply::Loaded { meta: "{}".into() },
        TrainReply::Published,
        TrainReply::Samples {
            version: Some(version(2, 40)),
            answers: vec![Drawn {
                ids: vec![6, 7],
                logprobs: vec![-0.5, -0.0],
                finish: Finish::Length,
            }],
        },
    ]
}
