//! `[workflow]` and `[graders]`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{AgentName, ByteSize, CreditConfig, HumanDuration, RoleName, ShapingConfig, ToolLimits};

/// What begins the `kind` of a workflow or grader that is a program: `process:FILE`.
pub const PROCESS: &str = "process:";
/// What begins the `kind` of a workflow or grader that answers over RabbitMQ: `remote:NAME`.
pub const REMOTE: &str = "remote:";

/// The kind of a grader that is a model.
pub const JUDGE: &str = "judge";
/// What the name of an environment variable with a judge's key begins with.
pub const JUDGE_KEY: &str = "DYAD_JUDGE_KEY";

/// `[workflow]`: the interaction protocol and what it earns.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WorkflowConfig {
    /// A shipped workflow, such as `signal` or `solve-verify`, `process:FILE`, `remote:NAME`, or one of the program's own.
    pub kind: String,
    /// A named variant of the workflow; `dyad` is ours, others are exact copies of a reference.
    #[serde(default = "default_profile")]
    pub profile: String,
    /// Conversations per task.
    pub group_size: u16,
    /// The part of a group's conversations that must be valid for it to train, 0 to 1.
    #[serde(default = "default_min_group")]
    pub min_group: f64,
    /// Which agent plays which role.
    pub roles: BTreeMap<RoleName, AgentName>,
    /// Weight of each named reward part, by role.
    #[serde(default)]
    pub reward: BTreeMap<RoleName, BTreeMap<String, f64>>,
    /// What lengths cost a role, whatever the workflow.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub shaping: BTreeMap<RoleName, ShapingConfig>,
    /// Whose reward a role gets: `"own"`, `"shared"`, `"zero_sum"` or `{ difference = "OTHER" }`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub credit: BTreeMap<RoleName, CreditConfig>,
    /// What a role samples by, where that is not what its agent does.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub sampling: BTreeMap<RoleName, RoleSampling>,
    /// Tries for one generation that fails before its conversation counts as failed.
    #[serde(default = "default_retries")]
    pub retries: u32,
    /// Largest part of the tokens that are trained on, 0 to 1, that one role may have before a warning is given.
    #[serde(default = "default_dominance")]
    pub dominance: f64,
    /// Settings of the workflow itself.
    #[serde(default)]
    #[schemars(with = "crate::units::AnyTable")]
    pub params: toml::Table,
    /// How a workflow that is a program or remote is asked.
    #[serde(default)]
    pub process: ProcessConfig,
    /// Role -> names of the tools that it may call.
    #[serde(default)]
    pub tools: BTreeMap<RoleName, Vec<String>>,
    #[serde(default)]
    pub tool_limits: ToolLimits,
}

/// `[workflow.sampling.ROLE]`. There is no top-p here: truncation is the whole agent's.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RoleSampling {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f32>,
    /// Per turn, and no more than the agent's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_new_tokens: Option<u32>,
    /// Of a turn's prompt and answer together, and no more than the agent's own; 0: that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_context: Option<u32>,
    /// Texts that end a turn, beside those of the workflow.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stop: Vec<String>,
}

/// `[workflow.process]`: how a program or a remote participant of the user's own is asked.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ProcessConfig {
    /// For one answer.
    pub timeout: HumanDuration,
    /// Copies that run beside each other; of a remote participant, questions under way at once.
    pub workers: u16,
    /// Of a program: address space of one copy.
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

/// `[graders.NAME]`: how an answer is compared with its label.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GraderConfig {
    /// `exact`, `match`, `integer`, `gsm8k`, `math`, `choice`, `f1`, `format`, `judge`, `process:FILE`, `remote:NAME`, or one of the
    /// program's own.
    pub kind: String,
    /// For one answer.
    #[serde(default = "default_timeout")]
    pub timeout: HumanDuration,
    /// Of a program: copies that run beside each other; of a remote participant: questions under way at once.
    #[serde(default = "default_workers")]
    pub workers: u16,
    /// Of a program: address space of one copy.
    #[serde(default = "default_memory")]
    pub memory: ByteSize,
    /// What becomes of a conversation whose answer could not be graded.
    #[serde(default)]
    pub missing: Missing,
    /// Of kind `integer`: which number of an answer counts.
    #[serde(default)]
    pub take: Take,
    /// Of kind `judge`: the model that grades.
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

/// What becomes of a conversation whose answer a program, a participant or a judge could not grade. Never a 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Missing {
    /// The grade is asked for again, `workflow.retries` times; then the conversation has failed.
    #[default]
    Retry,
    /// The conversation has failed: it leaves its group.
    Drop,
    /// The conversation ends, stays in the transcripts, and nobody in it earns anything or is trained on it.
    Tombstone,
}

/// Which whole number of an answer counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Take {
    /// The one in the last `\boxed{}`, else the last one.
    #[default]
    Last,
    /// The first one, boxed or not.
    First,
}

/// `[graders.NAME.judge]`: a model that says what an answer is worth, behind an OpenAI-compatible server or as an agent of the run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct JudgeConfig {
    /// Up to `/v1`, such as `http://127.0.0.1:8001/v1`. Either this or `agent`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub url: String,
    /// As the server calls it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub model: String,
    /// The agent of this run that grades. What it says so is trained on by nobody.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentName>,
    /// A Jinja file with the prompt; ours if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<PathBuf>,
    /// Numbers that its answer must have, with their weights in the reward.
    #[serde(default = "default_parts")]
    pub parts: BTreeMap<String, f64>,
    /// The least and the most of each number; the reward takes it as 0 to 1.
    #[serde(default = "default_scale")]
    pub scale: [f64; 2],
    /// Tokens of its answer at most.
    #[serde(default = "default_tokens")]
    pub max_tokens: u32,
    #[serde(default)]
    pub temperature: f64,
    /// Calls for one answer, with growing pauses between them; of an agent, turns until its words have the numbers.
    #[serde(default = "default_tries")]
    pub tries: u32,
    /// The environment variable with the server's key, which begins with `DYAD_JUDGE_KEY`.
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
    /// A grader of this kind with every default.
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
