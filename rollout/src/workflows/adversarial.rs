//! `adversarial`: two sides that earn at each other's cost (the variations of Miles' multi-agent example).
//!
//! Two games, `workflow.params.game`:
//! - `propose` ([`propose`]): a proposer writes a problem, a solver tries it several times;
//! - `attack` ([`attack`]): a thinker answers, an adversary argues against the answer, the thinker defends or revises it.
//!
//! A side may be frozen (`train.enabled = false`, the player against its environment), and a side's turns may be shared with
//! past versions of itself or other frozen agents ([`opponents`]).

mod attack;
mod opponents;
mod problem;
mod propose;

use std::collections::BTreeMap;
use std::sync::Arc;

use broker::RoleName;
use configs::{GraderConfig, Problem, WorkflowConfig};

use crate::workflow::params::{Params, check_roles};
use crate::workflow::transcript::reward;
use crate::workflow::{RoleSpec, SeatReward, Workflow};

/// The game that `params.game` names.
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

/// With what is wrong with the roles beside what was wrong with the params.
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

fn spec(name: &RoleName, parts: &[(&'static str, f64)]) -> RoleSpec {
    RoleSpec {
        name: name.clone(),
        parts: parts.to_vec(),
    }
}

fn seat(role: &RoleName, seat: u16, subkey: &str, parts: &[(&'static str, f32)]) -> SeatReward {
    SeatReward {
        subkey: subkey.to_owned(),
        ..reward(role, seat, parts)
    }
}

#[cfg(test)]
mod tests;
