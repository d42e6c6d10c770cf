//! Checks a configuration: from a TOML table to a [`RunConfig`] or to all its problems in one pass.
//!
//! 1. `merge` merges `[defaults.agent]` under every agent.
//! 2. `reading` reads the table. It repairs each error of shape in a copy, to find the next error.
//! 3. The `*_rules` check the values, except for values that were repaired.
//!
//! The workflows themselves check their own roles and parameters.

mod advice;
mod agent_rules;
mod below;
mod engine_rules;
mod eval_rules;
mod foreign_keys;
mod foreign_rules;
mod grader_rules;
mod http_rules;
mod judge_rules;
mod kind_checks;
mod loss_rules;
mod merge;
pub(crate) mod methods;
mod model_rules;
mod opponent_rules;
mod past_rules;
mod reading;
mod report;
mod reward_rules;
mod roster_rules;
mod run_rules;
mod sampling_rules;
mod tasks_rules;
mod template_rules;
mod tool_rules;
mod workflow_rules;

#[cfg(test)]
mod tests;

pub use advice::nearest;
pub use run_rules::{broker_url, state_url};

use crate::{Problem, RunConfig};

/// Merges the defaults, reads the table and checks its values.
///
/// # Errors
/// All problems, each with its key path and what to write instead, in the order of the tables.
pub fn resolve(mut table: toml::Table) -> Result<RunConfig, Vec<Problem>> {
    let (origins, mut problems) = merge::agent_defaults(&mut table);
    merge::judge_timeouts(&mut table);
    let read = reading::read::<RunConfig>(table);
    let mut report = report::Report {
        repaired: read.flaws.iter().map(|flaw| flaw.path.clone()).collect(),
        problems: Vec::new(),
    };
    if let Some(config) = &read.config {
        rules(config, &mut report);
    }
    problems.extend(read.flaws.into_iter().map(|flaw| Problem {
        path: flaw.path.join("."),
        message: flaw.message,
    }));
    problems.append(&mut report.problems);
    let problems = placed(problems, &origins);
    match read.config {
        Some(mut config) if problems.is_empty() => {
            crate::suites::fill(&mut config.eval.suites);
            Ok(config)
        }
        _ => Err(problems),
    }
}

/// Applies all rules. The order is that of the problems in the answer.
fn rules(config: &RunConfig, report: &mut report::Report) {
    run_rules::all(config, report);
    tasks_rules::all(config, report);
    eval_rules::all(config, report);
    workflow_rules::all(config, report);
    reward_rules::all(config, report);
    grader_rules::all(config, report);
    sampling_rules::all(config, report);
    tool_rules::all(config, report);
    for (name, agent) in &config.agents {
        agent_rules::agent(config, name, agent, report);
    }
    roster_rules::all(config, report);
    opponent_rules::all(config, report);
    past_rules::all(config, report);
    engine_rules::all(config, report);
    foreign_rules::all(config, report);
    http_rules::all(config, report);
    run_rules::rounds(config, report);
}

/// Moves each problem to the place where the value was written. Problems that several agents
/// inherit from the defaults are listed once.
fn placed(problems: Vec<Problem>, origins: &merge::Origins) -> Vec<Problem> {
    let mut placed: Vec<Problem> = Vec::new();
    for problem in problems {
        let path = problem.path.split('.').map(String::from).collect();
        let problem = Problem {
            path: origins.place(path).join("."),
            ..problem
        };
        if !placed
            .iter()
            .any(|known| known.path == problem.path && (known.message == problem.message))
        {
            placed.push(problem);
        }
    }
    placed
}
