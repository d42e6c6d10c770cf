//! A synchronous wave: all turns that are wanted at once, asked together and committed together.

use std::collections::{BTreeSet, HashSet};
use std::time::Duration;

use broker::AgentName;
use broker::bus::Delivery;
use broker::ids::RequestId;
use broker::protocol::turn::{TurnFrame, TurnResult};
use tokio::time::Instant;

/// Silence after which a request is sent again to an agent that is alive. Repeats are harmless.
pub(crate) const SILENT: Duration = Duration::from_secs(60);

/// A frame of turns and the agent that it is for.
pub(crate) type AgentFrame = (AgentName, TurnFrame);

/// A wave under way.
pub(super) struct Wave {
    missing: HashSet<RequestId>,
    held: Vec<TurnResult>,
    deliveries: Vec<Delivery>,
    /// Kept for asking again.
    frames: Vec<AgentFrame>,
    since: Instant,
}

/// The results of a wave, and the deliveries that brought them.
pub(crate) type WaveResults = (Vec<TurnResult>, Vec<Delivery>);

impl Wave {
    pub(super) fn new(missing: HashSet<RequestId>, frames: Vec<AgentFrame>) -> Self {
        Self {
            missing,
            held: Vec::new(),
            deliveries: Vec::new(),
            frames,
            since: Instant::now(),
        }
    }

    /// Takes results of the wave. Returns how many of them are stale.
    pub(super) fn add(&mut self, results: Vec<TurnResult>, delivery: Option<Delivery>) -> usize {
        let mut stale = 0;
        for result in results {
            if self.missing.remove(&result.request) {
                self.held.push(result);
            } else {
                stale += 1;
            }
        }
        self.deliveries.extend(delivery);
        stale
    }

    pub(super) fn is_complete(&self) -> bool {
        self.missing.is_empty()
    }

    pub(super) fn into_results(self) -> WaveResults {
        (self.held, self.deliveries)
    }

    /// All frames of an agent, if any of their requests is missing.
    pub(super) fn frames_of(&self, agent: &AgentName) -> Vec<AgentFrame> {
        let frames = self.frames.iter().filter(|(to, _)| to == agent);
        let mut requests = frames.clone().flat_map(|(_, frame)| &frame.requests);
        if requests.any(|request| self.missing.contains(&request.request)) {
            frames.cloned().collect()
        } else {
            Vec::new()
        }
    }

    /// All frames, if the wave has been silent for long and all of its agents are alive.
    pub(super) fn take_silent(&mut self, alive: &BTreeSet<AgentName>) -> Vec<AgentFrame> {
        let all_alive = self.frames.iter().all(|(agent, _)| alive.contains(agent));
        if self.since.elapsed() <= SILENT || !all_alive {
            return Vec::new();
        }
        self.since = Instant::now();
        tracing::warn!(missing = self.missing.len(), "a wave is silent; asking again");
        self.frames.clone()
    }
}
