//! The trait that every workflow implements, and the agents that play its roles.

use std::collections::BTreeSet;

use broker::protocol::task::Task;
use broker::{AgentName, RoleName};
use configs::{Missing, WorkflowConfig};

use super::events::{Event, RoleSpec, Step};
use super::program::{Place, Program, Question};
use super::tools::{self, ToolProgram};
use crate::grade::Grader;

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
