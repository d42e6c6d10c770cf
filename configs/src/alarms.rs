//! `train.alarms`: warnings for a collapsing policy.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `alarms`: bounds for a batch; a missing bound is not checked. A batch outside its bounds is
/// logged as a warning and counted in the metric `collapse/alarms`. Training does not change.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AlarmsConfig {
    /// Most repetition within an answer, 0 to 1: fraction of repeated three-token runs, mean over
    /// the answers.
    pub repetition: Option<f64>,
    /// Largest fraction of a group's answers, 0 to 1, that equal another answer of the same role.
    pub sameness: Option<f64>,
    /// Lowest mean number of tokens per sample.
    pub least_tokens: Option<f64>,
    /// Highest mean number of tokens per sample.
    pub most_tokens: Option<f64>,
    /// Lowest entropy per token, in nats.
    pub entropy: Option<f64>,
}
