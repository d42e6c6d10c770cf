//! Workflows: who speaks when, on what prompt, until when, and what each side earns.
//!
//! A workflow is a total, pure function of (task, seed, events so far). It keeps no state: the coordinator commits each
//! event once, in order, and asks [`Workflow::step`] what comes next; a coordinator that takes a conversation over asks the
//! same with the same events and gets the same answer.

pub mod contract;
mod examples;
pub(crate) mod grading;
pub(crate) mod params;
pub(crate) mod part_weights;
pub(crate) mod profile;
pub mod program;
pub(crate) mod prompts;
pub(crate) mod room;
pub mod shaped;
#[cfg(test)]
pub(crate) mod testing;
pub mod tools;
pub(crate) mod transcript;
pub mod unanswered;

use std::collections::BTreeSet;

use broker::ids::TurnKey;
use broker::protocol::task::Task;
use broker::protocol::turn::{Finish, Generation, Message};
use broker::{AgentName, RoleName};
use configs::{Missing, WorkflowConfig};

pub use grading::{Grades, Grading};
pub use params::{Params, check_roles, grader};
pub use transcript::{Transcript, ask, reward, role};

use crate::grade::Grader;
use program::{Place, Program, Question};
use tools::ToolProgram;

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

/// An interaction protocol.
pub trait Workflow: Send + Sync {
    fn kind(&self) -> &'static str;
    fn roles(&self) -> Vec<RoleSpec>;
    /// Whether this task can be played; the error is for the person who published it.
    fn check_task(&self, task: &Task) -> Result<(), String>;
    /// Whether the tools that the task lists are among those that this workflow's roles may call.
    fn check_tools(&self, task: &Task) -> Result<(), String> {
        tools::known(task, &BTreeSet::new())
    }
    /// Whether what it asks of every role has the pictures of the task's prompt, and no others. Then an agent that reads text only is given
    /// the text; else a picture is for whoever is asked, and an agent that cannot see it fails the turn.
    fn shares_pictures(&self) -> bool {
        false
    }
    /// Total: any list of events gets an answer, and nothing panics. `seed` is the conversation's own.
    fn step(&self, task: &Task, seed: u64, events: &[Event]) -> Step;
    /// Generations of a conversation that uses all it may, where one may end with fewer.
    fn most_turns(&self) -> Option<usize> {
        None
    }
    /// What an ended conversation as a whole answers, and the grader that knows which answers are the same: for a vote among
    /// several conversations of one task. None where there is no such answer, or a program grades it.
    fn answer(&self, _task: &Task, _events: &[Event]) -> Option<(Grader, String)> {
        None
    }
    /// Whether a conversation goes on where a prompt of this role leaves no room for an answer: then its turn is taken as one that says
    /// nothing ([`unanswered::is_silent`]), of which there is no sample and no reward. Else the conversation has failed.
    fn goes_on_without(&self, _role: &RoleName) -> bool {
        false
    }
    /// Programs of the user's own that play roles beside the agents: an ask for such a role is one line for its program.
    fn programs(&self) -> Vec<Program> {
        Vec::new()
    }
    /// Tools that agents may call: an ask for a role of theirs is one call.
    fn tools(&self) -> Vec<ToolProgram> {
        Vec::new()
    }
    /// Whether what a program answered to `question` can be used; its form has been checked ([`program::read_answer`]). Asked
    /// before the answer is committed.
    fn check_answer(&self, _question: &Question, _answer: &str) -> Result<(), String> {
        Ok(())
    }
}

/// Whether this task can be played, with the tools that it lists.
///
/// # Errors
/// What is wrong with it, for the person who published it.
pub fn check_task(workflow: &dyn Workflow, task: &Task) -> Result<(), String> {
    workflow.check_task(task)?;
    workflow.check_tools(task)
}

/// The agent that plays a role of `workflow`: by `[workflow.roles]`, or as the judge of its answers.
#[must_use]
pub fn player(config: &WorkflowConfig, workflow: &dyn Workflow, role: &RoleName) -> Option<Player> {
    if let Some(agent) = config.roles.get(role) {
        let agent = agent.clone();
        return Some(Player {
            agent,
            temperature: None,
            missing: None,
        });
    }
    workflow.programs().into_iter().find_map(|program| match program.place {
        Place::Agent(agent, judge) if program.roles.contains(role) => Some(Player {
            agent,
            temperature: Some(judge.config.temperature as f32),
            missing: Some(program.missing),
        }),
        _ => None,
    })
}

/// Who plays a role.
#[derive(Debug, Clone, PartialEq)]
pub struct Player {
    pub agent: AgentName,
    /// Of a judge: in the place of the agent's own.
    pub temperature: Option<f32>,
    /// Of a judge: what becomes of a conversation whose grade it does not give.
    pub missing: Option<Missing>,
}
