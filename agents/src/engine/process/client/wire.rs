//! Converts jobs and answers to and from the messages between an agent and an engine process.

use std::collections::HashMap;
use std::sync::Arc;

use broker::codec::CodecError;
use broker::ids::RequestId;
use broker::protocol::engine::{
    EngineAnswer, EngineCommand, EngineFault, EngineJob, EngineOutput, EngineProgress, Ids, JobFrame, WavePart,
};
use broker::protocol::failure::Failure;
use broker::protocol::turn::Sampling;

use crate::engine::{EngineFailure, Finished, GenerationJob, GenerationOutput, Visit, VisitUpdate};

/// Size in bytes at which a frame is closed.
const FULL: usize = 4 << 20;
/// Approximate bytes of a record, without its lists of numbers.
const RECORD: usize = 128;

/// Packs jobs that were asked together into frames, in order.
pub(crate) fn frames<'a>(batch: u64, jobs: impl IntoIterator<Item = &'a GenerationJob>, wave: bool) -> Vec<JobFrame> {
    let (mut frames, mut current) = (Vec::new(), Packing::default());
    for job in jobs {
        if current.bytes >= FULL {
            frames.push(std::mem::take(&mut current).frame(batch, wave.then_some(WavePart { more: true })));
        }
        current.put(job);
    }
    if !current.jobs.is_empty() {
        frames.push(current.frame(batch, wave.then_some(WavePart { more: false })));
    }
    frames
}

#[derive(Default)]
struct Packing {
    places: HashMap<Arc<[u32]>, u32>,
    prompts: Vec<Ids>,
    samplings: Vec<Arc<Sampling>>,
    jobs: Vec<EngineJob>,
    bytes: usize,
}

impl Packing {
    fn put(&mut self, job: &GenerationJob) {
        let known = self.places.get(&job.prompt_ids).copied();
        let prompt = known.unwrap_or_else(|| {
            let place = self.prompts.len() as u32;
            self.bytes += 4 * job.prompt_ids.len();
            self.places.insert(job.prompt_ids.clone(), place);
            self.prompts.push(Ids {
                ids: job.prompt_ids.to_vec(),
            });
            place
        });
        let same = |known: &Arc<Sampling>| Arc::ptr_eq(known, &job.sampling) || **known == *job.sampling;
        let sampling = self.samplings.iter().rposition(same).unwrap_or_else(|| {
            self.samplings.push(job.sampling.clone());
            self.samplings.len() - 1
        });
        self.bytes += RECORD;
        self.jobs.push(EngineJob {
            request: job.request,
            group: job.group,
            member: job.member,
            prompt,
            sampling: sampling as u32,
            seed: job.seed,
            keep: job.keep,
        });
    }

    fn frame(self, batch: u64, wave: Option<WavePart>) -> JobFrame {
        JobFrame {
            batch,
            wave,
            prompts: self.prompts,
            samplings: self.samplings.iter().map(|sampling| (**sampling).clone()).collect(),
            jobs: self.jobs,
        }
    }
}

/// Returns the jobs of a frame; `None` if one refers to a missing prompt or sampling.
pub(crate) fn jobs(frame: JobFrame) -> Option<Vec<GenerationJob>> {
    let prompts: Vec<Arc<[u32]>> = frame.prompts.into_iter().map(|prompt| prompt.ids.into()).collect();
    let samplings: Vec<Arc<Sampling>> = frame.samplings.into_iter().map(Arc::new).collect();
    let job = |job: EngineJob| {
        Some(GenerationJob {
            request: job.request,
            group: job.group,
            member: job.member,
            prompt_ids: prompts.get(job.prompt as usize)?.clone(),
            sampling: samplings.get(job.sampling as usize)?.clone(),
            seed: job.seed,
            keep: job.keep,
        })
    };
    frame.jobs.into_iter().map(job).collect()
}

