//! `[eval]`: evaluations during a run.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{HumanDuration, SuiteConfig, TasksConfig};

/// `[eval]`: greedy conversations on held-out tasks, never trained on.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EvalConfig {
    /// Lead steps between evaluations; 0 means never. The run also evaluates before the first and
    /// after the last step.
    #[serde(default)]
    pub every: u64,
    /// Source of the held-out tasks, written like `tasks.source`. With `generator:` the workflow's
    /// generator decides what to produce.
    #[serde(default)]
    pub source: Option<String>,
    /// Key of the prompt in each row of `source`; default: `tasks.prompt`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// Key of the label in each row of `source`; default: `tasks.label`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Key of the task's id; default: `tasks.id`, or no key if `prompt` or `label` is set here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Key of the row's tools; default: `tasks.tools`. If `prompt` or `label` is set here, rows
    /// have all tools of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<String>,
    /// Range of rows of `source`, written like `tasks.slice`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slice: Option<String>,
    /// Expression that selects rows of `source`, written like `tasks.filter`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<String>,
    /// Tasks per evaluation, 1 or more; default: all tasks of `source`.
    #[serde(default)]
    pub tasks: Option<u64>,
    /// Lowest accepted value per metric, for example of the wins against a fixed opponent. The
    /// coordinator logs a warning below it.
    #[serde(default)]
    pub floors: BTreeMap<String, f64>,
    /// Value of an evaluation's `success`, above 0, at which the run ends early.
    #[serde(default)]
    pub stop_at: Option<f64>,
    /// Size of the frozen pool of first-evaluation solutions, half right, half wrong, that measures
    /// the verifier of `solve-verify`; default: no pool.
    #[serde(default)]
    pub pool: Option<usize>,
    /// Answers sampled per task for a majority vote in the last evaluation; default: no vote.
    #[serde(default)]
    pub votes: Option<u16>,
    /// Settings of the workflow's generator for evaluation tasks.
    #[serde(default)]
    #[schemars(with = "crate::units::AnyTable")]
    pub params: toml::Table,
    /// Named sets of tasks for `dyad eval`; the run plays a suite only if its `every` is set.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub suites: BTreeMap<String, SuiteConfig>,
    /// Keeps weights fixed during an evaluation (asynchronous runs). With `false` agents train on
    /// and an evaluation may mix versions, which it reports.
    #[serde(default = "default_hold")]
    pub hold: bool,
    /// Longest time that agents keep their weights for one evaluation, including the wait until all
    /// of them do.
    #[serde(default = "default_hold_at_most")]
    pub hold_at_most: HumanDuration,
}

impl Default for EvalConfig {
    fn default() -> Self {
        Self {
            every: 0,
            source: None,
            prompt: None,
            label: None,
            id: None,
            tools: None,
            slice: None,
            filter: None,
            tasks: None,
            floors: BTreeMap::new(),
            stop_at: None,
            pool: None,
            votes: None,
            params: toml::Table::new(),
            suites: BTreeMap::new(),
            hold: default_hold(),
            hold_at_most: default_hold_at_most(),
        }
    }
}

impl EvalConfig {
    /// Returns the key of the tools in this evaluation's rows.
    #[must_use]
    pub fn tools_key(&self, tasks: &TasksConfig) -> Option<String> {
        tasks.tools_key(self.tools.as_ref(), self.prompt.is_some() || self.label.is_some())
    }
}

fn default_hold() -> bool {
    true
}
fn default_hold_at_most() -> HumanDuration {
    HumanDuration::from_secs(3600)
}
