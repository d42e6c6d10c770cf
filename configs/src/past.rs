//! `agents.NAME.past`: an agent that plays with weights which another agent of the run had before.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::AgentName;

/// An opponent or partner that renews itself: at every so many steps of another agent it takes one of that agent's newest checkpoints,
/// drawn by the run's seed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PastConfig {
    /// The agent whose past it is; one that trains, with the same model.
    pub of: AgentName,
    /// Steps of that agent between two renewals, at each of which it writes a checkpoint.
    pub every: u64,
    /// The weights are drawn, all equally likely, among those of the newest so many renewals, the first policy counted as one. 1 is
    /// always the newest.
    #[serde(default = "default_keep")]
    pub keep: u64,
}

impl PastConfig {
    /// The number of the renewal that is due at this step of the other agent; 0 is the first policy.
    #[must_use]
    pub fn renewal(&self, step: u64) -> u64 {
        step / self.every.max(1)
    }

    /// The step of the other agent at this renewal.
    #[must_use]
    pub fn step(&self, renewal: u64) -> u64 {
        renewal * self.every.max(1)
    }

    /// The earliest renewal whose weights may be drawn at this one.
    #[must_use]
    pub fn earliest(&self, renewal: u64) -> u64 {
        (renewal + 1).saturating_sub(self.keep.max(1))
    }
}

fn default_keep() -> u64 {
    4
}
