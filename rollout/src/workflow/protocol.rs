//! The trait that every workflow implements, and the agents that play its roles.

use std::collections::BTreeSet;

use broker::protocol::task::Task;
use broker::{AgentName, RoleName};
use configs::{Missing, WorkflowConfig};

use super::events::{Event, RoleSpec, Step};
use super::needs::Need;
use super::program::{Program, ProgramPlace, Question};
use super::tools::{self, ToolProgram};
use crate::grade::Grader;

/// An interaction protocol.
pub trait Workflow: Send + Sync {
    fn kind(&self) -> &'static str;
    fn roles(&self) -> Vec<RoleSpec>;
    /// Checks that this task can be played. The error is for the task's publisher.
    fn check_task(&self, task: &Task) -> Result<(), String>;
    /// Returns the words without which no conversation about this task can be won. The words of
    /// an agent are known to the caller.
    fn needs(&self, _task: &Task) -> Vec<Need> {
        Vec::new()
    }
    /// Checks that this workflow's roles may call the tools that the task lists.
    fn check_tools(&self, task: &Task) -> Result<(), String> {
        tools::known(task, &BTreeSet::new())
    }
    /// Returns true if every ask has the pictures of the task's prompt, and no others. Then an
    /// agent without vision is given the text. Otherwise a picture is part of the ask, and an agent
    /// without vision fails the turn.
    fn shares_pictures(&self) -> bool {
        false
    }
    /// Returns the next step. It is total: every list of events gets an answer, and it never
    /// panics. `seed` is the conversation's own.
    fn step(&self, task: &Task, seed: u64, events: &[Event]) -> Step;
    /// Returns the generations of the longest conversation, where conversations may differ in
    /// length.
    fn most_turns(&self) -> Option<usize> {
        None
    }
    /// Returns the answer of an ended conversation as a whole, and the grader that compares
    /// answers, for a vote among several conversations of one task. Returns `None` if there is no
    /// such answer, or if a program grades it.
    fn answer(&self, _task: &Task, _events: &[Event]) -> Option<(Grader, String)> {
        None
    }
    /// Returns true if a conversation continues when a prompt of this role leaves no room for an
    /// answer. Then the turn counts as silent ([`unanswered::is_silent`]), without sample and
    /// reward. Otherwise the conversation has failed.
    fn goes_on_without(&self, _role: &RoleName) -> bool {
        false
    }
    /// Returns the number of tokens from which a turn of this role counts as whole, if the game
    /// limits its turns. A shorter turn that reached its limit is truncated.
    fn whole_turn(&self, _role: &RoleName) -> Option<u32> {
        None
    }
    /// Returns the user's own programs that play roles. An ask for such a role is one line for its
    /// program.
    fn programs(&self) -> Vec<Program> {
        Vec::new()
    }
    /// Returns the tools that agents may call. An ask for a role of theirs is one call.
    fn tools(&self) -> Vec<ToolProgram> {
        Vec::new()
    }
    /// Checks that a program's answer to `question` can be used. Its form was checked before
    /// ([`program::read_answer`]). It is called before the answer is committed.
    fn check_answer(&self, _question: &Question, _answer: &str) -> Result<(), String> {
        Ok(())
    }
}

/// Checks that this task can be played, with the tools that it lists.
///
/// # Errors
/// The problem, in words for the task's publisher.
pub fn check_task(workflow: &dyn Workflow, task: &Task) -> Result<(), String> {
    workflow.check_task(task)?;
    workflow.check_tools(task)
}

/// Returns the agent that plays a role of `workflow`: by `[workflow.roles]`, or as the judge of its
/// answers.
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
        ProgramPlace::Agent(agent, judge) if program.roles.contains(role) => Some(Player {
            agent,
            temperature: Some(judge.config.temperature as f32),
            missing: Some(program.missing),
        }),
        _ => None,
    })
}

/// The player of a role.
#[derive(Debug, Clone, PartialEq)]
pub struct Player {
    pub agent: AgentName,
    /// A judge's temperature, in place of the agent's own.
    pub temperature: Option<f32>,
    /// For a judge: what to do with a conversation if its grade stays missing.
    pub missing: Option<Missing>,
}
