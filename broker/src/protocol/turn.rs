//! Turns: what is asked of an agent and what it answers.

use bincode::{Decode, Encode};
use serde::{Deserialize, Serialize};

pub use super::message::{Image, Message};
use crate::codec::bulk::bulk_codec;
use crate::ids::{Attempt, GroupId, RequestId, TurnKey, WeightVersion};
use configs::RoleName;

/// What a generation starts from: the agent's own ids so far, never re-tokenised, and what was said to it since.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Prompt {
    /// Prompt and output ids of this seat's turn before, as that turn's result gave them; empty at its first turn.
    pub held: Vec<u32>,
    /// Messages that are new since then.
    pub messages: Vec<Message>,
}

bulk_codec!(Prompt { bulk held, plain messages });

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
    pub fn failed(self, reason: &str) -> TurnResult {
        self.answered(TurnOutcome::Failed {
            reason: reason.to_owned(),
            retry: false,
        })
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
    /// f32 log-softmax(logits / temperature) over the full vocabulary, one per output id.
    pub logprobs: Vec<f32>,
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
        reason: String,
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
