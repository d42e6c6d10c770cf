//! Rules for agents that play with earlier weights of another agent.

use super::below::Below;
use super::report::{Report, one_of};
use crate::{AgentConfig, EngineKind, ModelConfig, PastConfig, RunConfig};

/// Checks `agents.NAME.past` of every agent.
pub(super) fn all(config: &RunConfig, report: &mut Report) {
    for (name, agent) in &config.agents {
        let Some(past) = &agent.past else { continue };
        let mut below = Below {
            report,
            path: format!("agents.{name}"),
        };
        own(agent, past, &mut below);
        match config.agents.get(&past.of) {
            Some(of) if of.train.enabled && past.of != *name => other(agent, past, of, &mut below),
            _ => {
                let training = config.agents.iter().filter(|(_, agent)| agent.train.enabled);
                let names: Vec<&str> = training.map(|(name, _)| name.as_str()).collect();
                let message = format!(
                    "is {:?}, which is not another agent that trains: write {}",
                    past.of.as_str(),
                    one_of(&names)
                );
                below.compared(true, "past.of", &["train"], message);
            }
        }
    }
}

fn own(agent: &AgentConfig, past: &PastConfig, below: &mut Below) {
    below.when(past.every == 0, "past.every", "is 0: write 1 or more");
    below.when(past.keep == 0, "past.keep", "is 0: write 1 or more");
    below.compared(
        agent.train.enabled,
        "train.enabled",
        &["past"],
        "must be false: its weights are earlier weights of another agent, and training would change them",
    );
    below.compared(
        !matches!(agent.engine.kind, EngineKind::Embedded | EngineKind::Scripted),
        "engine.kind",
        &["past"],
        "must be \"embedded\" for an agent with a past: its weights come from checkpoints, which other engines cannot read",
    );
}

/// Checks the agent that provides the earlier weights.
fn other(agent: &AgentConfig, past: &PastConfig, of: &AgentConfig, below: &mut Below) {
    let name = past.of.as_str();
    let model = |model: &ModelConfig| toml::Value::try_from(model).ok();
    below.compared(
        model(&agent.model) != model(&of.model),
        "model",
        &["past"],
        format!("differs from that of {name}, which provides the weights: give both the same"),
    );
    below.compared(
        agent.lora != of.lora,
        "lora",
        &["past"],
        format!("differs from that of {name}, which provides the adapters: give both the same"),
    );
    let saved = of.train.checkpoint_every;
    below.compared(
        past.every > 0 && (saved == 0 || !past.every.is_multiple_of(saved)),
        "past.every",
        &["past.of"],
        format!(
            "is {}, but {name} does not write a checkpoint at each of those steps: write agents.{name}.train.checkpoint_every = {}, or a multiple of it here",
            past.every, past.every
        ),
    );
}
