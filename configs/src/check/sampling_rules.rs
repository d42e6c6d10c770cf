//! What `[workflow.sampling.ROLE]` may say wrongly.

use super::rules::Report;
use crate::{EngineKind, RunConfig};

pub(super) fn all(config: &RunConfig, report: &mut Report) {
    for (role, sampling) in &config.workflow.sampling {
        let path = |key: &str| format!("workflow.sampling.{role}{key}");
        let agent = config.workflow.roles.get(role);
        report.when(
            agent.is_none(),
            path(""),
            &["workflow.roles", &format!("workflow.roles.{role}")],
            "is no role of [workflow.roles]",
        );
        let Some((name, agent)) = agent.and_then(|name| config.agents.get_key_value(name)) else {
            continue;
        };
        if let Some(temperature) = sampling.temperature {
            let trains = agent.train.enabled;
            report.when(
                !temperature.is_finite() || temperature < 0.0 || (trains && temperature == 0.0),
                path(".temperature"),
                &[&format!("agents.{name}.train.enabled")],
                format!("is {temperature}: write a number above 0, or 0 for an agent that does not train"),
            );
            let theirs = matches!(agent.engine.kind, EngineKind::Sglang | EngineKind::Vllm);
            report.when(
                theirs && trains && temperature != agent.sampling.temperature,
                path(".temperature"),
                &[
                    &format!("agents.{name}.engine.kind"),
                    &format!("agents.{name}.sampling.temperature"),
                ],
                format!(
                    "is {temperature}, and the servers of {name} are tried at its own, {}, alone: leave it out",
                    agent.sampling.temperature
                ),
            );
        }
        if let Some(limit) = sampling.max_new_tokens {
            let most = agent.sampling.max_new_tokens;
            report.when(
                limit == 0 || limit > most,
                path(".max_new_tokens"),
                &[&format!("agents.{name}.sampling.max_new_tokens")],
                format!("is {limit}: write from 1 to the {most} of agents.{name}.sampling.max_new_tokens"),
            );
        }
        report.when(
            sampling.stop.iter().any(String::is_empty),
            path(".stop"),
            &[],
            "has an empty text, which ends nothing: leave it out",
        );
    }
}
