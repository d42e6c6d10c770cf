//! One message of every binary type, with every variant and without defaults.

mod engine;
mod train;

use std::time::Duration;

use broker::ids::{Attempt, Digest, GroupId, RequestId, WeightVersion};
use broker::protocol::bundle::{Bundle, BundleContent, RewardPart, Row, Sample, SampleStatus, Segment};
use broker::protocol::failure::{Failure, FailureCode};
use broker::protocol::reserve::{Reserve, ReserveAnswer, ReserveAnswerFrame, ReserveFrame, ReserveVerdict};
use broker::protocol::turn::{
    EngineTimes, Finish, Generation, LogProbs, Message, ResultFrame, Sampling, TimedResult, TurnFrame, TurnOutcome,
    TurnPrompt, TurnRequest, TurnResult, VersionSpan, Wave,
};

pub(crate) use self::engine::{engine_commands, engine_events};
pub(crate) use self::train::{train_commands, train_replies};

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
        prompts: vec![TurnPrompt {
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
            is_recorded: true,
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

pub(crate) fn times() -> EngineTimes {
    EngineTimes {
        queue: Duration::from_micros(5),
        prompt: Duration::from_millis(6),
        decode: Duration::from_secs(7),
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
            TimedResult {
                result: result(2, TurnOutcome::Done(generation())),
                times: Some(times()),
            },
            result(3, engine).into(),
            result(4, weights).into(),
            result(5, context).into(),
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
