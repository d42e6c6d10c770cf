//! `agents.NAME.past`: an agent that plays with earlier weights of another agent.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::AgentName;

/// `past`: an opponent or partner that renews itself. After every `every` steps of another agent it
/// takes one of that agent's newest checkpoints, drawn by the run's seed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PastConfig {
    /// Agent that provides the earlier weights; it trains and has the same model.
    pub of: AgentName,
    /// Steps of that agent between two renewals, 1 or more; that agent writes a checkpoint at each.
    pub every: u64,
    /// Weights are drawn uniformly from the newest `keep` renewals; the initial policy counts as
    /// one. 1 always takes the newest.
    #[serde(default = "default_keep")]
    pub keep: u64,
}

impl PastConfig {
    /// Returns the number of the renewal that is due at this step of the other agent; 0 is the
    /// initial policy.
    #[must_use]
    pub fn renewal(&self, step: u64) -> u64 {
        step / self.every.max(1)
    }

    /// Returns the step of the other agent at this renewal.
    #[must_use]
    pub fn step(&self, renewal: u64) -> u64 {
        renewal * self.every.max(1)
    }

    /// Returns the earliest renewal that may be drawn from at this renewal.
    #[must_use]
    pub fn earliest(&self, renewal: u64) -> u64 {
        (renewal + 1).saturating_sub(self.keep.max(1))
    }
}

fn default_keep() -> u64 {
    4
}
