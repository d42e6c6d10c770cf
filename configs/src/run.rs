//! The configuration of a whole run, and `[run]`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    AgentConfig, AgentName, ByteSize, EvalConfig, GraderConfig, HumanDuration, MetricsConfig, ParticipantName, REMOTE,
    TasksConfig, ToolConfig, WorkflowConfig,
};

/// The resolved configuration of one run, with every default filled in.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunConfig {
    /// Name, length, servers and folder of the run.
    pub run: RunSection,
    /// Tasks that the run trains on.
    pub tasks: TasksConfig,
    /// Workflow that the agents play.
    pub workflow: WorkflowConfig,
    /// Graders by name.
    #[serde(default)]
    pub graders: BTreeMap<String, GraderConfig>,
    /// Tools by name, which agents may call in their turns.
    #[serde(default)]
    pub tools: BTreeMap<String, ToolConfig>,
    /// Agents by name; `[defaults.agent]` is merged under each. Room is requested in the order of
    /// names everywhere, which prevents a circular wait.
    pub agents: BTreeMap<AgentName, AgentConfig>,
    /// Evaluations during the run.
    #[serde(default)]
    pub eval: EvalConfig,
}

/// The mode of a run: with or without a barrier between rounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Plays rounds with a barrier. The same seed gives the same run, bit for bit on one machine
    /// with embedded engines.
    Sync,
    /// Generates and trains as work arrives, bounded by `max_staleness`.
    Async,
}

/// `[run]`: name, length, servers and folder of the run.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunSection {
    /// Name of the run, at most 39 characters. The run id is this name plus eight random
    /// characters.
    pub name: String,
    /// Seed of all random choices of the run.
    #[serde(default)]
    pub seed: u64,
    /// Mode of the rounds, with or without a barrier.
    #[serde(default = "default_mode")]
    pub mode: Mode,
    /// Optimizer batches of the lead agent after which the run ends, 1 or more.
    pub train_steps: u64,
    /// Agent that trains and counts the steps; default: the first by name.
    #[serde(default)]
    pub lead: Option<AgentName>,
    /// RabbitMQ address: `memory:` (one process), `local:` (starts a private server) or
    /// `amqp[s]://user:password@host:port/vhost`.
    #[serde(default = "default_memory")]
    pub broker: String,
    /// Redis address: `memory:`, `local:` or `redis[s]://[user:password@]host:port/db`.
    #[serde(default = "default_memory")]
    pub state: String,
    /// Folder in which run folders are created.
    #[serde(default = "default_folder")]
    pub folder: PathBuf,
    /// Largest message on the wire, 16 KiB to 12 MiB. Larger tasks are rejected with a reason.
    #[serde(default = "default_message_cap")]
    pub message_cap: ByteSize,
    /// Conversations that are written to `transcripts/`. Greedy evaluations are always written
    /// whole.
    #[serde(default)]
    pub transcripts: TranscriptPolicy,
    /// Turns whose tokens and outcomes in training are written to `tokens/`.
    #[serde(default)]
    pub token_records: TokenRecordPolicy,
    /// Treatment of groups that do not fill a batch when the run ends.
    #[serde(default)]
    pub last_batch: LastBatch,
    /// Groups of own tasks in succession without a sample for an agent, or with equal rewards from
    /// the start, that stop the run; 0: never.
    #[serde(default = "default_empty_groups")]
    pub empty_groups: u64,
    /// Silence after which an agent or coordinator counts as gone.
    #[serde(default = "default_lease")]
    pub lease: HumanDuration,
    /// Metrics of each process for Prometheus; default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metrics: Option<MetricsConfig>,
}

/// Treatment of the groups that are left when a run ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LastBatch {
    /// Discards them and counts them as `run_ended`. Every batch has the same size.
    #[default]
    Discard,
    /// Trains on them as a short batch, unless the lead agent has made its `train_steps`.
    Train,
}

/// The conversations that are written to `transcripts/`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TranscriptPolicy {
    /// Writes every conversation.
    All,
    /// Writes the first conversation of every group.
    #[default]
    First,
    /// Writes no conversation.
    None,
}

/// The turns whose tokens are written to `tokens/`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TokenRecordPolicy {
    /// Writes no tokens.
    None,
    /// Writes those of greedy evaluations.
    #[default]
    Eval,
    /// Writes those of greedy evaluations and of the first conversation of every group.
    First,
    /// Writes those of every conversation.
    All,
}

impl TokenRecordPolicy {
    /// Returns true if the tokens of this member of a group are written. `is_greedy` is true for
    /// the greedy conversations of an evaluation.
    #[must_use]
    pub fn records(self, is_greedy: bool, member: u16) -> bool {
        match self {
            Self::None => false,
            Self::Eval => is_greedy,
            Self::First => is_greedy || member == 0,
            Self::All => true,
        }
    }
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
fn default_empty_groups() -> u64 {
    64
}
fn default_lease() -> HumanDuration {
    HumanDuration::from_secs(15)
}

impl RunConfig {
    /// Returns the lead agent. Its steps end the run.
    #[must_use]
    pub fn lead(&self) -> Option<&AgentName> {
        self.run.lead.as_ref().or_else(|| self.agents.keys().next())
    }

    /// Returns the batches that this agent will have trained when the lead has made its
    /// `train_steps`, if every group has samples for both: `train_steps` x the lead's
    /// `batch_groups` / its own, rounded up. Schedules that fall over a run use this number.
    #[must_use]
    pub fn steps_of(&self, name: &AgentName) -> u64 {
        let batch = |name: &AgentName| self.agents.get(name).map(|agent| agent.train.batch_groups as u64);
        let both = self.lead().and_then(batch).zip(batch(name));
        both.map_or(self.run.train_steps, |(lead, own)| {
            self.run.train_steps.saturating_mul(lead).div_ceil(own.max(1))
        })
    }

    /// Returns the agents that play a role or judge answers, in the order of room requests.
    #[must_use]
    pub fn participants(&self) -> Vec<AgentName> {
        self.agents.keys().filter(|name| self.plays(name)).cloned().collect()
    }

    /// Returns true if this agent plays a role or judges.
    #[must_use]
    pub fn plays(&self, name: &AgentName) -> bool {
        self.workflow.roles.values().any(|agent| agent == name) || self.judges(name)
    }

    /// Returns true if a grader uses this agent as its judge.
    #[must_use]
    pub fn judges(&self, name: &AgentName) -> bool {
        let judges = self
            .graders
            .values()
            .filter_map(|grader| grader.judge.as_ref()?.agent.as_ref());
        judges.into_iter().any(|judge| judge == name)
    }

    /// Returns the remote participants, which answer over the broker: each once, by name.
    #[must_use]
    pub fn remotes(&self) -> BTreeSet<ParticipantName> {
        let graders = self.graders.values().map(|grader| grader.kind.as_str());
        std::iter::once(self.workflow.kind.as_str())
            .chain(graders)
            .filter_map(|kind| ParticipantName::new(kind.strip_prefix(REMOTE)?).ok())
            .collect()
    }
}
