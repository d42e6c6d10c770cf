//! Rules about the opponents of `adversarial`: which stand still, and which renew themselves.

use std::collections::BTreeSet;

use super::report::Report;
use crate::RunConfig;

/// A stand-in that trained would be no fixed opponent.
pub(super) fn all(config: &RunConfig, report: &mut Report) {
    if config.workflow.kind != "adversarial" {
        return;
    }
    // Their shape is the workflow's to check.
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
                "is {:?}, which trains, while workflow.params.opponents names the role: an opponent stays as it is, so write agents.{agent}.train.enabled = false, or name another agent",
                agent.as_str()
            ),
        );
    }
    renewing(config, &names, report);
}

/// What is won against a stand-in has a name by whether it changes: the workflow must be told.
fn renewing(config: &RunConfig, stand_ins: &BTreeSet<&str>, report: &mut Report) {
    let told = config.workflow.params.get("renewing").and_then(toml::Value::as_array);
    let told: BTreeSet<&str> = told.into_iter().flatten().filter_map(toml::Value::as_str).collect();
    for (role, agent) in &config.workflow.roles {
        let role = role.as_str();
        let renews = config.agents.get(agent).is_some_and(|agent| agent.past.is_some());
        let path = "workflow.params.renewing";
        let compared = [format!("agents.{agent}.past"), format!("workflow.roles.{role}")];
        let compared: Vec<&str> = compared.iter().map(String::as_str).collect();
        report.when(
            renews && stand_ins.contains(role) && !told.contains(role),
            path,
            &compared,
            format!("does not have {role:?}, which renews itself as agents.{agent}.past says: write renewing = [{role:?}], so that win_fixed is of those alone that never change"),
        );
        report.when(
            !renews && told.contains(role),
            path,
            &compared,
            format!("has {role:?}, whose agent never changes: leave it out, or give it a past ([agents.{agent}] past)"),
        );
    }
}
