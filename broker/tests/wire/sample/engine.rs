//! Messages to and from an engine.

use broker::ids::RequestId;
use broker::protocol::engine::{
    EngineAnswer, EngineCommand, EngineEvent, EngineFault, EngineJob, EngineOutput, EngineProgress, Ids, JobFrame,
    StateId, TopLogprob, WavePart,
};
use broker::protocol::failure::Failure;
use broker::protocol::turn::{Finish, LogProbs};

use super::{GROUP, span, times, turn_frame, version};

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
    let made = EngineOutput {
        output_ids: vec![6, 7, 8],
        logprobs: vec![-0.5, -1.25, -0.0],
        logprobs_of: LogProbs::Raw,
        spans: vec![span(0, 2), span(2, 3)],
        oldest_kv: version(1, 39),
        reused: 2,
        finish: Finish::Stop,
        times: times(),
    };
    let request = RequestId([0x55; 16]);
    let answer = |result| EngineAnswer {
        batch: 7,
        request,
        result,
    };
    let likely = |id, logprob| TopLogprob { id, logprob };
    let progress = |end| EngineProgress {
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
        EngineEvent::Progress(vec![
            progress(None),
            progress(Some(Ok(Finish::Length))),
            progress(Some(Err(fault))),
        ]),
    ]
}
