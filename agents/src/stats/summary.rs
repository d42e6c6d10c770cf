//! The improvement of a run: first evaluation against last, task by task, with 95% intervals.

use std::collections::{BTreeMap, BTreeSet};

use broker::AgentName;
use broker::ids::WeightVersion;
use serde::{Deserialize, Serialize};

use crate::run_folder::logs::read_json_lines;
use crate::run_folder::metrics::Metrics;
use crate::run_folder::{FolderError, RunFolder};
use crate::stats;

/// The result of one evaluation: for every metric, the value of every task that has it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Evaluation {
    /// Step of the lead agent.
    pub step: u64,
    /// True for the evaluation after the last step.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub last: bool,
    /// True if each agent generated everything with one version of its weights. That includes the
    /// keys and values of its prompts, and the held version if it was asked to hold one. None for
    /// runs of earlier builds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pinned: Option<bool>,
    /// The versions that took part, by agent.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub versions: BTreeMap<AgentName, BTreeSet<WeightVersion>>,
    pub values: BTreeMap<String, BTreeMap<String, f64>>,
}

impl Evaluation {
    /// Returns the mean of a metric over its tasks.
    #[must_use]
    pub fn mean(&self, metric: &str) -> Option<f64> {
        let values = self.values.get(metric)?;
        (!values.is_empty()).then(|| values.values().sum::<f64>() / values.len() as f64)
    }

    /// Stores a task's value of a metric and returns true. A value that is not finite is left out,
    /// and the result is false: it would spoil the mean and has no JSON form.
    pub fn put(&mut self, metric: &str, task: &str, value: f64) -> bool {
        let is_number = value.is_finite();
        if is_number {
            let values = self.values.entry(metric.to_owned()).or_default();
            values.insert(task.to_owned(), value);
        }
        is_number
    }
}

/// One metric before and after, over the same tasks.
#[derive(Debug, Clone, PartialEq)]
pub struct MetricChange {
    pub metric: String,
    pub before: f64,
    pub after: f64,
    /// `after - before`, and its 95% interval.
    pub gain: f64,
    pub low: f64,
    pub high: f64,
    pub tasks: usize,
}

impl MetricChange {
    /// Returns Student's t of the mean difference over paired values `(before, after)`. None for
    /// fewer than two pairs.
    #[must_use]
    pub fn of(metric: &str, pairs: &[(f64, f64)]) -> Option<Self> {
        let n = pairs.len() as f64;
        let mean = |value: fn(&(f64, f64)) -> f64| pairs.iter().map(value).sum::<f64>() / n;
        let differences: Vec<f64> = pairs.iter().map(|pair| pair.1 - pair.0).collect();
        let gain = stats::t(&differences)?;
        Some(Self {
            metric: metric.to_owned(),
            before: mean(|pair| pair.0),
            after: mean(|pair| pair.1),
            gain: gain.mean,
            low: gain.low,
            high: gain.high,
            tasks: pairs.len(),
        })
    }
}

/// Returns every evaluation of the run, by step. An evaluation repeated after a restart counts
/// once. Where the last evaluation shares a step with a regular one, the last one counts, in
/// whichever file it is.
pub fn evaluations(folder: &RunFolder) -> Result<BTreeMap<u64, Evaluation>, FolderError> {
    let mut evaluations: BTreeMap<u64, Evaluation> = BTreeMap::new();
    for path in folder.files("evals")? {
        let lines: Vec<Evaluation> = read_json_lines(&path).map_err(|source| FolderError::Io {
            doing: "read",
            path: path.clone(),
            source,
        })?;
        for one in lines {
            if one.last || !evaluations.get(&one.step).is_some_and(|known| known.last) {
                evaluations.insert(one.step, one);
            }
        }
    }
    Ok(evaluations)
}

/// Returns the change of every metric that the first and the last evaluation have for the same
/// tasks. Empty with fewer than two evaluations.
pub fn read(folder: &RunFolder) -> Result<Vec<MetricChange>, FolderError> {
    let mut evaluations = evaluations(folder)?;
    let ends = (evaluations.pop_first(), evaluations.pop_last());
    let (Some((_, first)), Some((_, last))) = ends else {
        return Ok(Vec::new());
    };
    Ok(changes(&first, &last))
}

fn changes(first: &Evaluation, last: &Evaluation) -> Vec<MetricChange> {
    let change = |(metric, before): (&String, &BTreeMap<String, f64>)| {
        let after = last.values.get(metric)?;
        // A metric that only some conversations have (for example a retry's success) covers other
        // tasks each time, so there are no pairs.
        if !before.keys().eq(after.keys()) {
            return None;
        }
        let pairs: Vec<(f64, f64)> = before.values().copied().zip(after.values().copied()).collect();
        MetricChange::of(metric, &pairs)
    };
    // Token counts are not a goal; of a suite only the success is.
    let reported =
        |metric: &str| !metric.contains('/') || metric.starts_with("reward/") || metric.ends_with("/success");
    let figures = first.values.iter().filter(|(metric, _)| reported(metric));
    figures.filter_map(change).collect()
}

