//! What `[eval]` may say wrongly.

use super::rules::{Report, is_source};
use crate::RunConfig;

pub(super) fn all(config: &RunConfig, report: &mut Report) {
    let tasks = &config.tasks;
    let eval = &config.eval;
    let source = eval.source.as_deref();
    report.when(
        source.is_some_and(|source| !is_source(source)),
        "eval.source",
        &[],
        format!(
            "{:?} is not understood: write \"jsonl:PATH\" or \"generator:KIND\"",
            source.unwrap_or_default()
        ),
    );
    report.when(
        eval.every > 0 && source.is_none() && !tasks.source.starts_with("generator:"),
        "eval.source",
        &["eval.every", "tasks.source"],
        "is missing: eval.every needs tasks that are never trained on, such as \"jsonl:PATH\"",
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
            "is no finite number: write for example 0.2",
        );
    }
    report.when(eval.votes == Some(0), "eval.votes", &[], "is 0: write 1 or more");
    report.when(
        eval.pool.is_some_and(|size| size < 2),
        "eval.pool",
        &[],
        "is below 2: the pool is half right and half wrong, 100 or more make a figure",
    );
}
