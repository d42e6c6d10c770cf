//! How many tasks may be taken in: the one gate of back-pressure.
//!
//! `capacity = (max_staleness + 1) * batch_groups - ready - reserved`, both counted in the agent's ledger, never
//! accumulated. While groups close in the order of their admission, what is admitted within it is trained at most
//! `max_staleness` steps later; a group that others overtake may get older, which is why staleness is checked again when it
//! is trained.

use configs::{AgentName, TrainConfig};

/// Groups that an agent would take now; negative while it holds more than its window.
#[must_use]
pub fn capacity(config: &TrainConfig, ready: u64, reserved: u64) -> i64 {
    let batch = i128::try_from(config.batch_groups.max(1)).unwrap_or(i128::MAX);
    let window = (i128::from(config.max_staleness) + 1).saturating_mul(batch);
    let capacity = window - i128::from(ready) - i128::from(reserved);
    i64::try_from(capacity).unwrap_or(if capacity < 0 { i64::MIN } else { i64::MAX })
}

/// Groups that may be admitted when every participating agent must have room: the least capacity, 0 without agents.
#[must_use]
pub fn admissible(capacities: impl IntoIterator<Item = i64>) -> u64 {
    let least = capacities.into_iter().min().unwrap_or(0);
    u64::try_from(least).unwrap_or(0)
}

/// Batches that do not fit into common rounds.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "agent {agent} has batch_groups = {batch}, which is no multiple of the least, {least}: in sync mode every agent's batch \
     is a whole number of rounds"
)]
pub struct NotMultiple {
    pub agent: AgentName,
    pub batch: usize,
    pub least: usize,
}

/// The rounds of synchronous mode: admit, play to the end, train whoever has a full batch, swap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rounds {
    /// R, the least `batch_groups`.
    pub groups: usize,
}

impl Rounds {
    /// `batches` are the `batch_groups` of the agents that train.
    pub fn new<'a>(batches: impl IntoIterator<Item = (&'a AgentName, usize)> + Clone) -> Result<Self, NotMultiple> {
        let least = batches
            .clone()
            .into_iter()
            .map(|(_, batch)| batch)
            .min()
            .unwrap_or(1)
            .max(1);
        match batches.into_iter().find(|(_, batch)| batch % least != 0) {
            Some((agent, batch)) => Err(NotMultiple {
                agent: agent.clone(),
                batch,
                least,
            }),
            None => Ok(Self { groups: least }),
        }
    }

    /// Groups to admit in the next round: R, or less where an agent is left with a part of a batch because groups of it
    /// closed empty. At least 1 once every agent with a full batch has trained.
    #[must_use]
    pub fn next(self, capacities: impl IntoIterator<Item = i64>) -> usize {
        usize::try_from(admissible(capacities)).map_or(self.groups, |room| room.min(self.groups))
    }

    /// Whether an agent with this many groups ready trains at the end of the round.
    #[must_use]
    pub fn trains(self, batch_groups: usize, ready: usize) -> bool {
        ready >= batch_groups.max(1)
    }
}

#[cfg(test)]
#[path = "admission_tests.rs"]
mod tests;
