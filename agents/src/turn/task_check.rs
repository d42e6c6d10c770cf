//! Checks that the agents of a run can play a task, before any of them receives it.
//!
//! It refuses a task only if no conversation about it can be played or won. The tokens of a text
//! are known here for the generated tokenizers alone; agents with other models are not checked.

mod needs;
mod room;

use broker::RoleName;
use broker::protocol::task::Task;
use configs::{AgentConfig, AgentName, ModelConfig, RandomModel, RunConfig};
use rollout::workflow::{Workflow, check_task};

use super::image_support;

/// Checks that the workflow accepts the task, and that its agents can read it and win.
///
/// # Errors
/// Returns the reason for the publisher of the task.
pub fn check(config: &RunConfig, workflow: &dyn Workflow, task: &Task) -> Result<(), String> {
    check_task(workflow, task)?;
    image_support::check(config, task)?;
    if !config.agents.values().any(is_random) {
        return Ok(());
    }
    needs::check(config, workflow, task)?;
    room::check(config, workflow, task)
}

/// Returns true if the agent's model and tokenizer are generated ones.
fn is_random(agent: &AgentConfig) -> bool {
    matches!(agent.model, ModelConfig::Random(_))
}

/// Returns the agent of a role, if its tokenizer is a generated one.
fn random_agent<'a>(
    config: &'a RunConfig,
    workflow: &dyn Workflow,
    role: &RoleName,
) -> Option<(AgentName, &'a AgentConfig, &'a RandomModel)> {
    let player = rollout::workflow::player(&config.workflow, workflow, role)?;
    // The grade of a judge may stay missing, and its conversation goes on.
    if player.missing.is_some() {
        return None;
    }
    let agent = config.agents.get(&player.agent)?;
    match &agent.model {
        ModelConfig::Random(model) => Some((player.agent, agent, model)),
        ModelConfig::Path(_) | ModelConfig::Served(_) => None,
    }
}

#[cfg(test)]
mod tests;
