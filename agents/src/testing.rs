//! Fixtures that the tests of several folders share.

use std::collections::BTreeMap;
use std::sync::Arc;

use broker::AgentName;
use broker::ids::{GroupId, RequestId, WeightVersion};
use broker::protocol::control::{CoordinatorBeat, Heartbeat, RunPhase, RunState};
use broker::protocol::turn::Sampling;

use crate::engine::GenerationJob;

/// Returns the weights after `step` steps of the first lineage.
pub(crate) fn version(step: u64) -> WeightVersion {
    WeightVersion { lineage: 1, step }
}

/// Returns the settings of a generation at temperature 1, without a stop text.
pub(crate) fn sampling(max_new_tokens: u32) -> Sampling {
    Sampling {
        temperature: 1.0,
        top_p: 1.0,
        top_k: 0,
        min_p: 0.0,
        max_new_tokens,
        max_context: None,
        stop: Vec::new(),
    }
}

/// Returns a job with a request, group and seed that follow from `id`.
pub(crate) fn job(id: u8, prompt_ids: &[u32], max_new_tokens: u32) -> GenerationJob {
    GenerationJob {
        request: RequestId([id; 16]),
        group: GroupId([id; 16]),
        member: 0,
        prompt_ids: Arc::from(prompt_ids),
        sampling: Arc::new(sampling(max_new_tokens)),
        seed: id.into(),
        keep: false,
    }
}

/// Returns the first heartbeat of an agent that serves and holds no group.
pub(crate) fn heartbeat(agent: &AgentName) -> Heartbeat {
    Heartbeat {
        agent: agent.clone(),
        incarnation: format!("{agent}-1"),
        seq: 1,
        phase: RunPhase::Running,
        version: version(0),
        step: 0,
        capacity: 8,
        ready: 0,
        reserved: 0,
        closed: 0,
        serving: true,
        next_order: 0,
        run: RunState::default(),
        saved: None,
        holding: Vec::new(),
        reward: None,
        idle_groups: 0,
        pid: 1,
    }
}

/// Returns the first heartbeat of a coordinator that has played nothing.
pub(crate) fn coordinator_beat(incarnation: &str) -> CoordinatorBeat {
    CoordinatorBeat {
        incarnation: incarnation.into(),
        seq: 1,
        phase: RunPhase::Running,
        open_groups: 0,
        finished_groups: 0,
        finished_conversations: 0,
        dead_tasks: 0,
        turns: 0,
        run: RunState::default(),
        drained: false,
        snapshot: None,
        snapshot_done: None,
        hold: None,
        evaluates_at: None,
        evaluating: false,
        evaluated: None,
        stalled: None,
        requested: BTreeMap::new(),
        pid: 7,
    }
}
