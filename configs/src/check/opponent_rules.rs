//! Rules for the opponents of `adversarial`: fixed ones, and ones that renew themselves.

use std::collections::BTreeSet;

use super::report::Report;
use crate::RunConfig;

/// Checks that no fixed opponent trains.
pub(super) fn all(config: &RunConfig, report: &mut Report) {
    if config.workflow.kind != "adversarial" {
        return;
    }
    // The workflow checks the shape of this parameter.
    let sides = config.workflow.params.get("opponents").and_then(toml::Value::as_table);
    let lists = sides
        .into_iter()
        .flat_map(|sides| sides.values())
        .filter_map(toml::Value::as_array);
    let names: BTreeSet<&str> = lists.flatten().filter_map(toml::Value::as_str).collect();
    for (role, agent) in &config.workflow.roles {
        let trains = config.agents.get(agent).is_some_and(|agent| agent.train.enabled);
        report.when(
            trains && names.contains(role.as_str()),
            format!("workflow.roles.{role}"),
            &["workflow.params.opponents", &format!("agents.{agent}.train.enabled")],
            format!(
                "is {:?}, which trains, but workflow.params.opponents names the role: an opponent must not change, so write agents.{agent}.train.enabled = false, or name another agent",
                agent.as_str()
            ),
        );
    }
    renewing(config, &names, report);
}

/// Checks `workflow.params.renewing`. The names of win rates depend on whether the opponent
/// changes.
fn renewing(config: &RunConfig, stand_ins: &BTreeSet<&str>, report: &mut Report) {
    let listed = config.workflow.params.get("renewing").and_then(toml::Value::as_array);
    let listed: BTreeSet<&str> = listed.into_iter().flatten().filter_map(toml::Value::as_str).collect();
    for (role, agent) in &config.workflow.roles {
        let role = role.as_str();
        let renews = config.agents.get(agent).is_some_and(|agent| agent.past.is_some());
        let path = "workflow.params.renewing";
        let compared = [format!("agents.{agent}.past"), format!("workflow.roles.{role}")];
        let compared: Vec<&str> = compared.iter().map(String::as_str).collect();
        report.when(
            renews && stand_ins.contains(role) && !listed.contains(role),
            path,
            &compared,
            format!("does not have {role:?}, which renews itself (agents.{agent}.past): write renewing = [{role:?}], so that win_fixed counts only opponents that never change"),
        );
        report.when(
            !renews && listed.contains(role),
            path,
            &compared,
            format!("has {role:?}, but agent {agent} never changes: remove it, or give the agent a past ([agents.{agent}] past)"),
        );
    }
}
