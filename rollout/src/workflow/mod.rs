//! Workflows: who speaks when, on what prompt, until when, and what each side earns.
//!
//! A workflow is a total, pure function of (task, seed, events so far). It keeps no state: the coordinator commits each
//! event once, in order, and asks [`Workflow::step`] what comes next; a coordinator that takes a conversation over asks the
//! same with the same events and gets the same answer.

pub(crate) mod judge;
mod params;
mod prompts;
pub mod signal;
mod solo;
mod solve_rewrite_select;
pub(crate) mod solve_verify;
#[cfg(test)]
pub(crate) mod testing;
mod transcript;
mod verdict;

use std::collections::BTreeMap;
use std::sync::Arc;

use broker::RoleName;
use broker::protocol::task::Task;
use broker::protocol::turn::{Finish, Message};
use configs::{GraderConfig, Problem, WorkflowConfig};

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

/// What comes next.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Every generation that is wanted now and has no event yet, those already asked for included. Never empty.
    Ask(Vec<Ask>),
    Done(Outcome),
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
    /// Total: any list of events gets an answer, and nothing panics. `seed` is the conversation's own.
    fn step(&self, task: &Task, seed: u64, events: &[Event]) -> Step;
}

/// Makes the workflow that `[workflow]` describes, or names everything that is wrong with it, each with its key path.
///
/// Template files that `workflow.params.templates` names are read here, once; relative paths count from the working
/// directory.
pub fn build(
    config: &WorkflowConfig,
    graders: &BTreeMap<String, GraderConfig>,
) -> Result<Arc<dyn Workflow>, Vec<Problem>> {
    match config.kind.as_str() {
        "signal" => Ok(Arc::new(signal::Signal::new(config)?)),
        "solve-verify" => Ok(Arc::new(solve_verify::SolveVerify::new(config, graders)?)),
        "solo" => Ok(Arc::new(solo::Solo::new(config, graders)?)),
        "solve-rewrite-select" => Ok(Arc::new(solve_rewrite_select::SolveRewriteSelect::new(
            config, graders,
        )?)),
        other => {
            let message =
                format!("there is no workflow {other:?}: use signal, solo, solve-verify or solve-rewrite-select");
            Err(vec![Problem {
                path: "workflow.kind".into(),
                message,
            }])
        }
    }
}
