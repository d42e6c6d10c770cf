//! Rules for `[agents]` as a whole: at least one trains, and each plays a role.

use super::kind_checks::is_external;
use super::report::{Report, one_of};
use crate::{LossKind, OwnKinds, RunConfig};

/// Shipped workflows that have a known answer for a seat.
const WITH_ANSWERS: [&str; 1] = ["sequential"];

/// Names of logs that other processes write.
const OF_PROCESSES: [&str; 2] = ["coordinator", "run"];

/// Checks the agents as a whole.
pub(super) fn all(config: &RunConfig, report: &mut Report) {
    agents(config, report);
    imitators(config, report);
}

fn agents(config: &RunConfig, report: &mut Report) {
    let is_whole = report.is_whole("agents");
    report.when(
        config.agents.is_empty() && is_whole,
        "agents",
        &[],
        "is empty: write at least one [agents.NAME]",
    );
    let trains = config.agents.values().any(|agent| agent.train.enabled);
    report.when(
        !config.agents.is_empty() && !trains && is_whole,
        "agents",
        &[],
        "has no agent that trains, so the run would never end: remove train.enabled = false from at least one",
    );
    let is_cast = report.is_whole("workflow.roles");
    for name in config.agents.keys() {
        report.when(
            OF_PROCESSES.contains(&name.as_str()),
            format!("agents.{name}"),
            &[],
            format!("has the name of the log of another process ({name}.jsonl): choose another name"),
        );
        report.when(
            !config.plays(name) && is_cast,
            format!("agents.{name}"),
            &["workflow.roles"],
            "plays no role: name it under [workflow.roles], or remove it",
        );
        let only_judges = config.judges(name) && !config.workflow.roles.values().any(|agent| agent == name);
        report.when(
            only_judges && config.agents.get(name).is_some_and(|agent| agent.train.enabled),
            format!("agents.{name}.train.enabled"),
            &["workflow.roles", "graders"],
            "is true, but the agent only judges, and judging is not trained: write train.enabled = false",
        );
    }
}

/// Checks that an agent with cross-entropy plays a workflow that has known answers.
fn imitators(config: &RunConfig, report: &mut Report) {
    let kind = &config.workflow.kind;
    let has_answers =
        WITH_ANSWERS.contains(&kind.as_str()) || is_external(kind) || OwnKinds::installed().has_workflow(kind);
    for (name, agent) in config.agents.iter().filter(|(_, agent)| agent.train.enabled) {
        report.when(
            agent.train.loss.kind == LossKind::CrossEntropy && !has_answers,
            format!("agents.{name}.train.loss.kind"),
            &["workflow.kind"],
            format!(
                "is \"cross_entropy\", but workflow.kind = {kind:?} has no known answers: use {} or a program, or another loss",
                one_of(&WITH_ANSWERS)
            ),
        );
    }
}
