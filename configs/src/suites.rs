//! `[eval.suites.NAME]`: sets of tasks on which `dyad eval` measures, and a run too if they say so, with presets for those that the field shares.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::TasksConfig;

/// Tasks, how often each is tried, and how answers are graded. What is not given comes from the preset of this name, else from
/// `[tasks]` and `[graders]`, one try at the temperature of training.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SuiteConfig {
    /// As `eval.source`.
    pub source: String,
    /// The key of the prompt in each line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// The key of the label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// The key of the task's id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The key of the row's tools, as `tasks.tools`; that of `[tasks]` if not given, none where `prompt` or `label` is given, by the
    /// preset too: then each row has all tools of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<String>,
    /// Which rows of the source, as `tasks.slice`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slice: Option<String>,
    /// Which rows of the source, as `tasks.filter`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<String>,
    /// Sampled conversations of each task, K of avg@K; 0 is only the greedy one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub samples: Option<u16>,
    /// Of the samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// A grader's kind, or the name of one in `[graders]`, in the place of the workflow's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grader: Option<String>,
    /// A run plays it too, in each so-manieth of its evaluations, the first and the last among them; never if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub every: Option<u64>,
    /// Tasks from the beginning of the source; all if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tasks: Option<u64>,
    /// Settings of a generator.
    #[serde(default, skip_serializing_if = "toml::Table::is_empty")]
    #[schemars(with = "crate::units::AnyTable")]
    pub params: toml::Table,
}

/// What a public data set calls its columns and how often the field tries each of its tasks.
struct Preset {
    name: &'static str,
    prompt: &'static str,
    label: &'static str,
    samples: u16,
}

/// Temperature at which AstraFlow's evaluations sample.
const TEMPERATURE: f64 = 0.6;

/// Columns of HuggingFaceH4/aime_2024, math-ai/aime25, rawsh/2024_AMC12 (AstraFlow's `amc`), math-ai/amc23, math-ai/minervamath and
/// HuggingFaceH4/MATH-500, with 32 tries of the small sets (30, 30, 45 and 40 tasks) and 4 of the larger ones.
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

/// Names that have a preset.
#[must_use]
pub fn presets() -> Vec<&'static str> {
    PRESETS.iter().map(|preset| preset.name).collect()
}

impl SuiteConfig {
    /// The suite `name` on this source, with its preset's settings if it has one.
    #[must_use]
    pub fn on(name: &str, source: String) -> Self {
        let mut suite = Self {
            source,
            ..Self::default()
        };
        suite.fill(name);
        suite
    }

    /// The key of its rows' tools, once [`SuiteConfig::fill`] has been called.
    #[must_use]
    pub fn tools_key(&self, tasks: &TasksConfig) -> Option<String> {
        tasks.tools_key(self.tools.as_ref(), self.prompt.is_some() || self.label.is_some())
    }

    /// Fills in what the preset of this name gives, if there is one.
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
