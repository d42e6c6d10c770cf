//! Heartbeats and commands.

use serde::{Deserialize, Serialize};

use crate::ids::WeightVersion;
use configs::AgentName;

/// Where a run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
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

/// The state of a run: changed by orders and by the run's own end, stored in each agent's ledger and repeated in every
/// heartbeat, so that whoever starts anew learns it from those that are there. The greater one is the newer: by `seq`, and
/// where two changed it at once, by the later phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub struct RunState {
    /// Counts the changes.
    pub seq: u64,
    pub phase: RunPhase,
}

/// An agent's checkpoint of a joint snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Saved {
    /// Which snapshot it was asked for.
    pub snapshot: String,
    pub lineage: u32,
    pub step: u64,
    /// Of its training state.
    pub digest: String,
    /// The ledger's sequence number of the last batch in it, and the digest of all that it consumed.
    pub sequence: u64,
    pub consumed: String,
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
    /// The least place in the run's own source of tasks of which its ledger has no group.
    #[serde(default)]
    pub next_order: u64,
    /// The run's state as its ledger has it.
    #[serde(default)]
    pub run: RunState,
    /// Its part of the newest joint snapshot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub saved: Option<Saved>,
    /// The holds that it keeps: while there are any it begins no batch, and its engine nothing with what earlier weights computed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub holding: Vec<String>,
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
    /// The run's state as it knows it.
    #[serde(default)]
    pub run: RunState,
    /// Whether it holds nothing of the run: no task, no group.
    #[serde(default)]
    pub drained: bool,
    /// The joint snapshot for which agents are to write their checkpoints, now that nothing is in flight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<String>,
    /// What became of the newest joint snapshot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot_done: Option<SnapshotDone>,
    /// Names the hold that it asks for: agents are to begin no batch while this is repeated, since an evaluation is to be of one
    /// version of their weights.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold: Option<String>,
    /// Step of the lead agent at which it evaluates next, with agents that hold: the lead begins no batch there before it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evaluates_at: Option<u64>,
    /// It plays an evaluation, whether or not anybody holds for it any more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub evaluating: bool,
    /// The newest evaluation that it made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evaluated: Option<Evaluated>,
    #[serde(default)]
    pub pid: u32,
}

/// An evaluation that a coordinator has made, which the others need not make again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Evaluated {
    /// Step of the lead agent.
    pub step: u64,
    /// The one after the last step.
    pub last: bool,
}

/// What became of a joint snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotDone {
    pub snapshot: String,
    /// Groups that were still played when the time was up: they begin anew.
    pub voided: u64,
    /// Why it could not be made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Either heartbeat, told apart by `kind`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Beat {
    Agent(Heartbeat),
    Coordinator(CoordinatorBeat),
}

/// Orders to a run. Repeating one changes nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Command {
    /// Begin no more groups.
    Pause,
    Resume,
    /// Finish what was published and what is open, then end.
    Drain,
    /// Write a joint snapshot.
    Checkpoint {
        /// Names it; new for each.
        snapshot: String,
        /// Milliseconds that open groups are given to finish before they are voided.
        patience_ms: u64,
    },
}
