//! `[eval.suites.NAME]`: sets of tasks for `dyad eval` and, if requested, for evaluations of a run.
//! Common public sets have presets.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::TasksConfig;

/// `[eval.suites.NAME]`: tasks, tries per task, and the grader. Missing settings come from the
/// preset of this name, else from `[tasks]` and `[graders]`, with one try at the training
/// temperature.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SuiteConfig {
    /// Source of the tasks, written like `eval.source`.
    pub source: String,
    /// Key of the prompt in each row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// Key of the label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Key of the task's id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Key of the row's tools; default: `tasks.tools`. If the suite or its preset sets `prompt` or
    /// `label`, rows have all tools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<String>,
    /// Range of rows, written like `tasks.slice`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slice: Option<String>,
    /// Expression that selects rows, written like `tasks.filter`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<String>,
    /// Sampled conversations per task (K of avg@K); 0 plays only the greedy conversation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub samples: Option<u16>,
    /// Temperature of the samples, 0.01 or more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// Kind of grader, or a name in `[graders]`, that replaces the workflow's grader.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grader: Option<String>,
    /// Interval in evaluations at which a run plays the suite, including the first and last;
    /// default: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub every: Option<u64>,
    /// Number of first tasks to use, 1 or more; default: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tasks: Option<u64>,
    /// Settings of a generator.
    #[serde(default, skip_serializing_if = "toml::Table::is_empty")]
    #[schemars(with = "crate::units::AnyTable")]
    pub params: toml::Table,
}

/// The column names of a public data set, and the usual number of tries per task.
struct Preset {
    name: &'static str,
    prompt: &'static str,
    label: &'static str,
    samples: u16,
}

/// The sampling temperature of AstraFlow's evaluations.
const TEMPERATURE: f64 = 0.6;

/// The columns of HuggingFaceH4/aime_2024, math-ai/aime25, rawsh/2024_AMC12 (AstraFlow's `amc`),
/// math-ai/amc23, math-ai/minervamath and HuggingFaceH4/MATH-500. Small sets (30, 30, 45 and 40
/// tasks) have 32 tries, larger ones 4.
const PRESETS: [Preset; 6] = [
    preset("aime24", "problem", "answer", 32),
    preset("aime25", "problem", "answer", 32),
    preset("amc", "problem", "answer", 32),
    preset("amc23", "question", "answer", 32),
    preset("minerva", "question", "answer", 4),
    preset("math500", "problem", "answer", 4),
];

const fn preset(name: &'static str, prompt: &'static str, label: &'static str, samples: u16) -> Preset {
    Preset {
        name,
        prompt,
        label,
        samples,
    }
}

/// Returns the names that have a preset.
#[must_use]
pub fn presets() -> Vec<&'static str> {
    PRESETS.iter().map(|preset| preset.name).collect()
}

impl SuiteConfig {
    /// Returns the suite `name` on this source, with the settings of its preset if it has one.
    #[must_use]
    pub fn on(name: &str, source: String) -> Self {
        let mut suite = Self {
            source,
            ..Self::default()
        };
        suite.fill(name);
        suite
    }

    /// Returns the key of the tools in its rows. Call [`SuiteConfig::fill`] first.
    #[must_use]
    pub fn tools_key(&self, tasks: &TasksConfig) -> Option<String> {
        tasks.tools_key(self.tools.as_ref(), self.prompt.is_some() || self.label.is_some())
    }

    /// Fills in the preset of this name, if there is one.
    pub fn fill(&mut self, name: &str) {
        let Some(preset) = PRESETS.iter().find(|preset| preset.name == name) else {
            return;
        };
        self.prompt.get_or_insert_with(|| preset.prompt.into());
        self.label.get_or_insert_with(|| preset.label.into());
        self.samples.get_or_insert(preset.samples);
        self.temperature.get_or_insert(TEMPERATURE);
        self.grader.get_or_insert_with(|| "math".into());
    }
}

/// Fills in the presets of all suites.
pub(crate) fn fill(suites: &mut BTreeMap<String, SuiteConfig>) {
    for (name, suite) in suites {
        suite.fill(name);
    }
}
