//! Turns: requests to an agent and its answers.

use bincode::{Decode, Encode};
use serde::{Deserialize, Serialize};

use super::failure::Failure;
pub use super::message::{Image, Message};
use crate::codec::bulk::bulk_codec;
use crate::ids::{Attempt, GroupId, RequestId, TurnKey, WeightVersion};
use configs::RoleName;

/// The start of a generation: the agent's own ids so far, never re-tokenised, and the new messages.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TurnPrompt {
    /// Prompt and output ids of this seat's turn before, from that turn's result; empty at its
    /// first turn.
    pub held: Vec<u32>,
    /// The number of ids at the end of `held` that are that turn's output, sampled by the agent
    /// itself. All ids before them are a prompt.
    pub sampled: u32,
    /// Messages since then.
    pub messages: Vec<Message>,
}

bulk_codec!(TurnPrompt {
    bulk held,
    plain sampled,
    plain messages,
});

/// Sampling settings.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
pub struct Sampling {
    /// 0 is greedy.
    pub temperature: f32,
    pub top_p: f32,
    pub top_k: u32,
    pub min_p: f32,
    pub max_new_tokens: u32,
    /// The largest number of tokens of prompt and answer together; `None` means the model's own
    /// context. The renderer of the prompt enforces it.
    pub max_context: Option<u32>,
    /// Texts that end the generation.
    pub stop: Vec<String>,
}

impl Sampling {
    /// Returns true if the draw leaves out tokens to which the model gives a probability.
    #[must_use]
    pub fn truncates(&self) -> bool {
        self.top_k > 0 || self.top_p < 1.0 || self.min_p > 0.0
    }
}

/// One requested generation. Several may share one prompt, so the prompt is in the frame.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
pub struct TurnRequest {
    pub request: RequestId,
    pub group: GroupId,
    pub attempt: Attempt,
    pub member: u16,
    pub role: String,
    pub seat: u16,
    pub turn: u16,
    /// Index into the frame's prompts.
    pub prompt: u32,
    /// Index into the frame's samplings.
    pub sampling: u32,
    /// Seed of this generation's random numbers.
    pub seed: u64,
    /// Its place in a synchronous wave: waves are computed in this order, never in the order of
    /// arrival.
    pub order: u64,
}

impl TurnRequest {
    /// Returns the answer to a request that can never succeed.
    #[must_use]
    pub fn failed(self, failure: Failure) -> TurnResult {
        self.answered(TurnOutcome::Failed { failure, retry: false })
    }

    /// Returns the answer to this request.
    #[must_use]
    pub fn answered(self, outcome: TurnOutcome) -> TurnResult {
        TurnResult {
            request: self.request,
            group: self.group,
            attempt: self.attempt,
            member: self.member,
            role: self.role,
            seat: self.seat,
            turn: self.turn,
            outcome,
        }
    }
}

/// A synchronous wave: an engine begins when it holds all `total` requests of the wave, from any
/// number of frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Encode, Decode)]
pub struct Wave {
    pub id: u64,
    /// Requests of this wave for this agent.
    pub total: u32,
}

/// Requests for one agent from one coordinator.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
pub struct TurnFrame {
    /// The coordinator's incarnation, which receives the results.
    pub reply_to: String,
    pub wave: Option<Wave>,
    pub prompts: Vec<TurnPrompt>,
    pub samplings: Vec<Sampling>,
    pub requests: Vec<TurnRequest>,
}

/// The reason why a generation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Finish {
    /// An end-of-turn token or a stop text.
    Stop,
    /// The token limit or the end of the context.
    Length,
}

/// Output tokens `start..end`, sampled by weights `version`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct VersionSpan {
    pub version: WeightVersion,
    pub start: u32,
    pub end: u32,
}

/// The distribution of a generation's log-probs, which decides about importance ratios. If two
/// variants are equal, the first one here applies: at temperature 1 and without truncation all
/// log-probs are [`LogProbs::Sampled`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Encode, Decode, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LogProbs {
    /// The sampled distribution over the whole vocabulary: log-softmax(logits / temperature).
    Sampled,
    /// The sampled distribution after truncation by top-k, top-p or min-p: log-softmax(logits /
    /// temperature), less the log of the probability of all kept tokens.
    Truncated,
    /// log-softmax(logits / temperature) over the whole vocabulary, while the token was sampled
    /// from a part of it.
    Tempered,
    /// log-softmax(logits) over the whole vocabulary, while the token was sampled otherwise, such
    /// as greedily.
    Raw,
    /// Unknown: the server was not tested, or the test had no clear result.
    Unknown,
    /// There are no log-probs; each place holds 0.
    Absent,
}

