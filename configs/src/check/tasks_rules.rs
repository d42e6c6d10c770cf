//! Rules for `[tasks]`.

use std::collections::BTreeSet;

use super::report::Report;
use crate::{CurriculumConfig, RunConfig, TasksConfig};

/// Kinds of sources with a path or a name after the colon.
const KINDS: [&str; 5] = ["jsonl:", "parquet:", "arrow:", "hf:", "generator:"];
const EXAMPLES: &str = "\"jsonl:PATH\", \"parquet:PATH\", \"arrow:PATH\", \"hf:FOLDER[:SPLIT]\" or \"generator:KIND\"";

/// Checks `[tasks]`, its mix and its curriculum.
pub(super) fn all(config: &RunConfig, report: &mut Report) {
    let tasks = &config.tasks;
    let alone = ["queue", "mix"].contains(&tasks.source.as_str());
    report.when(
        !is_task_source(&tasks.source) && !alone,
        "tasks.source",
        &[],
        format!(
            "{:?} is not understood: write {EXAMPLES}, \"mix\" with [[tasks.mix]], or \"queue\"",
            tasks.source
        ),
    );
    for (name, key) in [("prompt", &tasks.prompt), ("label", &tasks.label)] {
        report.when(
            key.is_empty(),
            format!("tasks.{name}"),
            &[],
            format!("is empty: write the key that holds the {name}"),
        );
    }
    report.when(
        tasks.limit == Some(0),
        "tasks.limit",
        &[],
        "is 0, so there are no tasks: remove it to use all lines",
    );
    rows(
        "tasks",
        &tasks.source,
        tasks.slice.as_ref(),
        tasks.filter.as_ref(),
        report,
    );
    mix(tasks, report);
    if let Some(curriculum) = &tasks.curriculum {
        band(tasks, curriculum, report);
    }
}

/// Returns true for a source that provides tasks, for example `jsonl:PATH`.
pub(super) fn is_task_source(source: &str) -> bool {
    KINDS
        .iter()
        .any(|kind| source.strip_prefix(kind).is_some_and(|rest| !rest.trim().is_empty()))
}

/// Returns the message for an unknown source where only a source of tasks is allowed.
pub(super) fn not_understood(source: &str) -> String {
    format!("{source:?} is not understood: write {EXAMPLES}")
}

/// Checks slice and filter, which select rows of files.
pub(super) fn rows(section: &str, source: &str, slice: Option<&String>, filter: Option<&String>, report: &mut Report) {
    let has_rows = is_task_source(source) && !source.starts_with("generator:");
    for (key, given) in [("slice", slice), ("filter", filter)] {
        report.when(
            given.is_some_and(|text| text.trim().is_empty()),
            format!("{section}.{key}"),
            &[],
            "is empty: remove it to use every row",
        );
        report.when(
            given.is_some() && !has_rows && source != "mix",
            format!("{section}.{key}"),
            &[&format!("{section}.source")],
            format!("is for rows of files, and {source:?} has none: remove it"),
        );
    }
}

fn mix(tasks: &TasksConfig, report: &mut Report) {
    let is_mix = tasks.source == "mix";
    report.when(
        is_mix && tasks.mix.is_empty(),
        "tasks.mix",
        &["tasks.source"],
        "is missing: source = \"mix\" needs a [[tasks.mix]] for each source",
    );
    report.when(
        !is_mix && !tasks.mix.is_empty(),
        "tasks.source",
        &["tasks.mix"],
        "is not \"mix\", but [[tasks.mix]] is set: write source = \"mix\"",
    );
    report.when(
        is_mix && !tasks.params.is_empty(),
        "tasks.params",
        &["tasks.source"],
        "belong to one source: move them into its [[tasks.mix]]",
    );
    let mut names = BTreeSet::new();
    for (index, one) in tasks.mix.iter().enumerate() {
        let section = format!("tasks.mix.{index}");
        report.when(
            !is_task_source(&one.source),
            format!("{section}.source"),
            &[],
            not_understood(&one.source),
        );
        report.when(
            !(one.weight.is_finite() && one.weight > 0.0),
            format!("{section}.weight"),
            &[],
            "is not above 0: write for example 1.0, or remove the source",
        );
        report.when(
            one.limit == Some(0),
            format!("{section}.limit"),
            &[],
            "is 0, so it has no tasks: remove the source, or the limit to use all",
        );
        let legal = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        let name = one.name.as_deref();
        report.when(
            name.is_some_and(|name| name.is_empty() || name.len() > 64 || !name.chars().all(legal)),
            format!("{section}.name"),
            &[],
            "is not a name: use 1 to 64 letters, digits, '-', '_' and '.'",
        );
        report.when(
            name.is_some_and(|name| !names.insert(name)),
            format!("{section}.name"),
            &[],
            "is also the name of another source: task ids begin with it, so choose another name",
        );
        rows(&section, &one.source, one.slice.as_ref(), one.filter.as_ref(), report);
    }
}

fn band(tasks: &TasksConfig, curriculum: &CurriculumConfig, report: &mut Report) {
    let at = |key: &str| format!("tasks.curriculum.{key}");
    let generated = |source: &str| source.starts_with("generator:") || source == "queue";
    report.when(
        generated(&tasks.source) || tasks.mix.iter().any(|one| generated(&one.source)),
        "tasks.curriculum",
        &["tasks.source"],
        "is for tasks of files: generators and the queue have no fixed tasks to measure",
    );
    for (key, rate) in [("min", curriculum.min), ("max", curriculum.max)] {
        report.when(
            rate.is_some_and(|rate| !(0.0..=1.0).contains(&rate)),
            at(key),
            &[],
            "is not a pass rate: write a number from 0 to 1",
        );
    }
    let empty = curriculum.min.zip(curriculum.max).is_some_and(|(min, max)| min > max);
    report.when(
        empty,
        at("min"),
        &["tasks.curriculum.max"],
        "is above max, so no task is left",
    );
    report.when(
        curriculum.stages == 1 || curriculum.stages > 1000,
        at("stages"),
        &[],
        "must be 0 (no order) or from 2 to 1000",
    );
}
