//! `train.alarms`: signs that a policy collapses.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Bounds on what a batch should look like; one that is not given is not watched. What is out of bounds is warned about in the
/// log and counted in the metrics as `collapse/alarms`, and changes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AlarmsConfig {
    /// Most of an answer, from 0 to 1, that may repeat what it said before: runs of three tokens, mean over the answers.
    pub repetition: Option<f64>,
    /// Most of a group's answers, from 0 to 1, that may say what another one of the same role said.
    pub sameness: Option<f64>,
    /// Fewest tokens per sample, in the mean.
    pub least_tokens: Option<f64>,
    /// Most tokens per sample, in the mean.
    pub most_tokens: Option<f64>,
    /// Least entropy per token, nats.
    pub entropy: Option<f64>,
}
