//! The whole configuration of a run and how it is read.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    AgentConfig, AgentName, ByteSize, GraderConfig, HumanDuration, ParticipantName, REMOTE, SuiteConfig, TasksConfig,
    ToolConfig, WorkflowConfig,
};

/// One run, as resolved: every default is filled in.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunConfig {
    pub run: RunSection,
    pub tasks: TasksConfig,
    pub workflow: WorkflowConfig,
    #[serde(default)]
    pub graders: BTreeMap<String, GraderConfig>,
    /// What agents may call in their turns, by name.
    #[serde(default)]
    pub tools: BTreeMap<String, ToolConfig>,
    /// Every agent, `[defaults.agent]` already merged under it. The order of names is the order in which an agent is asked
    /// for room, the same everywhere, so that no circular wait forms.
    pub agents: BTreeMap<AgentName, AgentConfig>,
    #[serde(default)]
    pub eval: EvalConfig,
}

/// How rounds are run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Rounds with a barrier: the same seed gives the same run, bit for bit on one machine (embedded).
    Sync,
    /// Agents generate and train as work arrives, bounded by `max_staleness`.
    Async,
}

/// `[run]`
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunSection {
    /// The run's name; the run id is this name and eight random characters.
    pub name: String,
    #[serde(default)]
    pub seed: u64,
    #[serde(default = "default_mode")]
    pub mode: Mode,
    /// Optimizer batches of the lead agent after which the run ends.
    pub train_steps: u64,
    /// The agent whose steps are counted; the first by name if not given.
    #[serde(default)]
    pub lead: Option<AgentName>,
    /// `memory:` (one process), `local:` (a private server is started) or `amqp[s]://user:password@host:port/vhost`.
    #[serde(default = "default_memory")]
    pub broker: String,
    /// `memory:`, `local:` or `redis[s]://[user:password@]host:port/db`.
    #[serde(default = "default_memory")]
    pub state: String,
    /// Where run folders are made.
    #[serde(default = "default_folder")]
    pub folder: PathBuf,
    /// Largest message on the wire; tasks above it are refused with a reason.
    #[serde(default = "default_message_cap")]
    pub message_cap: ByteSize,
    #[serde(default)]
    pub transcripts: TranscriptPolicy,
    /// What an agent does at the end of the run with groups that are less than a batch.
    #[serde(default)]
    pub last_batch: LastBatch,
    /// After how long without a sign of life an agent or coordinator counts as away.
    #[serde(default = "default_lease")]
    pub lease: HumanDuration,
}

/// What becomes of the groups that are left when a run ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LastBatch {
    /// They are discarded, and counted as `run_ended`: every batch has the same size.
    #[default]
    Discard,
    /// They are trained on as a short batch, unless the lead agent has made its `train_steps`.
    Train,
}

/// Which conversations are written to `transcripts/`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TranscriptPolicy {
    #[default]
    All,
    /// The first member of every group.
    First,
    None,
}

fn default_mode() -> Mode {
    Mode::Async
}
fn default_memory() -> String {
    "memory:".into()
}
fn default_folder() -> PathBuf {
    "runs".into()
}
fn default_message_cap() -> ByteSize {
    ByteSize(1 << 20)
}
fn default_lease() -> HumanDuration {
    HumanDuration::from_secs(15)
}

/// `[eval]`: greedy conversations on held-out tasks, never trained on.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EvalConfig {
    /// Lead steps between evaluations; 0 means never. One is made before the first and after the last step as well.
    #[serde(default)]
    pub every: u64,
    /// Where its tasks come from, as `tasks.source`; the workflow's generator decides what `generator:` means here.
    #[serde(default)]
    pub source: Option<String>,
    /// The key of the prompt in each row of `source`; that of `[tasks]` if not given, and so is the next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// The key of the label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// The key of the task's id; that of `[tasks]` if not given, none where `prompt` or `label` is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The key of the row's tools, as `tasks.tools`; that of `[tasks]` if not given, none where `prompt` or `label` is given: then each
    /// row has all tools of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<String>,
    /// Which rows of `source`, as `tasks.slice`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slice: Option<String>,
    /// Which rows of `source`, as `tasks.filter`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<String>,
    /// Tasks per evaluation.
    #[serde(default)]
    pub tasks: Option<u64>,
    /// Metric -> value below which an evaluation is warned about, such as the wins against a fixed opponent.
    #[serde(default)]
    pub floors: BTreeMap<String, f64>,
    /// The run ends early when an evaluation's `success` reaches this.
    #[serde(default)]
    pub stop_at: Option<f64>,
    /// Solutions, half right and half wrong, in the frozen pool on which every evaluation measures the verifier of
    /// `solve-verify`. They are what the solver answered in the first evaluation. None if not given.
    #[serde(default)]
    pub pool: Option<usize>,
    /// Answers sampled per task for a majority vote in the last evaluation. None if not given.
    #[serde(default)]
    pub votes: Option<u16>,
    #[serde(default)]
    #[schemars(with = "crate::units::AnyTable")]
    pub params: toml::Table,
    /// Sets of tasks that `dyad eval` measures on, and the run too where they say so, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub suites: BTreeMap<String, SuiteConfig>,
    /// In asynchronous runs agents that train hold their weights while an evaluation is played, so that it is of one version of each.
    /// Without it they train on, and the evaluation may mix versions; which ones is told in any case.
    #[serde(default = "default_hold")]
    pub hold: bool,
    /// How long they hold at most for one evaluation, the time until all do included.
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
    /// The key of its rows' tools.
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

