//! `[workflow]` and `[graders]`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{AgentName, ByteSize, CreditConfig, HumanDuration, RoleName, ShapingConfig, ToolLimits};

/// The prefix of the `kind` of a workflow or grader that is a program: `process:FILE`.
pub const PROCESS: &str = "process:";
/// The prefix of the `kind` of a workflow or grader that answers over RabbitMQ: `remote:NAME`.
pub const REMOTE: &str = "remote:";

/// The kind of a grader that is a model.
pub const JUDGE: &str = "judge";
/// The prefix of environment variables that hold a judge's key.
pub const JUDGE_KEY: &str = "DYAD_JUDGE_KEY";

/// `[workflow]`: the interaction protocol and its rewards.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WorkflowConfig {
    /// Workflow: a shipped one, for example `signal` or `solve-verify`, `process:FILE`,
    /// `remote:NAME`, or a kind that the program registered.
    pub kind: String,
    /// Named variant of the workflow: `dyad` is ours, others copy a reference exactly.
    #[serde(default = "default_profile")]
    pub profile: String,
    /// Conversations per task, 1 or more.
    pub group_size: u16,
    /// Fraction of a group's conversations that must be valid for training, 0 to 1.
    #[serde(default = "default_min_group")]
    pub min_group: f64,
    /// Agent of each role.
    pub roles: BTreeMap<RoleName, AgentName>,
    /// Weight of each named reward part, by role.
    #[serde(default)]
    pub reward: BTreeMap<RoleName, BTreeMap<String, f64>>,
    /// Reward parts that depend on length, by role.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub shaping: BTreeMap<RoleName, ShapingConfig>,
    /// Reward that a role receives: `"own"`, `"shared"`, `"zero_sum"` or
    /// `{ difference = "OTHER" }`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub credit: BTreeMap<RoleName, CreditConfig>,
    /// Sampling settings of a role that differ from those of its agent.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub sampling: BTreeMap<RoleName, RoleSampling>,
    /// Tries for one failing generation before its conversation counts as failed, 1 or more.
    #[serde(default = "default_retries")]
    pub retries: u32,
    /// Largest fraction of the trained tokens that one role may have without a warning, 0 to 1.
    #[serde(default = "default_dominance")]
    pub dominance: f64,
    /// Settings of the workflow itself.
    #[serde(default)]
    #[schemars(with = "crate::units::AnyTable")]
    pub params: toml::Table,
    /// Settings of a workflow that is a program or a remote participant.
    #[serde(default)]
    pub process: ProcessConfig,
    /// Names of the tools that a role may call, by role.
    #[serde(default)]
    pub tools: BTreeMap<RoleName, Vec<String>>,
    /// Limits on tool calls.
    #[serde(default)]
    pub tool_limits: ToolLimits,
}

/// `[workflow.sampling.ROLE]`: sampling settings of a role. Truncation (top-p, top-k, min-p)
/// belongs to the whole agent.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RoleSampling {
    /// Sampling temperature; default: that of the agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f32>,
    /// Most tokens of one turn, at most the agent's own limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_new_tokens: Option<u32>,
    /// Most tokens of a turn's prompt plus answer, at most the agent's own limit; 0: the agent's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_context: Option<u32>,
    /// Extra texts that end a turn, added to those of the workflow.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stop: Vec<String>,
}

/// `[workflow.process]`: settings of the user's program or remote participant.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ProcessConfig {
    /// Longest wait for one answer.
    pub timeout: HumanDuration,
    /// Copies of a program that run in parallel, or open questions to a remote participant; 1 or
    /// more.
    pub workers: u16,
    /// Address space of one copy of a program, 16 MiB or more.
    pub memory: ByteSize,
}

impl Default for ProcessConfig {
    fn default() -> Self {
        Self {
            timeout: HumanDuration::from_secs(10),
            workers: default_workers(),
            memory: default_memory(),
        }
    }
}

fn default_profile() -> String {
    "dyad".into()
}
fn default_min_group() -> f64 {
    0.75
}
fn default_dominance() -> f64 {
    0.9
}
fn default_retries() -> u32 {
    3
}

