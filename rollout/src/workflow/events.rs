//! Events of a conversation, what is asked for next, and what its seats earn.

use broker::RoleName;
use broker::ids::TurnKey;
use broker::protocol::turn::{Finish, Generation, Message};

/// A committed generation, as everyone in the conversation may see it.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    pub role: RoleName,
    pub seat: u16,
    /// Counts this seat's generations from 0.
    pub turn: u16,
    /// What a partner reads: no reasoning, no control tokens.
    pub text: String,
    pub finish: Finish,
    /// Tokens sampled.
    pub tokens: u32,
    /// Tokens of the prompt it was sampled from, all that its seat held included; 0 of a program.
    pub prompt: u32,
}

impl Event {
    /// What everyone may see of a generation.
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
    /// What is new to this seat since its last turn; at its first turn, its whole prompt.
    pub messages: Vec<Message>,
    /// Below the agent's own limit, if given.
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

/// What one seat earned.
#[derive(Debug, Clone, PartialEq)]
pub struct SeatReward {
    pub role: RoleName,
    pub seat: u16,
    /// Refines the advantage key (group, agent, role); empty for most workflows.
    pub subkey: String,
    /// What the seat should have said at its last turn, where the task tells: what `loss.kind = "cross_entropy"` imitates.
    pub target: Option<String>,
    pub parts: Vec<Part>,
}

/// How a conversation ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// One entry for every seat that spoke and is to be trained.
    pub rewards: Vec<SeatReward>,
    /// Named figures for metrics and reports, such as `success`; `success` is what `dyad` shows of a workflow.
    pub metrics: Vec<(&'static str, f64)>,
}

/// The metric of a conversation that ended and that nobody could grade: 1, without any reward.
pub(crate) const UNGRADED: &str = "ungraded";

impl Outcome {
    /// Whether nobody could say what this was worth.
    #[must_use]
    pub fn is_ungraded(&self) -> bool {
        self.rewards.is_empty() && self.metrics.contains(&(UNGRADED, 1.0))
    }
}

/// What comes next.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Every generation that is wanted now and has no event yet, those already asked for included. Never empty.
    Ask(Vec<Ask>),
    Done(Outcome),
    /// It cannot go on, for a reason that is nobody's answer: a failure of the machinery, which leaves all statistics.
    Fail(String),
}

/// A role that a workflow has.
#[derive(Debug, Clone, PartialEq)]
pub struct RoleSpec {
    pub name: RoleName,
    /// Names of its reward parts with the weights they have if the config gives none.
    pub parts: Vec<(&'static str, f64)>,
}
