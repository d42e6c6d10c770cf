//! Listens to the heartbeats of a run.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use broker::AgentName;
use broker::bus::{Bus, Consumer, blocked, verified};
use broker::protocol::control::{Beat, CoordinatorBeat, Heartbeat};
use broker::topology::{Queue, Topology};
use configs::RunConfig;
use serde::Serialize;

use crate::cli::last_metrics::{CoordinatorRates, LastMetrics};
use crate::run_folder::RunFolder;

/// The longest time between two heartbeats of a healthy process. Coordinators other than the first
/// are known after it.
const PERIOD: Duration = Duration::from_millis(500);
/// Time after which a process without a heartbeat counts as silent.
const LISTEN: Duration = Duration::from_millis(700);

/// The state that `dyad status` shows.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Status {
    pub run: String,
    /// The state received from the run, or `None` if its broker cannot be reached.
    pub live: Option<LiveState>,
    /// Each process and what it does or waits for.
    pub waits: Vec<(String, String)>,
    /// The end of the run and its reason.
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
    /// Turns and conversations per second, over the coordinators that sent heartbeats.
    pub turns_per_s: Option<f64>,
    pub conversations_per_s: Option<f64>,
    /// Messages ready, by queue.
    pub queues: BTreeMap<String, u64>,
    /// Bytes of ready messages that each queue holds at most.
    pub queue_limits: BTreeMap<String, u64>,
    /// The broker's reason to accept no messages. Heartbeats do not arrive then.
    pub alarm: Option<String>,
}

/// Receives the heartbeats of a run.
pub(crate) struct Listener {
    bus: Arc<dyn Bus>,
    topology: Topology,
    beats: Box<dyn Consumer>,
    state: LiveState,
    queues: Vec<Queue>,
    participants: Vec<AgentName>,
}

impl Listener {
    pub(crate) async fn open(bus: Arc<dyn Bus>, folder: &RunFolder, config: &RunConfig) -> anyhow::Result<Self> {
        let topology = Topology::new(folder.run().clone());
        let queue = topology.control(&format!("status-{}", std::process::id()));
        bus.declare_queue(&queue).await?;
        let beats = bus.consume(&queue, 256).await?;
        let agents: Vec<_> = config.agents.keys().cloned().collect();
        let queues = topology.durable_queues(&agents);
        let limits = queues.iter().map(|queue| (queue.name.clone(), queue.max_bytes));
        let queue_limits = limits.collect();
        Ok(Self {
            queues,
            participants: config.participants(),
            bus,
            topology,
            beats,
            state: LiveState {
                queue_limits,
                ..LiveState::default()
            },
        })
    }

    /// Receives for a [`PERIOD`], and until every agent and a coordinator sent a heartbeat, at most
    /// for [`LISTEN`].
    pub(crate) async fn listen(&mut self) -> LiveState {
        self.state.agents.clear();
        self.state.coordinators.clear();
        let (bus, queues) = (self.bus.clone(), self.queues.clone());
        let asked = bus.clone();
        let alarm = tokio::spawn(async move { blocked::alarm(&*asked).await });
        let depths = futures_util::future::join_all(queues.iter().map(|queue| bus.depth(queue)));
        let (depths, ()) = tokio::join!(depths, self.receive());
        let named = queues.iter().zip(depths);
        self.state.queues = named
            .filter_map(|(queue, depth)| Some((queue.name.clone(), depth?)))
            .collect();
        // Heartbeats are messages too.
        self.state.alarm = if self.has_received_all() {
            alarm.abort();
            None
        } else {
            alarm.await.ok().flatten()
        };
        self.state.clone()
    }

    async fn receive(&mut self) {
        let begun = tokio::time::Instant::now();
        loop {
            // Older heartbeats wait in the queue: they are taken even after the time is over.
            let until = begun + if self.has_received_all() { PERIOD } else { LISTEN };
            let Ok(Some(delivery)) = tokio::time::timeout_at(until, self.beats.next()).await else {
                return;
            };
            delivery.ack().await;
            match verified::beat(&self.topology, &delivery) {
                Ok(Beat::Agent(beat)) => {
                    self.state.agents.insert(beat.agent.to_string(), beat);
                }
                Ok(Beat::Coordinator(beat)) => {
                    self.state.coordinators.insert(beat.incarnation.clone(), beat);
                }
                Err(_) => {}
            }
        }
    }

    /// Returns true if every agent and a coordinator sent a heartbeat.
    fn has_received_all(&self) -> bool {
        let is_known = |name: &AgentName| self.state.agents.contains_key(name.as_str());
        self.participants.iter().all(is_known) && !self.state.coordinators.is_empty()
    }
}

impl LiveState {
    /// Takes the rates of the coordinators that sent heartbeats.
    pub(crate) fn take_rates(&mut self, rates: &BTreeMap<String, CoordinatorRates>) {
        let alive: Vec<&CoordinatorRates> = self.coordinators.keys().filter_map(|name| rates.get(name)).collect();
        if !alive.is_empty() {
            self.turns_per_s = Some(alive.iter().map(|rates| rates.turns).sum());
            self.conversations_per_s = Some(alive.iter().map(|rates| rates.conversations).sum());
        }
    }
}