impl LogProbs {
    /// Returns the distribution of the log-probs that dyad's own engine records.
    #[must_use]
    pub fn of_own(sampling: &Sampling) -> Self {
        if sampling.temperature == 0.0 {
            Self::Raw
        } else if sampling.truncates() {
            Self::Truncated
        } else {
            Self::Sampled
        }
    }

    /// Returns true for the behaviour policy, so that `exp(log-prob of the trainer - this)` is an
    /// importance ratio.
    #[must_use]
    pub fn are_of_behaviour(self) -> bool {
        matches!(self, Self::Sampled | Self::Truncated)
    }

    /// Returns the distribution of an answer of two parts with these log-probs.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        if self == other { self } else { Self::Unknown }
    }

    /// Returns the name in transcripts.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sampled => "sampled",
            Self::Truncated => "truncated",
            Self::Tempered => "tempered",
            Self::Raw => "raw",
            Self::Unknown => "unknown",
            Self::Absent => "absent",
        }
    }
}

/// One finished generation, token-in and token-out.
///
/// The model saw the first `kept` of the ids that the request held, then `prompt_ids`. Neither the
/// wire nor the store therefore repeats a conversation's past in each of its turns;
/// [`Generation::complete`] restores it.
#[derive(Debug, Clone, PartialEq)]
pub struct Generation {
    /// The number of ids of the request's [`TurnPrompt::held`] at the start of the prompt; 0 once
    /// they are in `prompt_ids`.
    pub kept: u32,
    /// The rest of the model's input: bridge ids, and held ids that have changed.
    pub prompt_ids: Vec<u32>,
    /// The sampled ids, including the end-of-turn token if it was sampled.
    pub output_ids: Vec<u32>,
    /// f32, one per output id.
    pub logprobs: Vec<f32>,
    pub logprobs_of: LogProbs,
    /// Covers the output without gaps.
    pub spans: Vec<VersionSpan>,
    /// The oldest weights that computed any part of the KV cache it was sampled from.
    pub oldest_kv: WeightVersion,
    pub temperature: f32,
    pub finish: Finish,
    /// The output in the form that a partner sees: without reasoning, without control tokens.
    pub text: String,
}

bulk_codec!(Generation {
    plain kept,
    bulk prompt_ids,
    bulk output_ids,
    bulk logprobs,
    plain logprobs_of,
    plain spans,
    plain oldest_kv,
    plain temperature,
    plain finish,
    plain text,
});

impl Generation {
    /// Writes the kept ids in front of `prompt_ids`, so that these are the model's whole input.
    /// `held` are the ids that the request held. Returns false and changes nothing if the
    /// generation claims more of them than there are.
    #[must_use]
    pub fn complete(&mut self, held: &[u32]) -> bool {
        let Some(kept) = held.get(..self.kept as usize) else {
            return false;
        };
        self.prompt_ids.splice(..0, kept.iter().copied());
        self.kept = 0;
        true
    }
}

/// The result of a request.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
pub enum TurnOutcome {
    Done(Generation),
    /// The infrastructure failed. This is never an answer and never a reward: the coordinator
    /// retries or gives the conversation up.
    Failed {
        failure: Failure,
        /// True if the same request may succeed when it is asked again.
        retry: bool,
    },
}

/// The answer to one request.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
pub struct TurnResult {
    pub request: RequestId,
    pub group: GroupId,
    pub attempt: Attempt,
    pub member: u16,
    pub role: String,
    pub seat: u16,
    pub turn: u16,
    pub outcome: TurnOutcome,
}

/// Results for one coordinator from one agent. The sender may share the results (`R =
/// Arc<TurnResult>`): the bytes are the same.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
pub struct ResultFrame<R = TurnResult> {
    pub agent: String,
    /// The wave of the requests' frame, so that the coordinator knows when a wave is complete.
    pub wave: Option<Wave>,
    pub results: Vec<R>,
}

/// Returns the turn of a request or result, or `None` if its role is no name.
#[must_use]
pub fn turn_key(member: u16, role: &str, seat: u16, turn: u16) -> Option<TurnKey> {
    RoleName::new(role).ok().map(|role| TurnKey {
        member,
        role,
        seat,
        turn,
    })
}
