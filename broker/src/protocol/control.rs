//! Heartbeats and commands.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::ids::WeightVersion;
use configs::AgentName;

/// The phase of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunPhase {
    #[default]
    Starting,
    Running,
    Paused,
    /// No new tasks begin; open ones are finished.
    Draining,
    /// Finished. The agent continues to serve until all agents have finished.
    Closed,
}

/// The state of a run.
///
/// Orders and the run's own end change it. Each agent's ledger stores it and every heartbeat
/// repeats it, so that a new process learns it from the running ones. The greater state is the
/// newer one: by `seq`, and after two changes at once by the later phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub struct RunState {
    /// Counts the changes.
    pub seq: u64,
    pub phase: RunPhase,
}

/// An agent's checkpoint of a joint snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Saved {
    /// The name of the snapshot.
    pub snapshot: String,
    pub lineage: u32,
    pub step: u64,
    /// The digest of its training state.
    pub digest: String,
    /// The ledger's sequence number of the last batch in it, and the digest of all consumed
    /// batches.
    pub sequence: u64,
    pub consumed: String,
}

/// An agent's heartbeat, sent on change and at least twice a second. The newest of an incarnation
/// wins.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Heartbeat {
    pub agent: AgentName,
    /// Differs at every start of the process.
    pub incarnation: String,
    pub seq: u64,
    pub phase: RunPhase,
    /// The weights that its engine serves.
    pub version: WeightVersion,
    /// Batches trained in this lineage and its ancestors.
    pub step: u64,
    /// The number of groups it would accept now: (max_staleness + 1) * batch - ready - reserved.
    pub capacity: i64,
    /// Groups closed and not yet trained on.
    pub ready: u64,
    /// Groups reserved and not yet closed.
    pub reserved: u64,
    /// Groups closed over the whole run, including empty and dead ones. It never falls, so a
    /// coordinator can tell whether its bundles have arrived.
    #[serde(default)]
    pub closed: u64,
    /// True if its engine has weights and accepts turns.
    pub serving: bool,
    /// The lowest place in the run's own source of tasks that has no group in its ledger.
    #[serde(default)]
    pub next_order: u64,
    /// The run's state in its ledger.
    #[serde(default)]
    pub run: RunState,
    /// Its part of the newest joint snapshot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub saved: Option<Saved>,
    /// The holds that it keeps. While there are any, it begins no batch, and its engine begins
    /// nothing with what earlier weights computed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub holding: Vec<String>,
    /// Mean reward of its last batch.
    #[serde(default)]
    pub reward: Option<f64>,
    /// Groups of own tasks from which it could learn nothing, if it has learned from none in the
    /// whole run; 0 once it has.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub idle_groups: u64,
    #[serde(default)]
    pub pid: u32,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// A coordinator's heartbeat.
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
    /// The run's state as this coordinator knows it.
    #[serde(default)]
    pub run: RunState,
    /// True if it holds no task and no group of the run.
    #[serde(default)]
    pub drained: bool,
    /// The joint snapshot for which agents must write their checkpoints, now that nothing is in
    /// flight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<String>,
    /// The result of the newest joint snapshot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot_done: Option<SnapshotDone>,
    /// The hold that it requests. Agents begin no batch while it is repeated, because an evaluation
    /// must use one version of their weights.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold: Option<String>,
    /// The lead agent's step of the next evaluation with held agents. The lead begins no batch
    /// there before the evaluation is done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evaluates_at: Option<u64>,
    /// True if it plays an evaluation, even if no agent holds for it any more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub evaluating: bool,
    /// The newest evaluation that it made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evaluated: Option<Evaluated>,
    /// The reason why it paused the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stalled: Option<String>,
    /// The number of turns that it has requested from each agent and that are not answered yet.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub requested: BTreeMap<AgentName, u64>,
    #[serde(default)]
    pub pid: u32,
}

/// An evaluation made by one coordinator, which the others need not repeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Evaluated {
    /// Step of the lead agent.
    pub step: u64,
    /// True for the evaluation after the last step.
    pub last: bool,
}

/// The result of a joint snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotDone {
    pub snapshot: String,
    /// Groups that were still in play at the deadline: they begin again.
    pub voided: u64,
    /// The reason why the snapshot failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Either heartbeat, distinguished by `kind`.
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
    /// Finish the published tasks and the open groups, then end.
    Drain,
    /// Write a joint snapshot.
    Checkpoint {
        /// The snapshot's name, new for each.
        snapshot: String,
        /// Milliseconds for open groups to finish before they are voided.
        patience_ms: u64,
    },
}
