//! Listens to the heartbeats of a run.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use broker::bus::{Bus, Consumer, heard};
use broker::protocol::control::{Beat, CoordinatorBeat, Heartbeat};
use broker::topology::Topology;
use configs::RunConfig;
use serde::Serialize;

use crate::cli::last_metrics::LastMetrics;
use crate::run_folder::RunFolder;

/// Time to receive heartbeats. They arrive at least every second; an agent without one counts as
/// silent.
const LISTEN: Duration = Duration::from_millis(2200);

/// The state that `dyad status` shows.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Status {
    pub run: String,
    /// The state received from the run, or `None` if its broker cannot be reached.
    pub live: Option<LiveState>,
    /// How and why the run is over.
    pub over: Option<String>,
    /// The reason why there is no live state.
    pub offline: Option<String>,
    pub metrics: LastMetrics,
}

/// The newest heartbeats, rates and queues.
#[derive(Debug, Clone, Default, Serialize)]
pub struct LiveState {
    pub agents: BTreeMap<String, Heartbeat>,
    pub coordinators: BTreeMap<String, CoordinatorBeat>,
    /// Turns and conversations per second, over all coordinators.
    pub turns_per_s: Option<f64>,
    pub conversations_per_s: Option<f64>,
    /// Messages ready, by queue.
    pub queues: BTreeMap<String, u64>,
}

/// A coordinator's counters at one heartbeat.
#[derive(Debug, Clone, Copy)]
struct Totals {
    at: Instant,
    turns: u64,
    conversations: u64,
}

/// Receives the heartbeats of a run.
pub(crate) struct Listener {
    bus: Arc<dyn Bus>,
    topology: Topology,
    beats: Box<dyn Consumer>,
    heard: LiveState,
    /// For each coordinator its totals at the last display of rates, and its newest totals.
    totals: BTreeMap<String, (Totals, Totals)>,
}

impl Listener {
    pub(crate) async fn open(bus: Arc<dyn Bus>, folder: &RunFolder) -> anyhow::Result<Self> {
        let topology = Topology::new(folder.run().clone());
        let queue = topology.control(&format!("status-{}", std::process::id()));
        bus.declare_queue(&queue).await?;
        let beats = bus.consume(&queue, 256).await?;
        Ok(Self {
            bus,
            topology,
            beats,
            heard: LiveState::default(),
            totals: BTreeMap::new(),
        })
    }

    pub(crate) async fn hear(&mut self, config: &RunConfig) -> LiveState {
        self.heard.agents.clear();
        self.heard.coordinators.clear();
        let until = tokio::time::Instant::now() + LISTEN;
        while let Ok(Some(delivery)) = tokio::time::timeout_at(until, self.beats.next()).await {
            delivery.ack().await;
            match heard::beat(&self.topology, &delivery) {
                Ok(Beat::Agent(beat)) => {
                    self.heard.agents.insert(beat.agent.to_string(), beat);
                }
                Ok(Beat::Coordinator(beat)) => {
                    self.count(&beat);
                    self.heard.coordinators.insert(beat.incarnation.clone(), beat);
                }
                Err(_) => {}
            }
        }
        self.rates();
        let agents: Vec<_> = config.agents.keys().cloned().collect();
        for queue in self.topology.durable_queues(&agents) {
            if let Some(depth) = self.bus.depth(&queue).await {
                self.heard.queues.insert(queue.name, depth);
            }
        }
        self.heard.clone()
    }

    fn count(&mut self, beat: &CoordinatorBeat) {
        let now = Totals {
            at: Instant::now(),
            turns: beat.turns,
            conversations: beat.finished_conversations,
        };
        let seen = self.totals.entry(beat.incarnation.clone()).or_insert((now, now));
        seen.1 = now;
    }

    /// Computes the rates between each coordinator's first and newest heartbeat. A single heartbeat
    /// gives no rate.
    fn rates(&mut self) {
        let (mut turns, mut conversations) = (None, None);
        for (first, last) in self.totals.values_mut() {
            let seconds = (last.at - first.at).as_secs_f64();
            if seconds > 0.0 {
                *turns.get_or_insert(0.0) += last.turns.saturating_sub(first.turns) as f64 / seconds;
                let ended = last.conversations.saturating_sub(first.conversations);
                *conversations.get_or_insert(0.0) += ended as f64 / seconds;
                *first = *last;
            }
        }
        (self.heard.turns_per_s, self.heard.conversations_per_s) = (turns, conversations);
    }
}
