//! `[tasks]`: where the run's own tasks come from, in which part and in which order.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `[tasks]`: where the run's own tasks come from. Tasks published by others are always taken too.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TasksConfig {
    /// `jsonl:PATH`, `parquet:PATH`, `arrow:PATH`, `hf:FOLDER[:SPLIT]`, `generator:KIND` (the workflow's own generator), `mix`
    /// (those of `[[tasks.mix]]`), or `queue` (only what others publish).
    pub source: String,
    /// The key of the prompt in each row: text, or a list of `{role, content}` messages. Dots go into objects.
    #[serde(default = "default_prompt_key")]
    pub prompt: String,
    /// The key of the label.
    #[serde(default = "default_label_key")]
    pub label: String,
    /// The key of the task's id; `source/pass/index` if not given.
    #[serde(default)]
    pub id: Option<String>,
    /// The key of the row's images, one or a list; they stand before the prompt's text, or where it says `<image>`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub images: Option<String>,
    /// The key of the row's tools, a list as tasks have it, or null for all tools of the run; every row must have it. All tools of the run
    /// if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<String>,
    /// Which rows of the source: `"100:2000"`, `"-500:"`, `":10%"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slice: Option<String>,
    /// An expression over a row; rows for which it is false are left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<String>,
    #[serde(default)]
    pub shuffle: bool,
    /// Passes over the source; 0 means without end.
    #[serde(default)]
    pub epochs: u32,
    /// Tasks used per pass, all if not given.
    #[serde(default)]
    pub limit: Option<u64>,
    /// When a pass over a mix ends.
    #[serde(default, skip_serializing_if = "Stopping::is_default")]
    pub stopping: Stopping,
    /// Settings of a generator.
    #[serde(default)]
    #[schemars(with = "crate::units::AnyTable")]
    pub params: toml::Table,
    /// A band of pass rates, and an order from easy to hard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub curriculum: Option<CurriculumConfig>,
    /// The sources of `source = "mix"`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mix: Vec<MixConfig>,
}

/// When a pass over a mix ends; the names are those of `datasets.interleave_datasets`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Stopping {
    /// With the last task of the source that is through first.
    #[default]
    FirstExhausted,
    /// When each source has given all its tasks; those that are through begin again.
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
    /// As `tasks.source`, neither `mix` nor `queue`.
    pub source: String,
    /// Leads the ids of its tasks and stands in their metadata as `task_source`; the name of its file if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its part of the tasks, relative to the others'; above 0.
    #[serde(default = "one")]
    pub weight: f64,
    /// As `tasks.prompt`, and what stands there if not given; so are the next six.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub images: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slice: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<String>,
    /// Its first tasks after slice and filter, all if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    #[serde(default, skip_serializing_if = "toml::Table::is_empty")]
    #[schemars(with = "crate::units::AnyTable")]
    pub params: toml::Table,
}

/// `tasks.curriculum`: which tasks by how often they were solved, and in which order.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CurriculumConfig {
    /// What `dyad eval --pass-rates FILE` wrote.
    pub pass_rates: PathBuf,
    /// Tasks solved less often are left out; 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min: Option<f64>,
    /// Tasks solved more often are left out; 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<f64>,
    /// What becomes of tasks without a rate.
    #[serde(default)]
    pub unmeasured: Unmeasured,
    /// Parts of equal size from easy to hard, each in an order of its own; 0 leaves the order as it is.
    #[serde(default)]
    pub stages: u32,
    /// First passes that go from easy to hard; 0 means all.
    #[serde(default = "one_pass")]
    pub passes: u32,
}

/// What becomes of tasks that have no pass rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Unmeasured {
    /// The run does not begin.
    #[default]
    Error,
    /// They are left out.
    Drop,
    /// They are in every band, and as hard as a task that is solved half of the time.
    Keep,
}

impl TasksConfig {
    /// The source at `index` of the mix as if it stood alone: what it does not say itself is as `[tasks]` says. `None` if
    /// there is no such one.
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

    /// The key of the tools in rows on which is measured: `own` if they have one, else that of `[tasks]`, but where another prompt or
    /// label is read: those rows are another file's, whose tools are not known to stand anywhere.
    pub(crate) fn tools_key(&self, own: Option<&String>, other_rows: bool) -> Option<String> {
        own.or(self.tools.as_ref().filter(|_| !other_rows)).cloned()
    }

    /// This configuration for another source: the keys stay, what chooses and orders the rows of the own source goes, and so do
    /// the settings of its generator.
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
