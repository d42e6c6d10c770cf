//! `[workflow.shaping.ROLE]` and `[workflow.credit]`: reward parts for length, and the sharing of
//! rewards.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::RoleName;

/// `[workflow.shaping.ROLE]`: reward parts that depend on the tokens a seat sampled in a
/// conversation.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ShapingConfig {
    /// Part `overlong`: DAPO's soft penalty on long answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overlong: Option<OverlongConfig>,
    /// Part `length`: penalty on the distance from a target length.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub length: Option<LengthConfig>,
    /// Weight of the part `length_penalty`, 0 or more: Kimi k1.5's comparison of lengths within a
    /// group, -0.5 to 0.5.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub length_penalty: Option<f64>,
}

/// `overlong`: 0 up to `from` tokens, then a straight line down to -`penalty` at `to`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OverlongConfig {
    /// Tokens at which the penalty starts.
    pub from: u32,
    /// Tokens at which the full penalty is reached, above `from`.
    pub to: u32,
    /// Full penalty, 0 or more.
    #[serde(default = "default_penalty")]
    pub penalty: f64,
}

/// `length`: 0 at `target` tokens, -`weight` at a distance of `target` tokens from it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LengthConfig {
    /// Target number of tokens, 1 or more.
    pub target: u32,
    /// Penalty at a distance of `target` tokens, 0 or more.
    pub weight: f64,
}

/// The reward that a role receives, from the totals of the roles of a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CreditConfig {
    /// Its own total.
    #[default]
    Own,
    /// The mean over all roles.
    Shared,
    /// Its own total minus the mean of the others.
    ZeroSum,
    /// Its own total minus that of the named role.
    Difference(RoleName),
}

fn default_penalty() -> f64 {
    1.0
}
