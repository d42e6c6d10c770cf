//! Turns: what is asked of an agent and what it answers.

use bincode::{Decode, Encode};
use serde::{Deserialize, Serialize};

use super::failure::Failure;
pub use super::message::{Image, Message};
use crate::codec::bulk::bulk_codec;
use crate::ids::{Attempt, GroupId, RequestId, TurnKey, WeightVersion};
use configs::RoleName;

/// What a generation starts from: the agent's own ids so far, never re-tokenised, and what was said to it since.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Prompt {
    /// Prompt and output ids of this seat's turn before, as that turn's result gave them; empty at its first turn.
    pub held: Vec<u32>,
    /// How many of them, at their end, are that turn's output: what the agent sampled itself. All before them is a prompt.
    pub sampled: u32,
    /// Messages that are new since then.
    pub messages: Vec<Message>,
}

bulk_codec!(Prompt {
    bulk held,
    plain sampled,
    plain messages,
});

/// How to sample.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
pub struct Sampling {
    /// 0 is greedy.
    pub temperature: f32,
    pub top_p: f32,
    pub top_k: u32,
    pub min_p: f32,
    pub max_new_tokens: u32,
    /// Tokens of prompt and answer together at most; the model's own context if not given. Whoever renders the prompt sees to it.
    pub max_context: Option<u32>,
    /// Texts that end the generation.
    pub stop: Vec<String>,
}

impl Sampling {
    /// Whether tokens are left out of the draw that the model gives a probability.
    #[must_use]
    pub fn truncates(&self) -> bool {
        self.top_k > 0 || self.top_p < 1.0 || self.min_p > 0.0
    }
}

/// One generation asked for. Several share one prompt, so the prompt stands beside them in the frame.
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
    /// Its place in a synchronous wave: waves are computed in this order, never in the order of arrival.
    pub order: u64,
}

impl TurnRequest {
    /// The answer to a request that can never be done.
    #[must_use]
    pub fn failed(self, failure: Failure) -> TurnResult {
        self.answered(TurnOutcome::Failed { failure, retry: false })
    }

    /// The answer to this request.
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

/// A synchronous wave: an engine begins when it holds all `total` requests of the wave, whatever frames they came in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Encode, Decode)]
pub struct Wave {
    pub id: u64,
    /// Requests of this wave for this agent.
    pub total: u32,
}

/// Requests for one agent from one coordinator.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
pub struct TurnFrame {
    /// The coordinator's incarnation: where the results go.
    pub reply_to: String,
    pub wave: Option<Wave>,
    pub prompts: Vec<Prompt>,
    pub samplings: Vec<Sampling>,
    pub requests: Vec<TurnRequest>,
}

/// Why a generation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Finish {
    /// An end-of-turn token or a stop text.
    Stop,
    /// The token limit or the end of the context.
    Length,
}

/// Output tokens `start..end` were sampled by weights `version`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct VersionSpan {
    pub version: WeightVersion,
    pub start: u32,
    pub end: u32,
}

/// Of which distribution a generation's log-probs are: what an importance ratio may be taken to. Of two that are the same it is the
/// first here: at temperature 1 and without truncation all log-probs are [`LogProbs::Sampled`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Encode, Decode, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LogProbs {
    /// Of what was sampled from, which is the whole vocabulary: log-softmax(logits / temperature).
    Sampled,
    /// Of what was sampled from, which top-k, top-p or min-p truncated: log-softmax(logits / temperature), less the log of the probability
    /// of all that was kept.
    Truncated,
    /// log-softmax(logits / temperature) over the whole vocabulary, while the token was sampled from a part of it.
    Tempered,
    /// log-softmax(logits) over the whole vocabulary, while the token was sampled otherwise: greedily too.
    Raw,
    /// Nobody knows: those of a server that was not tried, or of which it could not be told.
    Unknown,
    /// There are none, and 0 stands in their places.
    Absent,
}

impl LogProbs {
    /// Those that an engine of our own records of a turn.
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

    /// Whether they are of the behaviour policy, so that `exp(log-prob of the trainer - this)` is an importance ratio.
    #[must_use]
    pub fn are_of_behaviour(self) -> bool {
        matches!(self, Self::Sampled | Self::Truncated)
    }

    /// Of an answer one part of which has these and another those.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        if self == other { self } else { Self::Unknown }
    }

    /// As it stands in transcripts.
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
/// What the model saw are the first `kept` of the ids that the request held, then `prompt_ids`. So neither the wire nor the
/// store carries a conversation's past again with each of its turns; [`Generation::complete`] puts it back.
#[derive(Debug, Clone, PartialEq)]
pub struct Generation {
    /// Ids of the request's [`Prompt::held`] that the prompt begins with; 0 once they stand in `prompt_ids`.
    pub kept: u32,
    /// The rest of what the model saw: bridge ids, and whatever of the held ids did not stay as it was.
    pub prompt_ids: Vec<u32>,
    /// What it sampled, the end-of-turn token included if it was sampled.
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
    /// The output as a partner sees it: without reasoning, without control tokens.
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
    /// Writes the kept ids in front of `prompt_ids`, so that they are all that the model saw. `held` are the ids that the
    /// request held. `false`, and nothing changed: the generation claims more of them than there are.
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

/// What became of a request.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
pub enum TurnOutcome {
    Done(Generation),
    /// The machinery failed. Never an answer, never a reward: the coordinator asks again or gives the conversation up.
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

/// Results for one coordinator from one agent. Whoever sends may share the results (`R = Arc<TurnResult>`): the bytes are
/// the same.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
pub struct ResultFrame<R = TurnResult> {
    pub agent: String,
    /// As the requests' frame said, so that the coordinator knows a wave is whole.
    pub wave: Option<Wave>,
    pub results: Vec<R>,
}

/// The turn that a request or result belongs to; `None` if its role is no name.
#[must_use]
pub fn turn_key(member: u16, role: &str, seat: u16, turn: u16) -> Option<TurnKey> {
    RoleName::new(role).ok().map(|role| TurnKey {
        member,
        role,
        seat,
        turn,
    })
}
