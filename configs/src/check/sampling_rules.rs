//! What an agent's sampling and `[workflow.sampling.ROLE]` may say wrongly.

use super::below::Below;
use super::rules::Report;
use crate::{AgentConfig, AgentName, EngineKind, ModelConfig, RoleSampling, RunConfig, SamplingConfig};

pub(super) fn of_agent(sampling: &SamplingConfig, trains: bool, below: &mut Below) {
    let SamplingConfig {
        temperature,
        top_p,
        top_k,
        min_p,
        max_new_tokens,
        max_context,
    } = *sampling;
    below.at_least_one(max_new_tokens as usize, "sampling.max_new_tokens");
    below.compared(
        max_context.is_some_and(|cap| cap > 0 && cap <= max_new_tokens),
        "sampling.max_context",
        &["sampling.max_new_tokens"],
        format!(
            "is {}, which leaves no room for a prompt beside sampling.max_new_tokens = {max_new_tokens}: write more, or lower that",
            max_context.unwrap_or(0)
        ),
    );
    if !trains {
        below.when(
            !(temperature.is_finite() && temperature >= 0.0),
            "sampling.temperature",
            format!("is {temperature}: write 0 or more"),
        );
        below.when(
            !(top_p > 0.0 && top_p <= 1.0),
            "sampling.top_p",
            format!("is {top_p}: write a number above 0 and at most 1"),
        );
        below.when(
            !(0.0..1.0).contains(&min_p),
            "sampling.min_p",
            format!("is {min_p}: write a number from 0 to below 1"),
        );
        return;
    }
    let why = "for an agent that trains, whose recorded log-probs must be those of the whole vocabulary";
    below.compared(
        !(temperature.is_finite() && temperature > 0.0),
        "sampling.temperature",
        &["train.enabled"],
        format!("is {temperature}: an agent that trains must sample, so write a number above 0, such as 1.0"),
    );
    for (wrong, key, found, neutral) in [
        (top_p != 1.0, "sampling.top_p", top_p.to_string(), "1.0"),
        (top_k != 0, "sampling.top_k", top_k.to_string(), "0"),
        (min_p != 0.0, "sampling.min_p", min_p.to_string(), "0.0"),
    ] {
        below.compared(
            wrong,
            key,
            &["train.enabled"],
            format!("is {found}: write {neutral} {why}"),
        );
    }
}

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
        max_context(name, agent, sampling, &path(".max_context"), report);
        report.when(
            sampling.stop.iter().any(String::is_empty),
            path(".stop"),
            &[],
            "has an empty text, which ends nothing: leave it out",
        );
    }
}

fn max_context(name: &AgentName, agent: &AgentConfig, sampling: &RoleSampling, path: &str, report: &mut Report) {
    let given = |cap: Option<u32>| cap.filter(|cap| *cap > 0);
    let Some(cap) = given(sampling.max_context) else { return };
    report.when(
        agent.engine.kind == EngineKind::Openai,
        path.to_owned(),
        &[&format!("agents.{name}.engine.kind")],
        format!("counts tokens, which only the server of {name} knows: leave it out"),
    );
    let answer = sampling.max_new_tokens.unwrap_or(agent.sampling.max_new_tokens);
    report.when(
        cap <= answer,
        path.to_owned(),
        &[&format!("agents.{name}.sampling.max_new_tokens")],
        format!(
            "is {cap}, which leaves no room for a prompt beside max_new_tokens = {answer}: write more, or lower that"
        ),
    );
    let of_model = match &agent.model {
        ModelConfig::Random(model) => u32::try_from(model.max_context).ok(),
        ModelConfig::Path(_) | ModelConfig::Served(_) => None,
    };
    let most = given(agent.sampling.max_context).into_iter().chain(of_model).min();
    report.when(
        most.is_some_and(|most| cap > most),
        path.to_owned(),
        &[
            &format!("agents.{name}.sampling.max_context"),
            &format!("agents.{name}.model"),
        ],
        format!(
            "is {cap}, more than the {} that {name} has: write that or less",
            most.unwrap_or(0)
        ),
    );
}
