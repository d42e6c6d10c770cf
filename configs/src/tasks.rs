//! `[tasks]`: the source, selection and order of the run's own tasks.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `[tasks]`: the source of the run's own tasks. Published tasks are always accepted too.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TasksConfig {
    /// Source: `jsonl:PATH`, `parquet:PATH`, `arrow:PATH`, `hf:FOLDER[:SPLIT]`, `generator:KIND`
    /// (the workflow's), `mix` (`[[tasks.mix]]`), or `queue` (only published tasks).
    pub source: String,
    /// Key of the prompt in each row: text, or a list of `{role, content}` messages. Dots go into
    /// objects.
    #[serde(default = "default_prompt_key")]
    pub prompt: String,
    /// Key of the label.
    #[serde(default = "default_label_key")]
    pub label: String,
    /// Key of the task's id; default: `source/pass/index`.
    #[serde(default)]
    pub id: Option<String>,
    /// Key of the row's images, one or a list. They stand before the prompt's text or in place of
    /// `<image>`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub images: Option<String>,
    /// Key of the row's tools, present in every row: a list, or null for all tools of the run;
    /// default: all tools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<String>,
    /// Range of rows of the source: `"100:2000"`, `"-500:"`, `":10%"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slice: Option<String>,
    /// Expression over a row; rows for which it is false are dropped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<String>,
    /// Shuffles the rows by the run's seed.
    #[serde(default)]
    pub shuffle: bool,
    /// Passes over the source; 0 never ends.
    #[serde(default)]
    pub epochs: u32,
    /// Tasks used per pass, 1 or more; default: all.
    #[serde(default)]
    pub limit: Option<u64>,
    /// End of a pass over a mix; default: `"first_exhausted"`.
    #[serde(default, skip_serializing_if = "Stopping::is_default")]
    pub stopping: Stopping,
    /// Settings of a generator.
    #[serde(default)]
    #[schemars(with = "crate::units::AnyTable")]
    pub params: toml::Table,
    /// Range of pass rates, and an order from easy to hard; default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub curriculum: Option<CurriculumConfig>,
    /// Sources of `source = "mix"`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mix: Vec<MixConfig>,
}

/// The end of a pass over a mix, named like `datasets.interleave_datasets`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Stopping {
    /// Ends with the last task of the first source that is used up.
    #[default]
    FirstExhausted,
    /// Ends when every source has given all its tasks; shorter sources start again.
    AllExhausted,
}

impl Stopping {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// `[[tasks.mix]]`: one of several sources.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MixConfig {
    /// Source, written like `tasks.source`, but neither `mix` nor `queue`.
    pub source: String,
    /// Prefix of its task ids, and `task_source` in their metadata; default: the name of its file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Share of the tasks relative to the other sources, above 0.
    #[serde(default = "one")]
    pub weight: f64,
    /// Key of the prompt; default: `tasks.prompt`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// Key of the label; default: `tasks.label`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Key of the task's id; default: `tasks.id`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Key of the row's images; default: `tasks.images`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub images: Option<String>,
    /// Key of the row's tools; default: `tasks.tools`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<String>,
    /// Range of rows; default: `tasks.slice`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slice: Option<String>,
    /// Expression that selects rows; default: `tasks.filter`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<String>,
    /// Number of first tasks to use after slice and filter, 1 or more; default: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// Settings of a generator.
    #[serde(default, skip_serializing_if = "toml::Table::is_empty")]
    #[schemars(with = "crate::units::AnyTable")]
    pub params: toml::Table,
}

/// `tasks.curriculum`: selection and order of tasks by their pass rate.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CurriculumConfig {
    /// File that `dyad eval --pass-rates FILE` wrote.
    pub pass_rates: PathBuf,
    /// Lowest pass rate of a task, 0 to 1; tasks below are dropped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min: Option<f64>,
    /// Highest pass rate of a task, 0 to 1; tasks above are dropped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<f64>,
    /// Treatment of tasks without a pass rate.
    #[serde(default)]
    pub unmeasured: Unmeasured,
    /// Number of equal parts from easy to hard, each shuffled: 2 to 1000; 0 keeps the order.
    #[serde(default)]
    pub stages: u32,
    /// Number of first passes that go from easy to hard; 0 means all.
    #[serde(default = "one_pass")]
    pub passes: u32,
}

/// The treatment of tasks without a pass rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Unmeasured {
    /// Stops the run before it starts.
    #[default]
    Error,
    /// Drops them.
    Drop,
    /// Keeps them in every range, with the rank of a task that is solved half of the time.
    Keep,
}

impl TasksConfig {
    /// Returns the source at `index` of the mix as a configuration without a mix. Keys it does not
    /// set come from `[tasks]`. Returns `None` if the index is out of range.
    #[must_use]
    pub fn part(&self, index: usize) -> Option<Self> {
        let own = self.mix.get(index)?;
        let rows = !own.source.starts_with("generator:");
        Some(Self {
            source: own.source.clone(),
            prompt: own.prompt.clone().unwrap_or_else(|| self.prompt.clone()),
            label: own.label.clone().unwrap_or_else(|| self.label.clone()),
            id: own.id.clone().or_else(|| self.id.clone()),
            images: own.images.clone().or_else(|| self.images.clone()),
            tools: own.tools.clone().or_else(|| self.tools.clone()),
            slice: own.slice.clone().or_else(|| self.slice.clone().filter(|_| rows)),
            filter: own.filter.clone().or_else(|| self.filter.clone().filter(|_| rows)),
            limit: own.limit,
            params: own.params.clone(),
            mix: Vec::new(),
            ..self.clone()
        })
    }

    /// Returns the key of the tools in evaluation rows: `own` if set, else that of `[tasks]`.
    /// Returns `None` if `other_rows` is true: rows with another prompt or label key come from
    /// another file, which may have no key for tools.
    pub(crate) fn tools_key(&self, own: Option<&String>, other_rows: bool) -> Option<String> {
        own.or(self.tools.as_ref().filter(|_| !other_rows)).cloned()
    }

    /// Returns this configuration for another source. It keeps the keys and drops what selects and
    /// orders the rows of the first source, including the settings of its generator.
    #[must_use]
    pub fn on(&self, source: String) -> Self {
        Self {
            source,
            slice: None,
            filter: None,
            limit: None,
            params: toml::Table::new(),
            curriculum: None,
            mix: Vec::new(),
            ..self.clone()
        }
    }
}

fn default_prompt_key() -> String {
    "prompt".into()
}
fn default_label_key() -> String {
    "label".into()
}
fn one() -> f64 {
    1.0
}
fn one_pass() -> u32 {
    1
}
