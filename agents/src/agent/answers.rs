//! Answers to turn requests: converts engine output into results and collects results for one
//! coordinator.

use std::collections::BTreeMap;
use std::sync::Arc;

use broker::protocol::turn::{Generation, TurnOutcome, TurnResult};

use crate::engine::Finished;

/// A result frame is closed above this estimate, in bytes.
const FRAME_BYTES: usize = 256 << 10;

/// Results for one coordinator, with the number of answers per frame.
#[derive(Default)]
pub(super) struct Answers {
    pub(super) results: Vec<Arc<TurnResult>>,
    pub(super) frames: BTreeMap<u64, usize>,
    bytes: usize,
}

impl Answers {
    pub(super) fn put(&mut self, frame: u64, result: Arc<TurnResult>) {
        self.bytes += estimate(&result);
        self.results.push(result);
        *self.frames.entry(frame).or_default() += 1;
    }

    /// Returns true if the next result must go into another message.
    pub(super) fn is_full(&self) -> bool {
        self.bytes > FRAME_BYTES
    }
}

/// Converts an engine's output into a turn outcome. The engine's prompt began with `kept` ids that
/// its seat held.
pub(crate) fn outcome(finished: Finished, text: String, kept: usize) -> TurnOutcome {
    match finished.result {
        Err(failure) => TurnOutcome::Failed {
            failure: failure.cause,
            retry: failure.retry,
        },
        Ok(made) => TurnOutcome::Done(Generation {
            kept: kept as u32,
            prompt_ids: finished.job.prompt_ids[kept..].to_vec(),
            output_ids: made.output_ids,
            logprobs: made.logprobs,
            logprobs_of: made.logprobs_of,
            spans: made.spans,
            oldest_kv: made.oldest_kv,
            temperature: finished.job.sampling.temperature,
            finish: made.finish,
            text,
        }),
    }
}

/// Logs how many tokens were computed, and how many an earlier turn had computed already.
pub(super) fn log_work(finished: &[(Finished, String)]) {
    let made = || {
        finished
            .iter()
            .filter_map(|(one, _)| Some((&one.job, one.result.as_ref().ok()?)))
    };
    let prompts: usize = made().map(|(job, _)| job.prompt_ids.len()).sum();
    let reused: usize = made().map(|(_, made)| made.reused).sum();
    let tokens: usize = made().map(|(_, made)| made.output_ids.len()).sum();
    tracing::debug!(turns = finished.len(), prompts, reused, tokens, "generated");
}

/// An estimate of a result's bytes on the wire and in memory.
pub(super) fn estimate(result: &TurnResult) -> usize {
    match &result.outcome {
        TurnOutcome::Done(made) => 160 + 4 * made.prompt_ids.len() + 8 * made.output_ids.len() + made.text.len(),
        TurnOutcome::Failed { failure, .. } => 180 + failure.reason.len(),
    }
}