/// One thing wrong in a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Dotted key path, such as `agents.a.train.batch_groups`.
    pub path: String,
    /// What is wrong there and what to write instead.
    pub message: String,
}

/// A configuration that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("cannot read {path}")]
    Read { path: PathBuf, source: std::io::Error },
    #[error("{path} is not TOML: {message}")]
    Syntax { path: PathBuf, message: String },
    #[error("{path} has {} problem(s):{}", .problems.len(), list(.problems))]
    Invalid { path: PathBuf, problems: Vec<Problem> },
}

fn list(problems: &[Problem]) -> String {
    problems
        .iter()
        .map(|p| format!("\n  {}: {}", p.path, p.message))
        .collect()
}

impl RunConfig {
    /// Reads, merges and checks the file at `path`.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path).map_err(|source| ConfigError::Read {
            path: path.into(),
            source,
        })?;
        Self::parse(&text, path)
    }

    /// As [`RunConfig::load`], from text; `path` is only named in errors.
    pub fn parse(text: &str, path: &Path) -> Result<Self, ConfigError> {
        let table: toml::Table = text.parse().map_err(|e: toml::de::Error| ConfigError::Syntax {
            path: path.into(),
            message: e.to_string(),
        })?;
        crate::check::resolve(table).map_err(|problems| ConfigError::Invalid {
            path: path.into(),
            problems,
        })
    }

    /// The agent whose steps end the run.
    #[must_use]
    pub fn lead(&self) -> Option<&AgentName> {
        self.run.lead.as_ref().or_else(|| self.agents.keys().next())
    }

    /// Batches that this agent will have trained when the lead has made its `train_steps`, where every group has something for both:
    /// `train_steps` x the lead's `batch_groups` / its own, rounded up. What falls over a run falls over these.
    #[must_use]
    pub fn steps_of(&self, name: &AgentName) -> u64 {
        let batch = |name: &AgentName| self.agents.get(name).map(|agent| agent.train.batch_groups as u64);
        let both = self.lead().and_then(batch).zip(batch(name));
        both.map_or(self.run.train_steps, |(lead, own)| {
            self.run.train_steps.saturating_mul(lead).div_ceil(own.max(1))
        })
    }

    /// Agents that play some role of the workflow or judge its answers, in the order in which they are asked for room.
    #[must_use]
    pub fn participants(&self) -> Vec<AgentName> {
        self.agents.keys().filter(|name| self.plays(name)).cloned().collect()
    }

    /// Whether this agent plays a role, or judges.
    #[must_use]
    pub fn plays(&self, name: &AgentName) -> bool {
        self.workflow.roles.values().any(|agent| agent == name) || self.judges(name)
    }

    /// Whether this agent grades answers for some grader.
    #[must_use]
    pub fn judges(&self, name: &AgentName) -> bool {
        let judges = self
            .graders
            .values()
            .filter_map(|grader| grader.judge.as_ref()?.agent.as_ref());
        judges.into_iter().any(|judge| judge == name)
    }

    /// Who takes part from elsewhere, over the broker: each once, by name.
    #[must_use]
    pub fn remotes(&self) -> BTreeSet<ParticipantName> {
        let graders = self.graders.values().map(|grader| grader.kind.as_str());
        std::iter::once(self.workflow.kind.as_str())
            .chain(graders)
            .filter_map(|kind| ParticipantName::new(kind.strip_prefix(REMOTE)?).ok())
            .collect()
    }
}
