//! Rules for `[workflow]`.

use super::kind_checks::{is_external, memory, remote, unknown};
use super::report::{Report, one_of};
use crate::{Advantage, LossKind, OwnKinds, ProcessConfig, RunConfig, TrainConfig};

/// Checks `[workflow]`.
pub(super) fn all(config: &RunConfig, report: &mut Report) {
    let workflow = &config.workflow;
    let kind = &workflow.kind;
    let known = OwnKinds::installed().known_workflows();
    report.when(
        !known.contains(&kind.as_str()) && !is_external(kind),
        "workflow.kind",
        &[],
        unknown(kind, &known),
    );
    remote(kind, "workflow.kind", report);
    group(config, report);
    roles(config, report);
    process(&workflow.process, report);
}

/// Checks the size of groups and the fractions that apply to them.
fn group(config: &RunConfig, report: &mut Report) {
    let workflow = &config.workflow;
    report.when(
        workflow.group_size == 0,
        "workflow.group_size",
        &[],
        "is 0, so no task would be played: write 1 or more",
    );
    // Cross-entropy ignores what the other conversations of the group earned.
    let compares = |train: &TrainConfig| {
        train.advantage != Advantage::ReinforcePlusPlus && train.loss.kind != LossKind::CrossEntropy
    };
    let mut trained = config.agents.values().filter(|agent| agent.train.enabled);
    report.when(
        workflow.group_size == 1 && trained.any(|agent| compares(&agent.train)),
        "workflow.group_size",
        &[],
        "is 1: an advantage compares conversations of the same task, so one alone teaches nothing; write 2 or more, for example 8 (or advantage = \"reinforce_plus_plus\", which compares with the batch)",
    );
    report.when(
        !(0.0..=1.0).contains(&workflow.min_group),
        "workflow.min_group",
        &[],
        format!(
            "is {}: write the fraction of a group that must be valid, from 0.0 to 1.0",
            workflow.min_group
        ),
    );
    report.when(
        !(0.0..=1.0).contains(&workflow.dominance),
        "workflow.dominance",
        &[],
        format!(
            "is {}: write the fraction of the trained tokens that one role may have, from 0.0 to 1.0 (1.0: no warning)",
            workflow.dominance
        ),
    );
    report.when(
        workflow.retries == 0,
        "workflow.retries",
        &[],
        "is 0, so no generation would be tried: write 1 or more",
    );
}

/// Checks that each role has an agent, and that rewards are for known roles.
fn roles(config: &RunConfig, report: &mut Report) {
    let workflow = &config.workflow;
    let agents: Vec<&str> = config.agents.keys().map(|n| n.as_str()).collect();
    report.when(
        workflow.roles.is_empty() && report.is_whole("workflow.roles"),
        "workflow.roles",
        &[],
        "is empty: assign an agent to each role, for example solver = \"a\"",
    );
    for (role, agent) in &workflow.roles {
        report.when(
            !config.agents.contains_key(agent),
            format!("workflow.roles.{role}"),
            &["agents", &format!("agents.{agent}")],
            format!("{:?} is not an agent: write {}", agent.as_str(), one_of(&agents)),
        );
    }
    let roles: Vec<&str> = workflow.roles.keys().map(|n| n.as_str()).collect();
    for (role, parts) in &workflow.reward {
        report.when(
            !workflow.roles.contains_key(role),
            format!("workflow.reward.{role}"),
            &["workflow.roles", &format!("workflow.roles.{role}")],
            format!(
                "{:?} is not a role of [workflow.roles]: write {}",
                role.as_str(),
                one_of(&roles)
            ),
        );
        for (part, weight) in parts {
            report.when(
                !weight.is_finite(),
                format!("workflow.reward.{role}.{part}"),
                &[],
                "is not a finite number: write a weight, for example 1.0",
            );
        }
    }
}

/// Checks `[workflow.process]`.
fn process(process: &ProcessConfig, report: &mut Report) {
    report.when(
        process.workers == 0,
        "workflow.process.workers",
        &[],
        "is 0, so no program would play: write 1 or more",
    );
    report.when(
        process.timeout.0.is_zero(),
        "workflow.process.timeout",
        &[],
        "is 0: write for example \"10s\"",
    );
    memory(process.memory, "workflow.process.memory", report);
}
