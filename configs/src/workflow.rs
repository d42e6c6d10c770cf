//! `[workflow]` and `[graders]`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{AgentName, HumanDuration, RoleName};

/// `[workflow]`: the interaction protocol and what it earns.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkflowConfig {
    /// `signal`, `solo`, `solve-verify` or `solve-rewrite-select`.
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
    /// `exact`, `integer` or `math`.
    pub kind: String,
    #[serde(default = "default_timeout")]
    pub timeout: HumanDuration,
}

fn default_timeout() -> HumanDuration {
    HumanDuration::from_secs(2)
}
