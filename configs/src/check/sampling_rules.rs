//! Rules for `agents.NAME.sampling` and `[workflow.sampling.ROLE]`.

use std::fmt::Debug;

use super::below::Below;
use super::report::Report;
use crate::{
    AgentConfig, AgentName, EngineKind, LEAST_TEMPERATURE, LossKind, ModelConfig, Ratio, RoleSampling, RunConfig,
    SamplingConfig,
};

/// Returns true if logits may overflow when divided by this temperature. 0 divides nothing.
pub(super) fn is_too_cold(temperature: f64) -> bool {
    temperature > 0.0 && temperature < f64::from(LEAST_TEMPERATURE)
}

/// Returns the message for a temperature that [`is_too_cold`]. `greedy` offers greedy decoding
/// where that is allowed.
pub(super) fn too_cold(temperature: impl Debug, greedy: &str) -> String {
    format!(
        "is {temperature:?}: logits are divided by it, and below {LEAST_TEMPERATURE} they overflow; write {LEAST_TEMPERATURE} or more{greedy}"
    )
}

/// The offer of greedy decoding, for agents that need not sample.
pub(super) const OR_GREEDY: &str = ", or 0 for the likeliest token";

/// Checks `agents.NAME.sampling`.
pub(super) fn of_agent(agent: &AgentConfig, below: &mut Below) {
    let SamplingConfig {
        temperature,
        top_p,
        top_k,
        min_p,
        max_new_tokens,
        max_context,
    } = agent.sampling;
    below.at_least_one(max_new_tokens as usize, "sampling.max_new_tokens");
    below.compared(
        max_context.is_some_and(|cap| cap > 0 && cap <= max_new_tokens),
        "sampling.max_context",
        &["sampling.max_new_tokens"],
        format!(
            "is {}, which leaves no room for a prompt with sampling.max_new_tokens = {max_new_tokens}: write more, or lower that",
            max_context.unwrap_or(0)
        ),
    );
    if agent.train.enabled {
        below.compared(
            !(temperature.is_finite() && temperature > 0.0),
            "sampling.temperature",
            &["train.enabled"],
            format!("is {temperature}: an agent that trains must sample, so write a number above 0, for example 1.0"),
        );
    } else {
        below.when(
            !(temperature.is_finite() && temperature >= 0.0),
            "sampling.temperature",
            format!("is {temperature}: write 0 or more"),
        );
    }
    let greedy = if agent.train.enabled { "" } else { OR_GREEDY };
    below.when(
        is_too_cold(temperature.into()),
        "sampling.temperature",
        too_cold(temperature, greedy),
    );
    let (possible_p, possible_min) = (top_p > 0.0 && top_p <= 1.0, (0.0..1.0).contains(&min_p));
    below.when(
        !possible_p,
        "sampling.top_p",
        format!("is {top_p}: write a number above 0 and at most 1"),
    );
    below.when(
        !possible_min,
        "sampling.min_p",
        format!("is {min_p}: write a number from 0 to below 1"),
    );
    let truncations = [
        (possible_p && top_p < 1.0, "sampling.top_p", top_p.to_string(), "1.0"),
        (top_k > 0, "sampling.top_k", top_k.to_string(), "0"),
        (possible_min && min_p > 0.0, "sampling.min_p", min_p.to_string(), "0.0"),
    ];
    let Some((others, instead)) = untrainable(agent) else {
        if truncations.iter().any(|(truncates, ..)| *truncates) {
            weighed(agent, below);
        }
        return;
    };
    for (truncates, key, found, neutral) in truncations {
        let wrong = format!("is {found} for an agent that trains: write {neutral}{instead}");
        below.compared(truncates, key, others, wrong);
    }
}

/// Returns why this agent cannot train on tokens sampled from a part of the vocabulary: the keys
/// that cause it, and an alternative. Returns `None` if it can.
///
/// The trainer computes log-probs over the whole vocabulary. Let Z be the total probability of the
/// tokens that truncation keeps. Then the ratio of a token to the weights that sampled it is Z and
/// not 1. A ratio that is clipped, or read as staleness, is wrong by that factor. With
/// `loss.ratio = "decoupled"` the ratio only weighs the loss and is the correct importance weight.
/// Cross-entropy uses no ratio.
fn untrainable(agent: &AgentConfig) -> Option<(&'static [&'static str], &'static str)> {
    let loss = &agent.train.loss;
    if !agent.train.enabled {
        None
    } else if agent.engine.kind.is_foreign() {
        Some((
            &["train.enabled", "engine", "engine.kind"],
            ", because a foreign server does not report how much of the vocabulary it kept",
        ))
    } else if loss.kind == LossKind::CrossEntropy {
        None
    } else if loss.kind == LossKind::M2po {
        Some((
            &["train.enabled", "train.loss", "train.loss.kind"],
            ", or another train.loss.kind than \"m2po\", because truncation would use up its budget",
        ))
    } else if loss.kind == LossKind::Gspo {
        Some((
            &["train.enabled", "train.loss", "train.loss.kind"],
            ", or another train.loss.kind than \"gspo\", because truncation would distort its ratio of a whole answer",
        ))
    } else if loss.ratio != Ratio::Decoupled {
        Some((
            &["train.enabled", "train.loss", "train.loss.ratio"],
            ", or train.loss.ratio = \"decoupled\", which weighs each token for the truncation",
        ))
    } else {
        None
    }
}

/// Checks `weight_cap` under truncation. The weight of a token for truncation is Z, at most 1, and
/// a cap is for weights above 1.
fn weighed(agent: &AgentConfig, below: &mut Below) {
    let (loss, train) = (&agent.train.loss, &agent.train);
    let capped = loss.weight_cap > 0.0 && loss.weight_cap < 1.0;
    below.compared(
        train.enabled && loss.kind != LossKind::CrossEntropy && capped,
        "train.loss.weight_cap",
        &["train.loss", "sampling.top_p", "sampling.top_k", "sampling.min_p"],
        format!(
            "is {}, and would cap the weights for truncated sampling, which are at most 1: write 1.0 or more",
            loss.weight_cap
        ),
    );
}

/// Checks `[workflow.sampling.ROLE]`.
pub(super) fn all(config: &RunConfig, report: &mut Report) {
    for (role, sampling) in &config.workflow.sampling {
        let path = |key: &str| format!("workflow.sampling.{role}{key}");
        let agent = config.workflow.roles.get(role);
        report.when(
            agent.is_none(),
            path(""),
            &["workflow.roles", &format!("workflow.roles.{role}")],
            "is not a role of [workflow.roles]",
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
            report.when(
                is_too_cold(temperature.into()),
                path(".temperature"),
                &[],
                too_cold(temperature, if trains { "" } else { OR_GREEDY }),
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
                    "is {temperature}, but the servers of {name} are tested only at its own temperature, {}: remove it",
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
            "has an empty text, which ends no turn: remove it",
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
        format!("counts tokens, which only the server of {name} knows: remove it"),
    );
    let answer = sampling.max_new_tokens.unwrap_or(agent.sampling.max_new_tokens);
    report.when(
        cap <= answer,
        path.to_owned(),
        &[&format!("agents.{name}.sampling.max_new_tokens")],
        format!(
            "is {cap}, which leaves no room for a prompt with max_new_tokens = {answer}: write more, or lower that"
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
