//! Events of a conversation, the next asks, and the rewards of its seats.

use broker::RoleName;
use broker::ids::TurnKey;
use broker::protocol::turn::{Finish, Generation, Message};

/// A committed generation, in the form that every agent in the conversation may see.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    pub role: RoleName,
    pub seat: u16,
    /// The number of this generation of its seat, from 0.
    pub turn: u16,
    /// The text for partners, without reasoning and control tokens.
    pub text: String,
    pub finish: Finish,
    /// Tokens sampled.
    pub tokens: u32,
    /// Tokens of its prompt, with all that its seat held; 0 for a program.
    pub prompt: u32,
}

impl Event {
    /// Returns the visible part of a generation.
    #[must_use]
    pub fn of(key: &TurnKey, made: &Generation) -> Self {
        Self {
            role: key.role.clone(),
            seat: key.seat,
            turn: key.turn,
            text: made.text.clone(),
            finish: made.finish,
            tokens: made.output_ids.len() as u32,
            prompt: made.prompt_ids.len() as u32,
        }
    }
}

/// A generation wanted next.
#[derive(Debug, Clone, PartialEq)]
pub struct Ask {
    pub role: RoleName,
    pub seat: u16,
    pub turn: u16,
    /// The messages that are new to this seat since its last turn; at its first turn, its whole
    /// prompt.
    pub messages: Vec<Message>,
    /// A limit below the agent's own, if given.
    pub max_new_tokens: Option<u32>,
    /// Texts that end the generation.
    pub stop: Vec<String>,
}

/// A named part of a reward, before its weight.
#[derive(Debug, Clone, PartialEq)]
pub struct Part {
    pub name: &'static str,
    pub value: f32,
}

/// The reward of one seat.
#[derive(Debug, Clone, PartialEq)]
pub struct SeatReward {
    pub role: RoleName,
    pub seat: u16,
    /// Refines the advantage key (group, agent, role); empty for most workflows.
    pub subkey: String,
    /// The answer that the seat should have given at its last turn, if the task has one. `loss.kind
    /// = "cross_entropy"` imitates it.
    pub target: Option<String>,
    pub parts: Vec<Part>,
}

/// The end of a conversation.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// One entry for every seat that spoke and is trained.
    pub rewards: Vec<SeatReward>,
    /// Named figures for metrics and reports. `success` is the figure that `dyad` shows for a
    /// workflow.
    pub metrics: Vec<(&'static str, f64)>,
}

/// The metric of a conversation that ended without a grade: 1, with no rewards.
pub(crate) const UNGRADED: &str = "ungraded";

impl Outcome {
    /// Returns true if the conversation could not be graded.
    #[must_use]
    pub fn is_ungraded(&self) -> bool {
        self.rewards.is_empty() && self.metrics.contains(&(UNGRADED, 1.0))
    }
}

/// The next step of a conversation.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Every generation that is wanted now and has no event yet, including those already asked for.
    /// Never empty.
    Ask(Vec<Ask>),
    Done(Outcome),
    /// The conversation cannot continue because of a failure of the machinery, not of an answer. It
    /// leaves all statistics.
    Fail(String),
}

/// A role of a workflow.
#[derive(Debug, Clone, PartialEq)]
pub struct RoleSpec {
    pub name: RoleName,
    /// Names of its reward parts, with the weights that apply without a configured one.
    pub parts: Vec<(&'static str, f64)>,
}
