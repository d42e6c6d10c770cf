//! Compares two sides metric by metric.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::stats::summary::Evaluation;
use crate::stats::{self, Interval};

/// Metric: tokens of all roles per task.
pub(crate) const SAID: &str = "tokens per problem";

/// One side of the comparison.
pub(crate) struct Side {
    pub runs: Vec<String>,
    pub last: Vec<Evaluation>,
    /// Trained tokens of each run.
    pub trained: Vec<f64>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    pub a: Vec<String>,
    pub b: Vec<String>,
    pub rows: Vec<MetricRow>,
    /// Metrics that only one side has.
    pub apart: Vec<String>,
    /// Mean number of tokens that a run trained on.
    pub trained_tokens: (f64, f64),
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MetricRow {
    pub metric: String,
    pub a: f64,
    pub b: f64,
    /// The value of b minus the value of a.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub difference: Option<Interval>,
    pub how: IntervalUnits,
}

/// The units that an interval is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum IntervalUnits {
    /// The same tasks on both sides: a bootstrap of differences.
    PairedTasks,
    /// Different tasks: each side is resampled by itself.
    OtherTasks,
    /// Runs: Welch's t.
    Runs,
}

impl IntervalUnits {
    pub fn label(self) -> &'static str {
        match self {
            Self::PairedTasks => "tasks, paired",
            Self::OtherTasks => "different tasks",
            Self::Runs => "runs",
        }
    }
}

pub(crate) fn compare(a: &Side, b: &Side) -> Comparison {
    let names = |side: &Side| -> BTreeSet<String> {
        let all = side
            .last
            .iter()
            .map(|one| one.values.keys().cloned().collect::<BTreeSet<_>>());
        all.reduce(|some, other| &some & &other).unwrap_or_default()
    };
    let (of_a, of_b) = (names(a), names(b));
    let mut shared: Vec<&String> = of_a.intersection(&of_b).collect();
    shared.sort_by_key(|name| (*name != "success", *name == SAID, !name.starts_with("reward/"), *name));
    Comparison {
        a: a.runs.clone(),
        b: b.runs.clone(),
        rows: shared.into_iter().filter_map(|metric| row(metric, a, b)).collect(),
        apart: of_a.symmetric_difference(&of_b).cloned().collect(),
        trained_tokens: (stats::mean(&a.trained), stats::mean(&b.trained)),
    }
}

fn row(metric: &str, a: &Side, b: &Side) -> Option<MetricRow> {
    let means = |side: &Side| {
        side.last
            .iter()
            .map(|one| one.mean(metric))
            .collect::<Option<Vec<f64>>>()
    };
    let (of_a, of_b) = (means(a)?, means(b)?);
    let (difference, how) = match (a.last.as_slice(), b.last.as_slice()) {
        ([a], [b]) => over_tasks(a.values.get(metric)?, b.values.get(metric)?),
        _ => (stats::welch(&of_a, &of_b), IntervalUnits::Runs),
    };
    Some(MetricRow {
        metric: metric.to_owned(),
        a: stats::mean(&of_a),
        b: stats::mean(&of_b),
        difference,
        how,
    })
}

fn over_tasks(a: &BTreeMap<String, f64>, b: &BTreeMap<String, f64>) -> (Option<Interval>, IntervalUnits) {
    if a.keys().eq(b.keys()) {
        let differences: Vec<f64> = a.values().zip(b.values()).map(|(a, b)| b - a).collect();
        return (stats::paired(&differences), IntervalUnits::PairedTasks);
    }
    let values = |of: &BTreeMap<String, f64>| of.values().copied().collect::<Vec<f64>>();
    (stats::unpaired(&values(a), &values(b)), IntervalUnits::OtherTasks)
}

/// Adds the tokens of all roles for each task. Votes are not part of the conversation and are left
/// out.
pub(crate) fn with_tokens(mut found: Evaluation) -> Evaluation {
    let mut said: BTreeMap<String, f64> = BTreeMap::new();
    let of_roles = |name: &str| name.starts_with("tokens/") && name != "tokens/votes";
    for (_, values) in found.values.iter().filter(|(name, _)| of_roles(name)) {
        for (task, tokens) in values {
            *said.entry(task.clone()).or_default() += tokens;
        }
    }
    found.values.retain(|name, _| !name.starts_with("tokens/"));
    if !said.is_empty() {
        found.values.insert(SAID.into(), said);
    }
    found
}
