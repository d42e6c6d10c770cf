//! Turns: requests to an agent and its answers.

use std::time::Duration;

use bincode::{Decode, Encode};
use serde::{Deserialize, Serialize};

use super::failure::Failure;
pub use super::message::{FaultKind, Image, Message, MessageFault};
use crate::codec::bulk::bulk_codec;
use crate::ids::{Attempt, GroupId, RequestId, TurnKey, WeightVersion};
use configs::RoleName;

/// The start of a generation: the agent's own ids so far, never re-tokenised, and the new messages.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TurnPrompt {
    /// The prompt and output ids of this seat's previous turn, taken from its result. Empty at the
    /// seat's first turn.
    pub held: Vec<u32>,
    /// The number of ids at the end of `held` that the agent itself sampled: the previous turn's
    /// output. All ids before them count as prompt.
    pub sampled: u32,
    /// The messages since the previous turn.
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
    /// 0 means greedy sampling.
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
    /// Returns true if top-k, top-p or min-p may exclude tokens from the draw.
    #[must_use]
    pub fn truncates(&self) -> bool {
        self.top_k > 0 || self.top_p < 1.0 || self.min_p > 0.0
    }
}

/// One requested generation. Several requests may share one prompt, so the frame holds the prompts.
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
    /// The request's place in a synchronous wave. The engine computes the requests of a wave in
    /// this order, never in the order of arrival.
    pub order: u64,
    /// True if the agent records the answer's tokens and log-probs.
    pub is_recorded: bool,
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

/// A synchronous wave of requests. An engine begins when it holds all `total` requests of the wave.
/// They may come in any number of frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Encode, Decode)]
pub struct Wave {
    pub id: u64,
    /// The number of requests of this wave for this agent.
    pub total: u32,
}

/// Requests for one agent from one coordinator.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
pub struct TurnFrame {
    /// The incarnation of the coordinator that receives the results.
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

/// The distribution of a generation's log-probs. It decides whether they can give importance
/// ratios. If several variants describe the same distribution, the first one here applies: at
/// temperature 1 and without truncation all log-probs are [`LogProbs::Sampled`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Encode, Decode, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LogProbs {
    /// The sampled distribution over the whole vocabulary: log-softmax(logits / temperature).
    Sampled,
    /// The sampled distribution after truncation by top-k, top-p or min-p: log-softmax(logits /
    /// temperature) minus the log of the total probability of the kept tokens.
    Truncated,
    /// log-softmax(logits / temperature) over the whole vocabulary. The token was sampled from a
    /// part of the vocabulary.
    Tempered,
    /// log-softmax(logits) over the whole vocabulary. The token was sampled from a different
    /// distribution, for example greedily.
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

    /// Returns true if the log-probs are those of the behaviour policy. Then `exp(log-prob of the
    /// trainer - this)` is an importance ratio.
    #[must_use]
    pub fn are_of_behaviour(self) -> bool {
        matches!(self, Self::Sampled | Self::Truncated)
    }

    /// Returns the distribution for an answer of two parts, with these log-probs in each part.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        if self == other { self } else { Self::Unknown }
    }

    /// Returns the variant's name in transcripts.
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
/// The model's input was the first `kept` ids of the request's [`TurnPrompt::held`], then
/// `prompt_ids`. The wire and the store therefore do not repeat a conversation's past in each of
/// its turns. [`Generation::complete`] restores it.
#[derive(Debug, Clone, PartialEq)]
pub struct Generation {
    /// The number of ids of the request's [`TurnPrompt::held`] that began the model's input. It is
    /// 0 once these ids are in `prompt_ids`.
    pub kept: u32,
    /// The rest of the model's input: bridge ids, and held ids that have changed.
    pub prompt_ids: Vec<u32>,
    /// The sampled ids, including the end-of-turn token if it was sampled.
    pub output_ids: Vec<u32>,
    /// f32, one per output id.
    pub logprobs: Vec<f32>,
    pub logprobs_of: LogProbs,
    /// The weights that sampled each part of the output. The spans cover it without gaps.
    pub spans: Vec<VersionSpan>,
    /// The oldest weights that computed any part of the KV cache from which the output was sampled.
    pub oldest_kv: WeightVersion,
    pub temperature: f32,
    pub finish: Finish,
    /// The output in the form that a partner sees: without reasoning and control tokens.
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
    /// Inserts the kept ids before `prompt_ids`, which is then the model's whole input. `held` is
    /// the request's [`TurnPrompt::held`]. Returns false and changes nothing if `kept` exceeds the
    /// length of `held`.
    #[must_use]
    pub fn complete(&mut self, held: &[u32]) -> bool {
        let Some(kept) = held.get(..self.kept as usize) else {
            return false;
        };
        self.prompt_ids.splice(..0, kept.iter().copied());
        self.kept = 0;
        true
    }

    /// Returns the mean of the log-probs; 0 without any.
    #[must_use]
    pub fn mean_logprob(&self) -> f64 {
        // The sum of no numbers is -0.
        f64::from(self.logprobs.iter().sum::<f32>() + 0.0) / self.logprobs.len().max(1) as f64
    }

    /// Returns the weights of the last token; of the prompt, if no token was sampled.
    #[must_use]
    pub fn newest(&self) -> WeightVersion {
        self.spans.last().map_or(self.oldest_kv, |span| span.version)
    }
}

/// The result of a request.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
pub enum TurnOutcome {
    Done(Generation),
    /// The infrastructure failed. This result is no answer and gives no reward. The coordinator
    /// retries the request or gives up the conversation.
    Failed {
        failure: Failure,
        /// True if a retry of the same request may succeed.
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

/// The time that an engine needed for a generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Encode, Decode)]
pub struct EngineTimes {
    /// From the arrival of the request until the engine begins its prompt.
    pub queue: Duration,
    /// From there to the first token.
    pub prompt: Duration,
    /// From the first token to the last.
    pub decode: Duration,
}

/// A result with its times. Times differ when the same request is generated again. So
/// [`TurnResult`], which the store compares, has none.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
pub struct TimedResult {
    pub result: TurnResult,
    /// `None` for a failure, and for an engine that does not measure times.
    pub times: Option<EngineTimes>,
}

impl From<TurnResult> for TimedResult {
    fn from(result: TurnResult) -> Self {
        Self { result, times: None }
    }
}

/// Results for one coordinator from one agent. The sender may share the results by `R =
/// Arc<TimedResult>`: the encoded bytes are the same.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
pub struct ResultFrame<R = TimedResult> {
    pub agent: String,
    /// The wave of the requests' frame. The coordinator uses it to know when a wave is complete.
    pub wave: Option<Wave>,
    pub results: Vec<R>,
}

/// Returns the key of the turn of a request or result, or `None` if `role` is no valid name.
#[must_use]
pub fn turn_key(member: u16, role: &str, seat: u16, turn: u16) -> Option<TurnKey> {
    RoleName::new(role).ok().map(|role| TurnKey {
        member,
        role,
        seat,
        turn,
    })
}
