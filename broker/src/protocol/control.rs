//! Heartbeats and commands.

use serde::{Deserialize, Serialize};

use crate::ids::WeightVersion;
use configs::AgentName;

/// Where a run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunPhase {
    #[default]
    Starting,
    Running,
    Paused,
    /// No new tasks; what is open is finished.
    Draining,
    /// Finished; the agent goes on serving until all have ended.
    Closed,
}

/// What an agent says of itself, on change and at least each second. The newest of an incarnation wins.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Heartbeat {
    pub agent: AgentName,
    /// Differs at every start of the process.
    pub incarnation: String,
    pub seq: u64,
    pub phase: RunPhase,
    /// The weights its engine serves.
    pub version: WeightVersion,
    /// Batches trained in this lineage and its ancestors.
    pub step: u64,
    /// Groups it would take now: (max_staleness + 1) * batch - ready - reserved.
    pub capacity: i64,
    /// Groups closed and not yet trained on.
    pub ready: u64,
    /// Groups reserved and not yet closed.
    pub reserved: u64,
    /// Groups closed over the whole run, empty and dead ones included: never falls, so a coordinator can tell whether what
    /// it sent has arrived.
    #[serde(default)]
    pub closed: u64,
    /// Whether its engine has weights and takes turns.
    pub serving: bool,
    /// Mean reward of its last batch.
    #[serde(default)]
    pub reward: Option<f64>,
    #[serde(default)]
    pub pid: u32,
}

/// What a coordinator says of itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CoordinatorBeat {
    pub incarnation: String,
    pub seq: u64,
    pub phase: RunPhase,
    pub open_groups: u64,
    pub finished_groups: u64,
    pub finished_conversations: u64,
    pub dead_tasks: u64,
    pub turns: u64,
    #[serde(default)]
    pub pid: u32,
}

/// Either heartbeat, told apart by `kind`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Beat {
    Agent(Heartbeat),
    Coordinator(CoordinatorBeat),
}

/// Orders to a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Command {
    Pause,
    Resume,
    /// Admit nothing more, finish what is open, end.
    Drain,
}
