//! Rules for `[eval]`.

use super::report::Report;
use super::sampling_rules::{is_too_cold, too_cold};
use super::tasks_rules::{is_task_source, not_understood, rows};
use crate::{Mode, OwnKinds, RunConfig};

/// The first parts of the names of evaluation figures. A suite's figures stand next to them under
/// the suite's name.
const FIGURES: [&str; 7] = [
    "collapse",
    "conversations",
    "reward",
    "summary",
    "time",
    "tokens",
    "weights",
];

/// Checks `[eval]` and its suites.
pub(super) fn all(config: &RunConfig, report: &mut Report) {
    let tasks = &config.tasks;
    let eval = &config.eval;
    let source = eval.source.as_deref();
    report.when(
        source.is_some_and(|source| !is_task_source(source)),
        "eval.source",
        &[],
        not_understood(source.unwrap_or_default()),
    );
    rows(
        "eval",
        source.unwrap_or_default(),
        eval.slice.as_ref(),
        eval.filter.as_ref(),
        report,
    );
    report.when(
        eval.every > 0 && source.is_none() && !tasks.source.starts_with("generator:"),
        "eval.source",
        &["eval.every", "tasks.source"],
        "is missing: eval.every needs tasks that are never trained on, for example \"jsonl:PATH\"",
    );
    report.when(
        eval.tasks == Some(0),
        "eval.tasks",
        &[],
        "is 0, so nothing would be evaluated: write 1 or more",
    );
    report.when(
        eval.pool.is_some() && config.workflow.kind != "solve-verify",
        "eval.pool",
        &["workflow.kind"],
        "is for workflow.kind = \"solve-verify\": other workflows have no verifier to measure; remove it",
    );
    let calls = |names: &Vec<String>| !names.is_empty();
    let solver = crate::RoleName::new("solver").ok();
    report.when(
        eval.pool.is_some() && solver.is_some_and(|solver| config.workflow.tools.get(&solver).is_some_and(calls)),
        "eval.pool",
        &["workflow.tools"],
        "would hold the solver's tool calls in place of its answers: remove it, or remove the solver's tools",
    );
    report.when(
        eval.votes.is_some() && config.workflow.kind != "solo",
        "eval.votes",
        &["workflow.kind"],
        "is for workflow.kind = \"solo\": only the answers of one role can be counted; remove it",
    );
    for (metric, floor) in &eval.floors {
        report.when(
            !floor.is_finite(),
            format!("eval.floors.{metric}"),
            &[],
            "is not a finite number: write for example 0.2",
        );
    }
    report.when(
        eval.stop_at.is_some_and(|value| !(value > 0.0 && value <= 1.0)),
        "eval.stop_at",
        &[],
        "is not a share of conversations: write a number above 0, at most 1",
    );
    report.when(eval.votes == Some(0), "eval.votes", &[], "is 0: write 1 or more");
    report.when(
        eval.pool.is_some_and(|size| size < 2),
        "eval.pool",
        &[],
        "is below 2: the pool is half right and half wrong; 100 or more give a useful figure",
    );
    report.when(
        !eval.hold && config.run.mode == Mode::Sync,
        "eval.hold",
        &["run.mode"],
        "is for run.mode = \"async\": synchronous rounds wait for an evaluation to end; remove it",
    );
    report.when(
        eval.hold && config.run.mode == Mode::Async && eval.hold_at_most < config.run.lease,
        "eval.hold_at_most",
        &["run.lease"],
        format!(
            "is below run.lease ({}): agents would change their weights before an evaluation ends; write for example \"1h\", or hold = false",
            config.run.lease
        ),
    );
    suites(config, report);
}

fn suites(config: &RunConfig, report: &mut Report) {
    // Without a source, `[eval]` takes tasks of the generator, and only if `eval.every` is set.
    let evaluates =
        config.eval.source.is_some() || (config.eval.every > 0 && config.tasks.source.starts_with("generator:"));
    for (name, suite) in &config.eval.suites {
        let key = |key: &str| format!("eval.suites.{name}.{key}");
        let legal = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        report.when(
            name.is_empty() || !name.chars().all(legal),
            format!("eval.suites.{name}"),
            &[],
            "is not a name of a suite: use letters, digits, '-' and '_'",
        );
        report.when(
            !is_task_source(&suite.source),
            key("source"),
            &[],
            not_understood(&suite.source),
        );
        rows(
            &format!("eval.suites.{name}"),
            &suite.source,
            suite.slice.as_ref(),
            suite.filter.as_ref(),
            report,
        );
        report.when(
            suite.every == Some(0),
            key("every"),
            &[],
            "is 0: write 1 for every evaluation of the run, 5 for each fifth, or remove it for none",
        );
        report.when(
            suite.every.is_some_and(|every| every > 0) && !evaluates,
            key("every"),
            &["eval.source", "eval.every", "tasks.source"],
            "is for runs that evaluate: set eval.source, or eval.every with a generator, or remove it",
        );
        report.when(
            suite.every.is_some() && FIGURES.contains(&name.as_str()),
            format!("eval.suites.{name}"),
            &[],
            "is the name of an evaluation's own figures: choose another name, for example \"held-out\"",
        );
        report.when(
            suite.tasks == Some(0),
            key("tasks"),
            &[],
            "is 0, so nothing would be measured: write 1 or more",
        );
        report.when(
            suite
                .temperature
                .is_some_and(|value| !(value.is_finite() && value > 0.0)),
            key("temperature"),
            &[],
            "is not above 0: samples at temperature 0 are all the same; write for example 0.6, or samples = 0 for only the greedy conversation",
        );
        let temperature = suite.temperature.unwrap_or(1.0);
        report.when(
            is_too_cold(temperature),
            key("temperature"),
            &[],
            too_cold(temperature, ""),
        );
        let grader = suite.grader.as_deref().unwrap_or("exact");
        let kinds = OwnKinds::installed().known_graders();
        let known = kinds.contains(&grader) || grader.starts_with("process:") || config.graders.contains_key(grader);
        report.when(
            !known,
            key("grader"),
            &["graders"],
            format!(
                "{grader:?} is neither a kind of grader ({}, process:FILE) nor a name in [graders]",
                kinds.join(", ")
            ),
        );
    }
}
