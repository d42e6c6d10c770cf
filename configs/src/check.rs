//! From a TOML table to a [`RunConfig`], with every problem found in one pass.
//!
//! Three steps: `[defaults.agent]` is merged; the table is read, and each error of shape is mended in a copy so that the next
//! one is found too; the rules are checked, but not on what had to be mended. What a workflow itself asks of its roles
//! and parameters is checked where the workflows are.

mod advice;
mod agent_rules;
mod below;
mod engine_rules;
mod eval_rules;
mod foreign_rules;
mod http_rules;
mod judge_rules;
mod loss_rules;
mod merge;
mod methods;
mod opponent_rules;
mod past_rules;
mod reading;
mod report;
mod reward_rules;
mod rules;
mod sampling_rules;
mod tasks_rules;
mod template_rules;
mod tool_rules;

#[cfg(test)]
mod tests;

pub(crate) use rules::GRADERS;
pub use rules::WORKFLOWS;

use crate::RunConfig;
use crate::run::Problem;

/// Merges the defaults, reads the table and checks what it says.
///
/// # Errors
/// All problems, in the order of the file's tables, each with its key path and what to write instead.
pub fn resolve(mut table: toml::Table) -> Result<RunConfig, Vec<Problem>> {
    let (origins, mut problems) = merge::agent_defaults(&mut table);
    let read = reading::read::<RunConfig>(table);
    let mut report = report::Report {
        mended: read.flaws.iter().map(|flaw| flaw.path.clone()).collect(),
        problems: Vec::new(),
    };
    if let Some(config) = &read.config {
        rules::all(config, &mut report);
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

/// Each problem at the place where it was written: once, if it came from the defaults of several agents.
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