/// Returns the changes as one line of metrics: `solver_first/before`, `/after`, `/gain`,
/// `/gain_low`, `/gain_high`, `/tasks`.
#[must_use]
pub fn line(changes: &[MetricChange], step: u64) -> Metrics {
    let mut line = Metrics::new("summary", step);
    for change in changes {
        for (part, value) in [
            ("before", change.before),
            ("after", change.after),
            ("gain", change.gain),
            ("gain_low", change.low),
            ("gain_high", change.high),
            ("tasks", change.tasks as f64),
        ] {
            line.set(&format!("{}/{part}", change.metric), value);
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn evaluation(step: u64, metrics: &[(&str, &[(&str, f64)])]) -> Evaluation {
        let values = |list: &[(&str, f64)]| list.iter().map(|(task, value)| ((*task).to_owned(), *value)).collect();
        Evaluation {
            step,
            values: metrics
                .iter()
                .map(|(name, list)| ((*name).to_owned(), values(list)))
                .collect(),
            ..Evaluation::default()
        }
    }

    /// One infinite value would make every mean infinite.
    #[test]
    fn a_value_that_is_not_finite_is_left_out_of_the_mean() {
        let mut found = evaluation(0, &[("success", &[("a", 0.5)])]);
        for value in [f64::INFINITY, f64::NEG_INFINITY, f64::NAN] {
            assert!(!found.put("success", "b", value) && !found.put("other", "b", value));
        }
        assert_eq!((found.mean("success"), found.mean("other")), (Some(0.5), None));
        assert!(found.put("success", "b", 1.0));
        assert_eq!(found.mean("success"), Some(0.75));
    }

    #[test]
    fn intervals_are_of_paired_differences() {
        // Differences 1, 0, 0, 1: mean 0.5, variance 1/3, margin t * sqrt(1/12), with t = 3.182 for
        // 3 degrees of freedom.
        let change = MetricChange::of("x", &[(0.0, 1.0), (1.0, 1.0), (0.0, 0.0), (0.0, 1.0)]).unwrap();
        let margin = 3.182_446_3 * (1.0f64 / 12.0).sqrt();
        assert_eq!(
            (change.before, change.after, change.gain, change.tasks),
            (0.25, 0.75, 0.5, 4)
        );
        assert!((change.low - (0.5 - margin)).abs() < 1e-6 && (change.high - (0.5 + margin)).abs() < 1e-6);
        // Pairing matters: the same means with every task improved equally have no spread.
        let same = MetricChange::of("x", &[(0.0, 0.5), (0.5, 1.0)]).unwrap();
        assert_eq!((same.low, same.high), (0.5, 0.5));
        assert_eq!(MetricChange::of("x", &[(0.0, 1.0)]), None);
    }

    #[test]
    fn only_metrics_of_the_same_tasks_are_compared() {
        let first = evaluation(
            0,
            &[
                ("success", &[("a", 0.0), ("b", 1.0)]),
                ("retry", &[("a", 0.0), ("b", 0.0)]),
            ],
        );
        let last = evaluation(
            9,
            &[
                ("success", &[("b", 1.0), ("a", 1.0)]),
                ("retry", &[("a", 1.0), ("c", 1.0)]),
            ],
        );
        let found = changes(&first, &last);
        assert_eq!(found.len(), 1);
        assert_eq!(
            (found[0].metric.as_str(), found[0].before, found[0].after),
            ("success", 0.5, 1.0)
        );
        let line = line(&found, 9);
        assert_eq!(line.get("success/gain"), Some(&0.5.into()));
        assert_eq!(line.get("success/tasks"), Some(&2.0.into()));
        assert!(line.get("success/gain_low").is_some() && line.get("retry/gain").is_none());
    }

    #[test]
    fn the_first_and_the_last_evaluation_count_in_any_file() {
        let base = tempfile::tempdir().unwrap();
        let config = crate::run_folder::tests::config_in(base.path());
        let folder = RunFolder::create(base.path(), &config, None).unwrap();
        assert_eq!(read(&folder).unwrap(), []);
        let write = |process: &str, steps: &[(u64, f64)]| {
            let path = folder.evals(process);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            let line = |(step, value): &(u64, f64)| {
                let one = evaluation(*step, &[("success", &[("a", *value), ("b", *value)])]);
                serde_json::to_string(&one).unwrap() + "\n"
            };
            std::fs::write(path, steps.iter().map(line).collect::<String>()).unwrap();
        };
        write("coordinator-2", &[(0, 0.125)]);
        assert_eq!(read(&folder).unwrap(), [], "one evaluation is no change");
        // A coordinator that started later has the later steps, regardless of its file's name.
        write("coordinator-1", &[(50, 0.5), (100, 0.75)]);
        let found = read(&folder).unwrap();
        assert_eq!((found[0].before, found[0].after), (0.125, 0.75));
    }

    #[test]
    fn the_last_evaluation_replaces_a_regular_one_of_its_step() {
        for last_in in ["coordinator-1", "coordinator-2"] {
            let base = tempfile::tempdir().unwrap();
            let config = crate::run_folder::tests::config_in(base.path());
            let folder = RunFolder::create(base.path(), &config, None).unwrap();
            for process in ["coordinator-1", "coordinator-2"] {
                let last = process == last_in;
                let one = Evaluation {
                    last,
                    ..evaluation(9, &[("success", &[("a", f64::from(u8::from(last)))])])
                };
                let path = folder.evals(process);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, serde_json::to_string(&one).unwrap() + "\n").unwrap();
            }
            let found = evaluations(&folder).unwrap();
            assert_eq!(found.len(), 1);
            assert_eq!(
                (found[&9].last, found[&9].mean("success")),
                (true, Some(1.0)),
                "{last_in}"
            );
        }
    }
}
