//! `[workflow]` and `[graders]`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{AgentName, ByteSize, HumanDuration, RoleName};

/// `[workflow]`: the interaction protocol and what it earns.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkflowConfig {
    /// A shipped workflow, such as `signal` or `solve-verify`, or `process:FILE`.
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
    /// Tries for one generation that fails before its conversation counts as failed.
    #[serde(default = "default_retries")]
    pub retries: u32,
    /// Settings of the workflow itself.
    #[serde(default)]
    pub params: toml::Table,
    /// How a workflow that is a program is run.
    #[serde(default)]
    pub process: ProcessConfig,
}

/// `[workflow.process]`: how a program of the user's own is run.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ProcessConfig {
    /// For one answer.
    pub timeout: HumanDuration,
    /// Copies that run beside each other.
    pub workers: u16,
    /// Address space of one copy.
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
fn default_retries() -> u32 {
    3
}

/// `[graders.NAME]`: how an answer is compared with its label.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GraderConfig {
    /// `exact`, `match`, `integer`, `gsm8k`, `math`, `choice`, `f1`, `format`, or `process:FILE`.
    pub kind: String,
    /// For one answer.
    #[serde(default = "default_timeout")]
    pub timeout: HumanDuration,
    /// Of a program: copies that run beside each other.
    #[serde(default = "default_workers")]
    pub workers: u16,
    /// Of a program: address space of one copy.
    #[serde(default = "default_memory")]
    pub memory: ByteSize,
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