/// Packs visits into commands, one frame per command.
pub(crate) fn visits(visits: &[Visit]) -> Vec<EngineCommand> {
    let mut rest = visits;
    let command = |frame: JobFrame| {
        let (these, others) = rest.split_at(frame.jobs.len().min(rest.len()));
        rest = others;
        EngineCommand::Visit {
            frame,
            watched: these.iter().map(|visit| visit.watched).collect(),
            top: these.iter().map(|visit| visit.top).collect(),
        }
    };
    let jobs = visits.iter().map(|visit| &visit.job);
    frames(0, jobs, false).into_iter().map(command).collect()
}

/// Packs answers, each with its batch, into lists within the size limit of an event.
pub(crate) fn answers(finished: impl IntoIterator<Item = (u64, Finished)>) -> Vec<Vec<EngineAnswer>> {
    let mut lists: Vec<Vec<EngineAnswer>> = Vec::new();
    let mut bytes = FULL;
    for (batch, one) in finished {
        if bytes >= FULL {
            lists.push(Vec::new());
            bytes = 0;
        }
        bytes += RECORD + one.result.as_ref().map_or(0, |made| 8 * made.output_ids.len());
        if let Some(list) = lists.last_mut() {
            list.push(answer(batch, one));
        }
    }
    lists
}

fn answer(batch: u64, one: Finished) -> EngineAnswer {
    let made = |made: GenerationOutput| EngineOutput {
        output_ids: made.output_ids,
        logprobs: made.logprobs,
        logprobs_of: made.logprobs_of,
        spans: made.spans,
        oldest_kv: made.oldest_kv,
        reused: made.reused as u64,
        finish: made.finish,
        times: made.times.unwrap_or_default(),
    };
    EngineAnswer {
        batch,
        request: one.job.request,
        result: one.result.map(made).map_err(fault),
    }
}

fn fault(failure: EngineFailure) -> EngineFault {
    EngineFault {
        cause: failure.cause,
        retry: failure.retry,
    }
}

fn failure(fault: EngineFault) -> EngineFailure {
    EngineFailure {
        cause: fault.cause,
        retry: fault.retry,
    }
}

/// Returns the failure that replaces an answer no healthy engine sends.
pub(crate) fn untrue(error: &CodecError) -> EngineFailure {
    EngineFailure {
        cause: Failure::engine(format_args!("its answer cannot be true: {error}")),
        retry: true,
    }
}

/// An engine's answer to a request in a batch.
pub(crate) struct Answer {
    pub(crate) batch: u64,
    pub(crate) request: RequestId,
    pub(crate) result: Result<GenerationOutput, EngineFailure>,
}

/// Converts an engine's answer. An answer that no healthy engine sends becomes a failure.
pub(crate) fn made(answer: EngineAnswer) -> Answer {
    let sound = |made: EngineOutput| match made.validate() {
        Ok(()) => Ok(GenerationOutput {
            output_ids: made.output_ids,
            logprobs: made.logprobs,
            logprobs_of: made.logprobs_of,
            top: Vec::new(),
            spans: made.spans,
            oldest_kv: made.oldest_kv,
            reused: usize::try_from(made.reused).unwrap_or(0),
            finish: made.finish,
            times: Some(made.times),
        }),
        Err(error) => Err(untrue(&error)),
    };
    Answer {
        batch: answer.batch,
        request: answer.request,
        result: answer.result.map_err(failure).and_then(sound),
    }
}

pub(crate) fn update_to_wire(update: VisitUpdate) -> EngineProgress {
    EngineProgress {
        request: update.request,
        ids: update.ids,
        logprobs: update.logprobs,
        top: update.top,
        spans: update.spans,
        end: update.end.map(|end| end.map_err(fault)),
    }
}

pub(crate) fn update_from_wire(update: EngineProgress) -> VisitUpdate {
    VisitUpdate {
        request: update.request,
        ids: update.ids,
        logprobs: update.logprobs,
        top: update.top,
        spans: update.spans,
        prompt: None,
        end: update.end.map(|end| end.map_err(failure)),
    }
}
