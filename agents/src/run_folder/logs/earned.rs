//! What a seat earned and how it compares with its likes, as a transcript has it.

use configs::{Advantage, CreditConfig};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::numbers::number;

/// What one seat earned: the parts with their weights, what an operator made of them, and what the group makes of their sum.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Earned {
    /// In the order in which they are added.
    pub parts: Vec<EarnedPart>,
    /// Sum of weight x value: the reward.
    #[serde(deserialize_with = "number")]
    pub total: f64,
    /// Where `[workflow.credit]` has an operator for the role.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credit: Option<Credited>,
    /// Within the group, where the seat is trained on rewards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compared: Option<Compared>,
    /// Why it is compared with nothing, where it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_compared: Option<String>,
}

/// One part of a reward.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct EarnedPart {
    pub name: String,
    #[serde(deserialize_with = "number")]
    pub value: f64,
    /// 0 for what is told and does not count.
    #[serde(deserialize_with = "number")]
    pub weight: f64,
}

/// What an operator of `[workflow.credit]` did.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Credited {
    pub operator: CreditConfig,
    /// What the workflow's own parts come to.
    #[serde(deserialize_with = "number")]
    pub own: f64,
    /// What stands in their place.
    #[serde(deserialize_with = "number")]
    pub credit: f64,
}

/// A reward among those of its group: advantage = (reward - baseline) / scale, 0 where all are equal or there is one alone.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Compared {
    /// The agent's `train.advantage`.
    pub kind: Advantage,
    /// Conversations (or tries at one problem) that are compared.
    pub conversations: usize,
    /// Mean over them.
    #[serde(deserialize_with = "number")]
    pub mean: f64,
    /// Unbiased standard deviation of their rewards.
    #[serde(deserialize_with = "number")]
    pub std: f64,
    #[serde(deserialize_with = "number")]
    pub baseline: f64,
    #[serde(deserialize_with = "number")]
    pub scale: f64,
    /// As the group gives it, before anything that depends on the rest of the batch.
    #[serde(deserialize_with = "number")]
    pub advantage: f64,
    /// What the batch does to it afterwards.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub then: Vec<String>,
}
