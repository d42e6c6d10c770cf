//! A seat's reward and its comparison within the group, as shown in a transcript.

use configs::{Advantage, CreditConfig};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::numbers::number;

/// The reward of one seat: the parts with their weights, an operator's result, and the comparison
/// within the group.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Earned {
    /// In the order in which they are added.
    pub parts: Vec<EarnedPart>,
    /// Sum of weight x value: the reward.
    #[serde(deserialize_with = "number")]
    pub total: f64,
    /// Present if `[workflow.credit]` has an operator for the role.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credit: Option<Credited>,
    /// The comparison within the group, if the seat is trained on rewards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compared: Option<Compared>,
    /// The reason why it is not compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_compared: Option<String>,
}

/// One part of a reward.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct EarnedPart {
    pub name: String,
    #[serde(deserialize_with = "number")]
    pub value: f64,
    /// 0 for a part that is reported and does not count.
    #[serde(deserialize_with = "number")]
    pub weight: f64,
}

/// The effect of an operator of `[workflow.credit]`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Credited {
    pub operator: CreditConfig,
    /// The sum of the workflow's own parts.
    #[serde(deserialize_with = "number")]
    pub own: f64,
    /// The value that replaces them.
    #[serde(deserialize_with = "number")]
    pub credit: f64,
}

/// A reward within its group: advantage = (reward - baseline) / scale. The advantage is 0 where all
/// rewards are equal or there is only one.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Compared {
    /// The agent's `train.advantage`.
    pub kind: Advantage,
    /// Conversations (or tries at one problem) that are compared.
    pub conversations: usize,
    /// Mean of their rewards.
    #[serde(deserialize_with = "number")]
    pub mean: f64,
    /// Unbiased standard deviation of their rewards.
    #[serde(deserialize_with = "number")]
    pub std: f64,
    #[serde(deserialize_with = "number")]
    pub baseline: f64,
    #[serde(deserialize_with = "number")]
    pub scale: f64,
    /// The advantage within the group, before any step that depends on the rest of the batch.
    #[serde(deserialize_with = "number")]
    pub advantage: f64,
    /// The steps that the batch applies to it afterwards.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub then: Vec<String>,
}
