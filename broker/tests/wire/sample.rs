//! One message of every binary type, with every variant and no default in it.

use broker::ids::{Attempt, Digest, GroupId, RequestId, WeightVersion};
use broker::protocol::bundle::{Bundle, BundleContent, RewardPart, Row, Sample, SampleStatus, Segment};
use broker::protocol::engine::{
    EngineAnswer, EngineCommand, EngineEvent, EngineFault, EngineJob, EngineMade, EngineTold, Ids, JobFrame, StateId,
    TopLogprob, WavePart,
};
use broker::protocol::failure::{Failure, FailureCode};
use broker::protocol::reserve::{Reserve, ReserveAnswer, ReserveAnswerFrame, ReserveFrame, ReserveVerdict};
use broker::protocol::train::{
    Drawn, Loss, LossStats, M2poMode, M2poScope, OptimStep, Policy, RoleLoss, SampleParams, Span, Surrogate,
    TrainBatch, TrainCommand, TrainReply, Whose,
};
use broker::protocol::turn::{
    Finish, Generation, LogProbs, Message, Prompt, ResultFrame, Sampling, TurnFrame, TurnOutcome, TurnRequest,
    TurnResult, VersionSpan, Wave,
};

pub(crate) const GROUP: GroupId = GroupId([0x11; 16]);
pub(crate) const ATTEMPT: Attempt = Attempt([0x22; 16]);
pub(crate) const DIGEST: Digest = Digest([0x33; 16]);

pub(crate) const fn version(lineage: u32, step: u64) -> WeightVersion {
    WeightVersion { lineage, step }
}

pub(crate) fn span(start: u32, end: u32) -> VersionSpan {
    VersionSpan {
        version: version(2, 40 + u64::from(start)),
        start,
        end,
    }
}

pub(crate) fn turn_frame() -> TurnFrame {
    TurnFrame {
        reply_to: "c-7".into(),
        wave: Some(Wave { id: 9, total: 3 }),
        prompts: vec![Prompt {
            held: vec![1, 2, 70_000],
            sampled: 2,
            messages: vec![Message::system("Sei kurz."), Message::user("2 + 2 = ? \u{1F914}")],
        }],
        samplings: vec![Sampling {
            temperature: 0.5,
            top_p: 1.0,
            top_k: 4,
            min_p: 0.25,
            max_new_tokens: 128,
            max_context: Some(4096),
            stop: vec!["\n\n".into()],
        }],
        requests: vec![TurnRequest {
            request: RequestId([0x44; 16]),
            group: GROUP,
            attempt: ATTEMPT,
            member: 3,
            role: "solver".into(),
            seat: 1,
            turn: 2,
            prompt: 0,
            sampling: 0,
            seed: u64::MAX - 1,
            order: 17,
        }],
    }
}

pub(crate) fn generation() -> Generation {
    Generation {
        kept: 5,
        prompt_ids: vec![1, 2, 70_000, 5],
        output_ids: vec![6, 7, 8],
        logprobs: vec![-0.5, -1.25, -0.0],
        logprobs_of: LogProbs::Truncated,
        spans: vec![span(0, 2), span(2, 3)],
        oldest_kv: version(1, 39),
        temperature: 0.5,
        finish: Finish::Stop,
        text: "4".into(),
    }
}

pub(crate) fn result_frame() -> ResultFrame {
    let result = |turn, outcome| TurnResult {
        request: RequestId([0x55; 16]),
        group: GROUP,
        attempt: ATTEMPT,
        member: 3,
        role: "solver".into(),
        seat: 1,
        turn,
        outcome,
    };
    let failed = |failure, retry| TurnOutcome::Failed { failure, retry };
    let engine = failed(Failure::engine("engine stopped"), true);
    let weights = failed(Failure::not_finite(version(2, 40), "no logits"), true);
    let context = failed(Failure::context("70 tokens"), false);
    ResultFrame {
        agent: "a".into(),
        wave: None,
        results: vec![
            result(2, TurnOutcome::Done(generation())),
            result(3, engine),
            result(4, weights),
            result(5, context),
        ],
    }
}

pub(crate) fn row() -> Row {
    let segment = |start, len| Segment {
        start,
        len,
        temperature: 1.0,
        logprobs_of: LogProbs::Sampled,
        spans: vec![span(0, len)],
        oldest_kv: version(1, 39),
    };
    Row {
        ids: vec![1, 2, 3, 4, 5, 6, 7],
        segments: vec![segment(2, 2), segment(5, 1)],
        logprobs: vec![-0.5, -0.25, -2.0],
    }
}

