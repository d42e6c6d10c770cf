//! `[workflow.shaping.ROLE]` and `[workflow.credit]`: what lengths cost a role, and whose reward it gets.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::RoleName;

/// `[workflow.shaping.ROLE]`: parts of a role's reward that depend on how many tokens a seat sampled in a conversation.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ShapingConfig {
    /// Part `overlong`: DAPO's soft punishment of long answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overlong: Option<OverlongConfig>,
    /// Part `length`: the distance from a length that is wanted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub length: Option<LengthConfig>,
    /// Weight of the part `length_penalty`: Kimi k1.5's comparison of lengths within a group, -0.5 to 0.5.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub length_penalty: Option<f64>,
}

/// Nothing up to `from` tokens, then a straight line down to -`penalty` at `to`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OverlongConfig {
    pub from: u32,
    pub to: u32,
    #[serde(default = "default_penalty")]
    pub penalty: f64,
}

/// Nothing at `target` tokens, -`weight` where the distance from it is as large as itself.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LengthConfig {
    pub target: u32,
    pub weight: f64,
}

/// Whose reward a role gets, from the totals of the roles of a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CreditConfig {
    /// Its own.
    #[default]
    Own,
    /// The mean of all roles.
    Shared,
    /// Its own less the mean of the others.
    ZeroSum,
    /// Its own less that of the role named.
    Difference(RoleName),
}

fn default_penalty() -> f64 {
    1.0
}
