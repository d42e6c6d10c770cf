//! `adversarial`: two sides that earn at each other's cost (the variations of Miles' multi-agent
//! example).
//!
//! Two games, `workflow.params.game`:
//! - `propose` ([`propose`]): a proposer writes a problem, and a solver tries it several times;
//! - `attack` ([`attack`]): a thinker answers, an adversary argues against the answer, and the
//!   thinker defends or revises it.
//!
//! A side may be frozen (`train.enabled = false`): the other side then plays against its
//! environment. A side's turns may be shared with past versions of itself or with other frozen
//! agents ([`opponents`]).

mod attack;
mod opponents;
mod problem;
mod propose;
mod seats;

use std::collections::BTreeMap;
use std::sync::Arc;

use configs::{GraderConfig, Problem, WorkflowConfig};

use crate::workflow::Workflow;
use crate::workflow::params::{Params, check_roles};

/// Makes the game that `params.game` names.
pub(super) fn build(
    config: &WorkflowConfig,
    graders: &BTreeMap<String, GraderConfig>,
) -> Result<Arc<dyn Workflow>, Vec<Problem>> {
    let mut params = Params::new(&config.params, "workflow.params");
    match params.choice("game", &["propose", "attack"]) {
        "attack" => checked(config, attack::Attack::new(params, graders)?),
        _ => checked(config, propose::Propose::new(params, graders)?),
    }
}

/// Adds the problems of the roles to those of the params.
fn checked<W: Workflow + 'static>(
    config: &WorkflowConfig,
    (workflow, mut problems): (W, Vec<Problem>),
) -> Result<Arc<dyn Workflow>, Vec<Problem>> {
    problems.extend(check_roles(config, &workflow.roles()));
    if problems.is_empty() {
        Ok(Arc::new(workflow))
    } else {
        Err(problems)
    }
}

#[cfg(test)]
mod tests;
