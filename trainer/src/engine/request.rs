//! What an engine is asked for and what it answers.

use std::fmt;
use std::sync::Arc;

use broker::ids::{RequestId, WeightVersion};
use broker::protocol::engine::TopLogprob;
use broker::protocol::turn::{Finish, VersionSpan};

use super::prompt_scores::PromptScores;
use crate::model::{ModelError, ModelShape};
use crate::sampling::SamplingParams;

/// Says whether a generation ends with the output ids so far: for stop texts, which only the caller can read.
pub type StopRule = Arc<dyn Fn(&[u32]) -> bool + Send + Sync>;

/// One generation.
#[derive(Clone)]
pub struct GenRequest {
    pub id: RequestId,
    /// Requests with equal prompts share their computation; a shared `Arc` makes the comparison free.
    pub prompt_ids: Arc<[u32]>,
    /// At least 1, or 0 with `prompt_top`: the request ends with its prompt.
    pub max_new_tokens: u32,
    pub sampling: SamplingParams,
    /// Tokens that end the generation; the sampled one is part of the output.
    pub stop_ids: Arc<[u32]>,
    /// Asked after every token, the last included.
    pub stop: Option<StopRule>,
    /// Seed of its random numbers: one per output position, whatever else is in the batch.
    pub seed: u64,
    /// Whether another request is likely to begin with its prompt and output: the next turn of its conversation.
    pub keep: bool,
    /// How many of the most likely tokens are kept in each place; 0 costs nothing.
    pub top: u8,
    /// Whether the log-probs of the prompt's own tokens are wanted, and how many of the most likely tokens in each of its places. All of
    /// the prompt is computed then, whatever is kept of it.
    pub prompt_top: Option<u8>,
}

impl GenRequest {
    /// Whether a model of this shape could answer at all: asking again does not change it.
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

/// One finished generation.
#[derive(Debug, Clone, PartialEq)]
pub struct Finished {
    pub id: RequestId,
    /// The end-of-turn token included if it was sampled.
    pub output_ids: Vec<u32>,
    /// f32 log-softmax(logits / temperature) over the full vocabulary (at temperature 1 for greedy), one per output id.
    pub logprobs: Vec<f32>,
    /// Of each output id, the log of the probability of all tokens that truncation kept in its place; empty where nothing was truncated.
    /// `logprobs - log_kept` are those of what the ids were drawn from.
    pub log_kept: Vec<f32>,
    /// The most likely tokens in the place of each output id, with log-probs of the same distribution, as
    /// [`crate::sampling::top`] gives them; empty if the request asked for none.
    pub top: Vec<Vec<TopLogprob>>,
    /// Which weights sampled which tokens; covers the output without gaps.
    pub spans: Vec<VersionSpan>,
    /// The oldest weights that computed any part of the cache that it was sampled from.
    pub oldest_kv: WeightVersion,
    /// Tokens of the prompt whose keys and values were there already, from an earlier turn.
    pub reused: usize,
    /// Log-probs of the prompt's own tokens, if they were asked for: one for all who share a prompt and ask for the same.
    pub prompt: Option<Arc<PromptScores>>,
    pub finish: Finish,
}

/// What a generation has made so far.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct UnderWay<'a> {
    pub id: RequestId,
    pub output_ids: &'a [u32],
    /// One per output id.
    pub logprobs: &'a [f32],
    /// As [`Finished::top`].
    pub top: &'a [Vec<TopLogprob>],
    pub spans: &'a [VersionSpan],
    /// As [`Finished::prompt`].
    pub prompt: Option<&'a Arc<PromptScores>>,
}

/// Why an engine refuses a request, or stopped.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    #[error("request {id}: {source}")]
    BadRequest { id: RequestId, source: RequestFault },
    #[error("request {id} is under way already")]
    Duplicate { id: RequestId },
    #[error("a wave needs an idle engine, and {pending} requests are under way")]
    Busy { pending: usize },
    /// Nothing can be sampled of these requests' logits, nor be scored. Those under way cannot go on, nor can the ones beside them: see
    /// `Engine::abort_all`.
    #[error(
        "the logits of weights {version} are not finite: training diverged, the files are damaged, or the temperature is too near 0"
    )]
    NotFinite {
        version: WeightVersion,
        requests: Vec<RequestId>,
    },
    #[error("engine.deterministic cannot be had here: {0}. Leave it out, or use f32 on a CPU")]
    NotDeterministic(&'static str),
    #[error("computing: {0}")]
    Model(#[from] ModelError),
}

/// What is wrong with a request. Asking again does not help.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequestFault {
    #[error("the prompt is empty")]
    EmptyPrompt,
    #[error("the prompt has {len} tokens and the model's context is {max}, which must hold one new token too")]
    TooLong { len: usize, max: usize },
    #[error("token id {token} is outside the vocabulary of {vocab}: does the tokenizer belong to this model?")]
    BadToken { token: u32, vocab: usize },
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
