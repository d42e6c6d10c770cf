//! Requests to an engine, and its answers.

use std::fmt;
use std::sync::Arc;

use broker::ids::{RequestId, WeightVersion};
use broker::protocol::engine::TopLogprob;
use broker::protocol::turn::{Finish, VersionSpan};

use super::prompt_scores::PromptScores;
use super::times::Times;
use crate::model::{ModelError, ModelShape};
use crate::sampling::SamplingParams;

/// Returns true if a generation ends with the output ids so far. Needed for stop texts, which only
/// the caller can decode.
pub type StopRule = Arc<dyn Fn(&[u32]) -> bool + Send + Sync>;

/// A request for one generation.
#[derive(Clone)]
pub struct GenRequest {
    pub id: RequestId,
    /// Requests with equal prompts share their computation. A shared `Arc` makes the comparison
    /// free.
    pub prompt_ids: Arc<[u32]>,
    /// At least 1. With `prompt_top` it may be 0: the request then ends with its prompt.
    pub max_new_tokens: u32,
    pub sampling: SamplingParams,
    /// Tokens that end the generation. The sampled one is part of the output.
    pub stop_ids: Arc<[u32]>,
    /// Called after every token, including the last.
    pub stop: Option<StopRule>,
    /// Seed of the request's random numbers: one number for each output position, whatever the
    /// batch.
    pub seed: u64,
    /// Set if a later request is likely to begin with this prompt and output: the next turn of the
    /// conversation.
    pub keep: bool,
    /// The number of most likely tokens to report for each place; 0 costs nothing.
    pub top: u8,
    /// Asks for the log-probs of the prompt's own tokens, and for this many of the most likely
    /// tokens in each of its places. The engine then computes the whole prompt, whatever the prefix
    /// cache has.
    pub prompt_top: Option<u8>,
}

impl GenRequest {
    /// Checks that a model of this shape can answer the request. A retry gives the same result.
    ///
    /// # Errors
    /// [`RequestFault`].
    pub fn check(&self, shape: &ModelShape) -> Result<(), RequestFault> {
        let (len, max) = (self.prompt_ids.len(), shape.max_context);
        if len == 0 {
            return Err(RequestFault::EmptyPrompt);
        }
        let least = usize::from(self.max_new_tokens > 0);
        if len + least > max {
            return Err(RequestFault::TooLong { len, max });
        }
        if self.max_new_tokens == 0 && self.prompt_top.is_none() {
            return Err(RequestFault::NothingToDo);
        }
        if let Some(fault) = self.sampling.fault() {
            return Err(RequestFault::Sampling(fault));
        }
        let vocab = shape.vocab;
        match self.prompt_ids.iter().find(|id| **id as usize >= vocab) {
            Some(token) => Err(RequestFault::BadToken { token: *token, vocab }),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for GenRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GenRequest")
            .field("id", &self.id)
            .field("prompt", &self.prompt_ids.len())
            .field("max_new_tokens", &self.max_new_tokens)
            .field("seed", &self.seed)
            .finish_non_exhaustive()
    }
}

/// A finished generation.
#[derive(Debug, Clone, PartialEq)]
pub struct Finished {
    pub id: RequestId,
    /// Includes the end-of-turn token if it was sampled.
    pub output_ids: Vec<u32>,
    /// f32 log-softmax(logits / temperature) over the full vocabulary (at temperature 1 for
    /// greedy), one per output id.
    pub logprobs: Vec<f32>,
    /// For each output id, the log of the total probability of the tokens that truncation kept in
    /// its place. Empty without truncation. `logprobs - log_kept` are the log-probs of the
    /// distribution that the ids were drawn from.
    pub log_kept: Vec<f32>,
    /// The most likely tokens in the place of each output id, with log-probs of the same
    /// distribution, in the order of [`crate::sampling::top`]. Empty if the request asked for none.
    pub top: Vec<Vec<TopLogprob>>,
    /// The weights that sampled each token. The spans cover the output without gaps.
    pub spans: Vec<VersionSpan>,
    /// The oldest weights that computed any part of the cache that this output was sampled from.
    pub oldest_kv: WeightVersion,
    /// The number of prompt tokens with keys and values from an earlier turn.
    pub reused: usize,
    /// Log-probs of the prompt's own tokens, if asked for. Requests with the same prompt and the
    /// same question share one copy.
    pub prompt: Option<Arc<PromptScores>>,
    pub finish: Finish,
    pub times: Times,
}

/// The state of a generation that has not ended.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct UnderWay<'a> {
    pub id: RequestId,
    pub output_ids: &'a [u32],
    /// One per output id.
    pub logprobs: &'a [f32],
    /// The same as [`Finished::top`].
    pub top: &'a [Vec<TopLogprob>],
    pub spans: &'a [VersionSpan],
    /// The same as [`Finished::prompt`].
    pub prompt: Option<&'a Arc<PromptScores>>,
}

/// Why an engine rejects a request, or why it stopped.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    #[error("request {id}: {source}")]
    BadRequest { id: RequestId, source: RequestFault },
    #[error("request {id} is under way already")]
    Duplicate { id: RequestId },
    #[error("a wave needs an idle engine, and {pending} requests are under way")]
    Busy { pending: usize },
    /// The engine cannot sample from or score the logits of these requests. No active request can
    /// go on: call `Engine::abort_all`.
    #[error(
        "the logits of weights {version} are not finite: training diverged, the files are damaged, or the temperature is too near 0"
    )]
    NotFinite {
        version: WeightVersion,
        requests: Vec<RequestId>,
    },
    #[error("engine.deterministic is not available here: {0}. Leave it out, or use f32 on a CPU")]
    NotDeterministic(&'static str),
    #[error(
        "engine.cache_mib is {mib}, and a row of {tokens} tokens needs {needed}: write engine.cache_mib = {needed} or more, or a lower \
         sampling.max_context"
    )]
    CacheTooSmall { mib: usize, tokens: usize, needed: usize },
    #[error("allocating engine.cache_mib = {mib}: {source}; write less, or 0 for a cache that grows")]
    CacheMemory { mib: usize, source: ModelError },
    #[error("computing: {0}")]
    Model(#[from] ModelError),
}

impl EngineError {
    /// Returns true if the device had too little memory: fewer generations at once may fit.
    #[must_use]
    pub fn is_out_of_memory(&self) -> bool {
        match self {
            Self::Model(error) | Self::CacheMemory { source: error, .. } => error.is_out_of_memory(),
            _ => false,
        }
    }
}

/// The fault of a request. A retry does not help.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequestFault {
    #[error("the prompt is empty")]
    EmptyPrompt,
    #[error("the prompt has {len} tokens and the model's context is {max}, which must hold one new token too")]
    TooLong { len: usize, max: usize },
    #[error("token id {token} is outside the vocabulary of {vocab}: does the tokenizer belong to this model?")]
    BadToken { token: u32, vocab: usize },
    #[error(
        "the prompt and max_new_tokens come to {len} tokens, and engine.cache_mib has room for {most}: shorten them, or raise engine.cache_mib"
    )]
    BeyondCache { len: usize, most: usize },
    #[error("max_new_tokens is 0")]
    NothingToDo,
    #[error("{0}")]
    Sampling(String),
}

impl From<tch::TchError> for EngineError {
    fn from(error: tch::TchError) -> Self {
        Self::Model(ModelError::Torch(error))
    }
}