/// `[graders.NAME]`: the comparison of an answer with its label.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GraderConfig {
    /// Grader: `exact`, `match`, `integer`, `gsm8k`, `math`, `choice`, `f1`, `format`, `judge`,
    /// `process:FILE`, `remote:NAME`, or a kind that the program registered.
    pub kind: String,
    /// Longest wait for one grade; a judge's default is `60s`.
    #[serde(default = "default_timeout")]
    pub timeout: HumanDuration,
    /// Copies of a program that run in parallel, or open questions to a remote participant; 1 or
    /// more.
    #[serde(default = "default_workers")]
    pub workers: u16,
    /// Address space of one copy of a program, 16 MiB or more.
    #[serde(default = "default_memory")]
    pub memory: ByteSize,
    /// Treatment of a conversation if its answer could not be graded.
    #[serde(default)]
    pub missing: Missing,
    /// For kind `integer`: the number of an answer that counts.
    #[serde(default)]
    pub take: Take,
    /// For kind `judge`: the model that grades.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub judge: Option<JudgeConfig>,
}

impl Default for GraderConfig {
    fn default() -> Self {
        Self {
            kind: "exact".into(),
            timeout: default_timeout(),
            workers: default_workers(),
            memory: default_memory(),
            missing: Missing::default(),
            take: Take::default(),
            judge: None,
        }
    }
}

/// The treatment of a conversation if a program, participant or judge could not grade its
/// answer. Its reward is never 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Missing {
    /// Requests the grade again, `workflow.retries` times; then the conversation fails.
    #[default]
    Retry,
    /// Fails the conversation: it leaves its group.
    Drop,
    /// Ends the conversation and keeps its transcript. No role earns a reward or trains on it.
    Tombstone,
}

/// The whole number of an answer that counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Take {
    /// The number in the last `\boxed{}`, else the last number.
    #[default]
    Last,
    /// The first number, boxed or not.
    First,
}

/// `[graders.NAME.judge]`: a model that grades answers, behind an OpenAI-compatible server or as an
/// agent of the run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct JudgeConfig {
    /// URL of the server up to `/v1`, for example `http://127.0.0.1:8001/v1`. Set either this or
    /// `agent`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub url: String,
    /// Name of the model on the server.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub model: String,
    /// Agent of this run that grades. Its grading is never trained.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentName>,
    /// Jinja file with the prompt; default: a built-in prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<PathBuf>,
    /// Numbers that its answer must contain, with their weights in the reward.
    #[serde(default = "default_parts")]
    pub parts: BTreeMap<String, f64>,
    /// Least and greatest value of each number, mapped to 0 and 1 in the reward.
    #[serde(default = "default_scale")]
    pub scale: [f64; 2],
    /// Most tokens of its answer, 1 or more.
    #[serde(default = "default_tokens")]
    pub max_tokens: u32,
    /// Sampling temperature of a server: 0 (greedy), or 0.01 or more.
    #[serde(default)]
    pub temperature: f64,
    /// Calls per answer, with growing pauses; for an agent, turns until its answer has the numbers.
    /// 1 or more.
    #[serde(default = "default_tries")]
    pub tries: u32,
    /// Environment variable with the server's key; its name starts with `DYAD_JUDGE_KEY`.
    #[serde(default = "default_key")]
    pub key: String,
}

fn default_parts() -> BTreeMap<String, f64> {
    BTreeMap::from([("score".to_owned(), 1.0)])
}
fn default_scale() -> [f64; 2] {
    [0.0, 1.0]
}
fn default_tokens() -> u32 {
    1024
}
fn default_tries() -> u32 {
    4
}
fn default_key() -> String {
    JUDGE_KEY.into()
}

impl GraderConfig {
    /// Returns a grader of this kind with all defaults.
    #[must_use]
    pub fn of(kind: &str) -> Self {
        Self {
            kind: kind.into(),
            ..Self::default()
        }
    }
}

fn default_workers() -> u16 {
    1
}
fn default_memory() -> ByteSize {
    ByteSize(2 << 30)
}

fn default_timeout() -> HumanDuration {
    HumanDuration::from_secs(2)
}
