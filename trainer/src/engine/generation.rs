//! One active generation: its tokens so far, the weights that made them, and its end.

use std::sync::Arc;
use std::time::Instant;

use broker::ids::WeightVersion;
use broker::protocol::engine::TopLogprob;
use broker::protocol::turn::{Finish, VersionSpan};

use super::choose::Chosen;
use super::prompt_scores::PromptScores;
use super::request::{Finished, GenRequest, UnderWay};
use super::times::Times;
use crate::model::Shared;

/// An active generation. It occupies one row of the cache.
#[derive(Debug)]
pub(super) struct Generation {
    pub(super) request: GenRequest,
    output: Vec<u32>,
    logprobs: Vec<f32>,
    /// One per token, if the draw is truncated.
    log_kept: Vec<f32>,
    /// One list per token, if asked for.
    top: Vec<Vec<TopLogprob>>,
    spans: Vec<VersionSpan>,
    /// Version of the weights that computed its prompt, or that last recomputed its whole cache.
    pub(super) oldest_kv: WeightVersion,
    /// Its prompt, if other rows share it. Its slot then holds only the tokens after the prompt.
    pub(super) shared: Option<Shared>,
    /// The number of prompt tokens that came from the prefix cache.
    pub(super) reused: usize,
    /// Log-probs of its prompt, if asked for.
    pub(super) prompt: Option<Arc<PromptScores>>,
    times: Times,
}

impl Generation {
    /// Returns a generation that gets its first token now. The engine began its prompt at `begun`.
    pub(super) fn new(request: GenRequest, version: WeightVersion, begun: Instant) -> Self {
        let expected = request.max_new_tokens.min(64) as usize;
        let (output, logprobs) = (Vec::with_capacity(expected), Vec::with_capacity(expected));
        Self {
            request,
            output,
            logprobs,
            log_kept: Vec::new(),
            top: Vec::new(),
            spans: Vec::with_capacity(1),
            oldest_kv: version,
            shared: None,
            reused: 0,
            prompt: None,
            times: Times::begun(begun),
        }
    }

    /// The number of tokens sampled so far, which is the position of the next random number.
    pub(super) fn made(&self) -> u32 {
        self.output.len() as u32
    }

    /// The number of tokens in its slot.
    pub(super) fn in_slot(&self) -> usize {
        self.cached() - self.shared.map_or(0, |shared| shared.length)
    }

    /// The number of tokens in the cache: all except the last sampled one.
    pub(super) fn cached(&self) -> usize {
        self.request.prompt_ids.len() + self.output.len().saturating_sub(1)
    }

    /// The token to compute next.
    pub(super) fn last(&self) -> i64 {
        self.output.last().copied().map_or(0, i64::from)
    }

    /// The ids with keys and values in the cache.
    pub(super) fn cached_ids(&self) -> Vec<u32> {
        let made = self.output.len().saturating_sub(1);
        [&self.request.prompt_ids[..], &self.output[..made]].concat()
    }

    /// Records a sampled token. Returns the reason if the generation ends with it.
    pub(super) fn push(&mut self, chosen: Chosen, version: WeightVersion, max_context: usize) -> Option<Finish> {
        let choice = chosen.token;
        self.output.push(choice.id);
        self.logprobs.push(choice.logprob);
        if self.request.sampling.truncates() {
            self.log_kept.push(choice.log_kept);
        }
        if self.request.top > 0 {
            self.top.push(chosen.top);
        }
        let end = self.made();
        match self.spans.last_mut() {
            Some(span) if span.version == version => span.end = end,
            _ => self.spans.push(VersionSpan {
                version,
                start: end - 1,
                end,
            }),
        }
        let request = &self.request;
        if request.stop_ids.contains(&choice.id) || request.stop.as_ref().is_some_and(|stop| stop(&self.output)) {
            Some(Finish::Stop)
        } else if end >= request.max_new_tokens || request.prompt_ids.len() + self.output.len() >= max_context {
            Some(Finish::Length)
        } else {
            None
        }
    }

    /// The tokens and scores so far.
    pub(super) fn so_far(&self) -> UnderWay<'_> {
        UnderWay {
            id: self.request.id,
            output_ids: &self.output,
            logprobs: &self.logprobs,
            top: &self.top,
            spans: &self.spans,
            prompt: self.prompt.as_ref(),
        }
    }

    pub(super) fn finish(self, finish: Finish) -> Finished {
        Finished {
            id: self.request.id,
            output_ids: self.output,
            logprobs: self.logprobs,
            log_kept: self.log_kept,
            top: self.top,
            spans: self.spans,
            oldest_kv: self.oldest_kv,
            reused: self.reused,
            prompt: self.prompt,
            finish,
            times: self.times.ended(),
        }
    }
}
