//! Evaluations over steps, their changes, and the tasks of the first and the last one.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use crate::dashboard::answer::ApiError;
use crate::eval::cross::CrossTable;
use crate::run_folder::RunFolder;
use crate::stats::over_tasks_of;
use crate::stats::summary::{self, Evaluation, MetricChange};

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Evaluations {
    evaluations: Vec<Shown>,
    changes: Vec<Change>,
    tasks: Tasks,
    /// The newest table of `dyad cross-play`, if it named this run first.
    cross_play: Option<CrossTable>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Shown {
    step: u64,
    last: bool,
    pinned: Option<bool>,
    /// The versions of each agent, as `lineage.step`.
    versions: BTreeMap<String, Vec<String>>,
    figures: BTreeMap<String, Mean>,
}

/// The mean over tasks with its 95% interval.
#[derive(Debug, Serialize, JsonSchema)]
struct Mean {
    mean: f64,
    low: Option<f64>,
    high: Option<f64>,
    tasks: usize,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Change {
    metric: String,
    before: f64,
    after: f64,
    gain: f64,
    low: f64,
    high: f64,
    tasks: usize,
}

/// A figure's value for each task.
#[derive(Debug, Default, Serialize, JsonSchema)]
struct Tasks {
    metric: String,
    first_step: u64,
    last_step: u64,
    first: BTreeMap<String, f64>,
    last: BTreeMap<String, f64>,
}

/// Reads the evaluations; the tasks are those of `metric`, or of `success`.
pub(crate) fn read(folder: &RunFolder, metric: Option<&str>) -> Result<Evaluations, ApiError> {
    let evaluations = summary::evaluations(folder)?;
    let changes = summary::read(folder)?;
    let tasks = tasks(&evaluations, metric);
    Ok(Evaluations {
        evaluations: evaluations.into_values().map(shown).collect(),
        changes: changes.into_iter().map(change).collect(),
        tasks,
        cross_play: cross_play(folder),
    })
}

fn cross_play(folder: &RunFolder) -> Option<CrossTable> {
    let text = std::fs::read(folder.cross_play()).ok()?;
    serde_json::from_slice(&text).ok()
}

fn shown(one: Evaluation) -> Shown {
    let mean = |(name, values): (&String, &BTreeMap<String, f64>)| {
        let values: Vec<f64> = values.values().copied().collect();
        let interval = over_tasks_of(name, &values);
        let figure = Mean {
            mean: one.mean(name)?,
            low: interval.map(|interval| interval.low),
            high: interval.map(|interval| interval.high),
            tasks: values.len(),
        };
        Some((name.clone(), figure))
    };
    let figures = one.values.iter().filter_map(mean).collect();
    let versions = one.versions.iter().map(|(agent, versions)| {
        let versions = versions.iter().map(ToString::to_string).collect();
        (agent.to_string(), versions)
    });
    Shown {
        step: one.step,
        last: one.last,
        pinned: one.pinned,
        versions: versions.collect(),
        figures,
    }
}

fn change(change: MetricChange) -> Change {
    Change {
        metric: change.metric,
        before: change.before,
        after: change.after,
        gain: change.gain,
        low: change.low,
        high: change.high,
        tasks: change.tasks,
    }
}

fn tasks(evaluations: &BTreeMap<u64, Evaluation>, metric: Option<&str>) -> Tasks {
    let (Some((first_step, first)), Some((last_step, last))) =
        (evaluations.first_key_value(), evaluations.last_key_value())
    else {
        return Tasks::default();
    };
    let metric = metric.filter(|name| last.values.contains_key(*name));
    let default = || {
        last.values
            .keys()
            .find(|name| *name == "success")
            .or(last.values.keys().next())
    };
    let metric = metric
        .map(str::to_owned)
        .or_else(|| default().cloned())
        .unwrap_or_default();
    let values = |one: &Evaluation| one.values.get(&metric).cloned().unwrap_or_default();
    Tasks {
        first_step: *first_step,
        last_step: *last_step,
        first: values(first),
        last: values(last),
        metric,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run_folder::tests::config_in;

    #[test]
    fn table_of_cross_play_is_answered_as_it_was_written() {
        let base = tempfile::tempdir().unwrap();
        let folder = RunFolder::create(base.path(), &config_in(base.path()), None).unwrap();
        let answered = || serde_json::to_value(read(&folder, None).unwrap()).unwrap()["cross_play"].clone();
        assert!(answered().is_null());
        // A reward that is not a number is null.
        let figures = serde_json::json!({"success": {"mean": 0.1, "low": 0.07, "high": 0.3},
            "reward/a": {"mean": null, "low": null, "high": null}});
        let written = serde_json::json!({"figures": ["success", "reward/a"], "cells": [["all initial", figures]],
            "differences": [], "runs": ["r"], "over": "2 runs"});
        std::fs::write(folder.cross_play(), written.to_string()).unwrap();
        assert_eq!(answered(), written);
        std::fs::write(folder.cross_play(), "{\"figures\": 1}").unwrap();
        assert!(answered().is_null(), "a damaged file");
    }

    fn evaluation(step: u64, values: &[(&str, f64)]) -> Evaluation {
        let values = values
            .iter()
            .map(|(task, value)| ((*task).to_owned(), *value))
            .collect();
        Evaluation {
            step,
            values: [("success".to_owned(), values), ("other".to_owned(), BTreeMap::new())].into(),
            ..Evaluation::default()
        }
    }

    #[test]
    fn success_is_shown_unless_another_figure_is_asked_for() {
        let one = evaluation(0, &[("t1", 0.0), ("t2", 1.0)]);
        let all = [(0, one.clone()), (4, evaluation(4, &[("t1", 1.0)]))].into();
        let found = tasks(&all, None);
        assert_eq!(
            (found.metric.as_str(), found.first_step, found.last_step),
            ("success", 0, 4)
        );
        assert_eq!((found.first.len(), found.last.len()), (2, 1));
        assert_eq!(tasks(&all, Some("other")).metric, "other");
        assert_eq!(tasks(&all, Some("no such")).metric, "success");
        let figures = shown(one).figures;
        assert!((figures["success"].mean - 0.5).abs() < 1e-12 && figures["success"].tasks == 2);
        assert!(!figures.contains_key("other"), "a figure without a task has no mean");
    }
}
