//! What may be said wrongly about agents that play with another's past.

use super::below::Below;
use super::report::{Report, one_of};
use crate::{AgentConfig, EngineKind, ModelConfig, PastConfig, RunConfig};

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
                    "is {:?}, which is no other agent that trains: write {}",
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
        "must be false: its weights are another agent's past, and training would make them its own",
    );
    below.compared(
        !matches!(agent.engine.kind, EngineKind::Embedded | EngineKind::Scripted),
        "engine.kind",
        &["past"],
        "must be \"embedded\" of an agent with a past: its weights come from checkpoints, which engines elsewhere do not see",
    );
}

/// Whose past it is must have one that fits.
fn other(agent: &AgentConfig, past: &PastConfig, of: &AgentConfig, below: &mut Below) {
    let name = past.of.as_str();
    let model = |model: &ModelConfig| toml::Value::try_from(model).ok();
    below.compared(
        model(&agent.model) != model(&of.model),
        "model",
        &["past"],
        format!("is another than that of {name}, whose weights it takes: give both the same"),
    );
    below.compared(
        agent.lora != of.lora,
        "lora",
        &["past"],
        format!("is another than that of {name}, whose adapters it takes: give both the same"),
    );
    let saved = of.train.checkpoint_every;
    below.compared(
        past.every > 0 && (saved == 0 || !past.every.is_multiple_of(saved)),
        "past.every",
        &["past.of"],
        format!(
            "is {}, and {name} writes no checkpoint at each of those steps: write agents.{name}.train.checkpoint_every = {}, or a multiple of it here",
            past.every, past.every
        ),
    );
}
