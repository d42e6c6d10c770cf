//! Rules for `[workflow.shaping.ROLE]` and `[workflow.credit]`. The workflows check which operators
//! they allow.

use super::report::{Report, one_of};
use crate::{CreditConfig, RoleName, RunConfig, ShapingConfig};

/// Checks shaping and credit.
pub(super) fn all(config: &RunConfig, report: &mut Report) {
    let workflow = &config.workflow;
    for (role, shaping) in &workflow.shaping {
        let path = format!("workflow.shaping.{role}");
        is_role(config, role, &path, report);
        lengths(&path, shaping, report);
    }
    for (role, credit) in &workflow.credit {
        let path = format!("workflow.credit.{role}");
        is_role(config, role, &path, report);
        if let CreditConfig::Difference(other) = credit {
            is_role(config, other, &format!("{path}.difference"), report);
        }
    }
}

fn is_role(config: &RunConfig, role: &RoleName, path: &str, report: &mut Report) {
    let roles: Vec<&str> = config.workflow.roles.keys().map(RoleName::as_str).collect();
    report.when(
        !config.workflow.roles.contains_key(role),
        path,
        &["workflow.roles", &format!("workflow.roles.{role}")],
        format!(
            "{:?} is not a role of [workflow.roles]: write {}",
            role.as_str(),
            one_of(&roles)
        ),
    );
}

fn lengths(path: &str, shaping: &ShapingConfig, report: &mut Report) {
    report.when(
        *shaping == ShapingConfig::default(),
        path,
        &[],
        "is empty: write overlong, length or length_penalty, or remove it",
    );
    if let Some(overlong) = shaping.overlong {
        report.when(
            overlong.from >= overlong.to,
            format!("{path}.overlong.from"),
            &[&format!("{path}.overlong.to")],
            format!(
                "is {}, but `to` is {}: write fewer tokens than `to`",
                overlong.from, overlong.to
            ),
        );
        weight(overlong.penalty, &format!("{path}.overlong.penalty"), report);
    }
    if let Some(length) = shaping.length {
        report.when(
            length.target == 0,
            format!("{path}.length.target"),
            &[],
            "is 0: write the target number of tokens, 1 or more",
        );
        weight(length.weight, &format!("{path}.length.weight"), report);
    }
    if let Some(penalty) = shaping.length_penalty {
        weight(penalty, &format!("{path}.length_penalty"), report);
    }
}

fn weight(value: f64, path: &str, report: &mut Report) {
    report.when(
        !value.is_finite() || value < 0.0,
        path,
        &[],
        format!("is {value}: write a number, 0 or more"),
    );
}