pub(crate) fn bundle() -> Bundle {
    Bundle {
        group: GROUP,
        task: "jsonl/0/12".into(),
        order: 12,
        attempt: ATTEMPT,
        digest: DIGEST,
        part: 1,
        parts: 2,
        conversations: 8,
        content: BundleContent::Samples(vec![Sample {
            member: 3,
            role: "solver".into(),
            seat: 1,
            subkey: "p2".into(),
            target: Some("42".into()),
            status: SampleStatus::Truncated,
            reward: 0.75,
            parts: vec![RewardPart {
                name: "correct".into(),
                value: 1.0,
            }],
            rows: vec![row()],
        }]),
    }
}

pub(crate) fn empty_bundle() -> Bundle {
    Bundle {
        part: 0,
        parts: 1,
        content: BundleContent::Empty {
            reason: "too few valid conversations".into(),
        },
        ..bundle()
    }
}

pub(crate) fn dead_bundle() -> Bundle {
    Bundle {
        content: BundleContent::Dead {
            reason: "dead: crashed: 3 deaths".into(),
        },
        ..empty_bundle()
    }
}

pub(crate) fn failures() -> Vec<Failure> {
    let codes = [
        FailureCode::Other,
        FailureCode::Context,
        FailureCode::Request,
        FailureCode::Engine,
        FailureCode::NotFinite {
            version: version(2, 40),
        },
        FailureCode::TooLarge,
        FailureCode::Crashed,
        FailureCode::Abandoned,
    ];
    codes.map(|code| Failure::new(code, "x")).into()
}

pub(crate) fn reserve_frame() -> ReserveFrame {
    ReserveFrame {
        reply_to: "c-7".into(),
        requests: vec![Reserve {
            group: GROUP,
            task: "t-1".into(),
            order: 12,
            body: b"{\"prompt\":\"x\"}".to_vec(),
            seal: Some(broker::seal::Seal([9; 32])),
        }],
    }
}

pub(crate) fn reserve_answers() -> ReserveAnswerFrame {
    let verdicts = [
        ReserveVerdict::Granted,
        ReserveVerdict::Later,
        ReserveVerdict::Closed {
            attempt: ATTEMPT,
            digest: DIGEST,
        },
        ReserveVerdict::Dead {
            reason: "poison".into(),
        },
    ];
    ReserveAnswerFrame {
        agent: "b".into(),
        answers: verdicts.map(|verdict| ReserveAnswer { group: GROUP, verdict }).to_vec(),
    }
}

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
            whose: Whose::Reference,
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

fn job_frame(wave: Option<WavePart>) -> JobFrame {
    JobFrame {
        batch: 7,
        wave,
        prompts: vec![Ids {
            ids: vec![1, 2, 70_000],
        }],
        samplings: turn_frame().samplings,
        jobs: vec![EngineJob {
            request: RequestId([0x44; 16]),
            group: GROUP,
            member: 3,
            prompt: 0,
            sampling: 0,
            seed: u64::MAX - 1,
            keep: true,
        }],
    }
}

fn state_id() -> StateId {
    StateId {
        version: version(2, 40),
        digest: [0x66; 32],
    }
}

pub(crate) fn engine_commands() -> Vec<EngineCommand> {
    vec![
        EngineCommand::Generate(job_frame(None)),
        EngineCommand::Generate(job_frame(Some(WavePart { more: true }))),
        EngineCommand::Visit {
            frame: job_frame(None),
            watched: vec![true],
            top: vec![3],
        },
        EngineCommand::Leave(vec![RequestId([0x44; 16])]),
        EngineCommand::Announce(state_id()),
        EngineCommand::Pin(true),
    ]
}

pub(crate) fn engine_events() -> Vec<EngineEvent> {
    let fault = EngineFault {
        cause: Failure::engine("engine stopped"),
        retry: true,
    };
    let weights = EngineFault {
        cause: Failure::not_finite(version(2, 40), "no logits"),
        retry: true,
    };
    let made = EngineMade {
        output_ids: vec![6, 7, 8],
        logprobs: vec![-0.5, -1.25, -0.0],
        logprobs_of: LogProbs::Raw,
        spans: vec![span(0, 2), span(2, 3)],
        oldest_kv: version(1, 39),
        reused: 2,
        finish: Finish::Stop,
    };
    let request = RequestId([0x55; 16]);
    let answer = |result| EngineAnswer {
        batch: 7,
        request,
        result,
    };
    let likely = |id, logprob| TopLogprob { id, logprob };
    let told = |end| EngineTold {
        request,
        ids: vec![6],
        logprobs: vec![-0.5],
        top: vec![vec![likely(6, -0.5), likely(70_000, -1.5)]],
        spans: vec![span(0, 1)],
        end,
    };
    vec![
        EngineEvent::Alive,
        EngineEvent::Serving(state_id()),
        EngineEvent::Refused {
            version: version(2, 41),
            reason: "no memory".into(),
        },
        EngineEvent::Finished(vec![answer(Ok(made)), answer(Err(fault.clone())), answer(Err(weights))]),
        EngineEvent::Told(vec![told(None), told(Some(Ok(Finish::Length))), told(Some(Err(fault)))]),
    ]
}
