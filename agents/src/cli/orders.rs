//! Orders to a live run, sent again until the agents confirm them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::bail;
use broker::AgentName;
use broker::bus::{Bus, Consumer, Outgoing, verified};
use broker::codec;
use broker::protocol::Kind;
use broker::protocol::control::{Beat, Command, RunPhase, RunState, SnapshotDone};
use broker::topology::{Speaker, Topology};
use clap::Args;
use tokio::time::Instant;

use super::select::RunArg;
use super::{ended, select};
use crate::base::fault::{Unavailable, Usage};
use crate::run_folder::RunFolder;

/// Time between two sends: an order may be lost, because heartbeats and orders are not durable.
const AGAIN: Duration = Duration::from_secs(1);
/// Time to wait for confirmation. A live run sends heartbeats at least every second.
const PATIENCE: Duration = Duration::from_secs(20);

/// The run to reach, and its broker.
#[derive(Debug, Args)]
pub struct To {
    /// The run, as for --run
    #[arg(value_name = "RUN")]
    pub which: Option<String>,
    #[command(flatten)]
    pub run: RunArg,
    /// Broker URL, instead of the run's own
    #[arg(long, env = "DYAD_BROKER", hide_env_values = true, value_name = "URL")]
    pub broker: Option<String>,
}

impl To {
    pub(super) fn folder(&self) -> anyhow::Result<RunFolder> {
        self.run.of_broker(self.which.as_ref(), self.broker.as_deref())
    }
}

/// An order that moves a run to another phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PhaseOrder {
    Pause,
    Resume,
    Drain,
    /// The same as `Drain`, then waits until the run has closed.
    DrainAndWait,
}

impl PhaseOrder {
    fn command(self) -> Command {
        match self {
            Self::Pause => Command::Pause,
            Self::Resume => Command::Resume,
            Self::Drain | Self::DrainAndWait => Command::Drain,
        }
    }

    /// Returns true if a run in this phase has carried the order out.
    fn is_done(self, phase: RunPhase) -> bool {
        match self {
            Self::Pause => phase == RunPhase::Paused,
            Self::Resume => phase == RunPhase::Running,
            Self::Drain => phase >= RunPhase::Draining,
            Self::DrainAndWait => phase == RunPhase::Closed,
        }
    }

    fn is_too_late(self, phase: RunPhase) -> bool {
        matches!(self, Self::Pause | Self::Resume) && phase >= RunPhase::Draining
    }

    fn patience(self) -> Duration {
        match self {
            Self::DrainAndWait => Duration::MAX,
            _ => PATIENCE,
        }
    }

    /// Returns the sentence for an order that was carried out.
    pub(super) fn report(self) -> &'static str {
        match self {
            Self::Pause => "paused: no new groups until `dyad resume`",
            Self::Resume => "resumed",
            Self::Drain => "draining: published tasks and open groups are finished, then the run ends",
            Self::DrainAndWait => "closed",
        }
    }
}

/// Carries out an order as a command, and prints the result.
pub(super) fn order(to: &To, order: PhaseOrder) -> anyhow::Result<()> {
    let folder = to.folder()?;
    ended::require_open(&folder)?;
    let url = select::broker_url(to.broker.as_deref(), Some(&folder))?;
    select::block_on(async { give(select::connect(&url, "order").await?, &folder, order).await })?;
    println!("{}", order.report());
    Ok(())
}

/// Sends an order until every agent reports a state in which it is carried out and stored on disk.
///
/// # Errors
/// The run is past it, or does not confirm it in time.
pub(super) async fn give(bus: Arc<dyn Bus>, folder: &RunFolder, order: PhaseOrder) -> anyhow::Result<()> {
    let participants = folder.config()?.participants();
    let mut channel = OrderChannel::open(bus, folder).await?;
    let begun = Instant::now();
    // A short run may end as soon as it goes on: only now can it be seen paused.
    while order == PhaseOrder::Resume && channel.newest().is_none() && begun.elapsed() < PATIENCE / 4 {
        channel.receive().await;
    }
    loop {
        channel.exchange(&order.command()).await?;
        let done = |run: RunState| order.is_done(run.phase);
        if channel.all_report(&participants, &done) {
            return Ok(());
        }
        channel.require_coordinator()?;
        if let Some(run) = channel.newest().filter(|run| order.is_too_late(run.phase)) {
            if order == PhaseOrder::Resume && channel.was_paused {
                return Ok(());
            }
            let phase = format!("{:?}", run.phase).to_lowercase();
            bail!(Usage::new(format!("too late: the run is already {phase}")));
        }
        if begun.elapsed() > order.patience() {
            let silent: Vec<&str> = channel
                .unconfirmed(&participants, &done)
                .map(AgentName::as_str)
                .collect();
            bail!(Unavailable {
                message: format!(
                    "the order was sent, but these agents did not confirm it within {:?}: {}",
                    order.patience(),
                    silent.join(", ")
                ),
                hint: Some(
                    "`dyad status` shows which agents are up; the others carry out the order when they come back"
                        .into()
                ),
            });
        }
    }
}

/// Sends orders and receives heartbeats.
pub(super) struct OrderChannel {
    bus: Arc<dyn Bus>,
    topology: Topology,
    beats: Box<dyn Consumer>,
    agents: BTreeMap<AgentName, RunState>,
    /// An agent reported a paused run to this channel.
    was_paused: bool,
    pub(super) snapshots: BTreeMap<String, SnapshotDone>,
    coordinators: u64,
    opened: Instant,
    given: u64,
}

/// Returns a number that no other channel of this machine has: a dashboard opens several.
fn number() -> u64 {
    static OPENED: AtomicU64 = AtomicU64::new(0);
    let nth = OPENED.fetch_add(1, Ordering::Relaxed) % 1000;
    u64::from(std::process::id()) * 1000 + nth
}

impl OrderChannel {
    pub(super) async fn open(bus: Arc<dyn Bus>, folder: &RunFolder) -> anyhow::Result<Self> {
        let topology = Topology::new(folder.run().clone());
        let queue = topology.control(&format!("order-{}", number()));
        bus.declare_queue(&queue).await?;
        Ok(Self {
            beats: bus.consume(&queue, 256).await?,
            bus,
            topology,
            agents: BTreeMap::new(),
            was_paused: false,
            snapshots: BTreeMap::new(),
            coordinators: 0,
            opened: Instant::now(),
            given: 0,
        })
    }

    /// Sends the order, then receives heartbeats for a while.
    pub(super) async fn exchange(&mut self, command: &Command) -> anyhow::Result<()> {
        self.given += 1;
        let message = Outgoing {
            to: self.topology.to_control(Speaker::Operator),
            kind: Kind::Command,
            message_id: format!("order-{}-{}", std::process::id(), self.given),
            correlation_id: None,
            headers: vec![("run".into(), self.topology.run().to_string())],
            body: codec::encode_json(command).into(),
            durable: false,
        };
        self.bus.publish(message).await?;
        self.receive().await;
        Ok(())
    }

    /// Receives heartbeats for a while.
    async fn receive(&mut self) {
        let until = Instant::now() + AGAIN;
        while let Ok(Some(delivery)) = tokio::time::timeout_at(until, self.beats.next()).await {
            delivery.ack().await;
            match verified::beat(&self.topology, &delivery) {
                Ok(Beat::Agent(beat)) => {
                    self.was_paused |= beat.run.phase == RunPhase::Paused;
                    self.agents.insert(beat.agent, beat.run);
                }
                Ok(Beat::Coordinator(beat)) => {
                    self.coordinators += 1;
                    self.snapshots
                        .extend(beat.snapshot_done.map(|done| (done.snapshot.clone(), done)));
                }
                // The bus also delivers our own orders.
                Err(_) => {}
            }
        }
    }

    pub(super) fn newest(&self) -> Option<RunState> {
        self.agents.values().max().copied()
    }

    fn unconfirmed<'a>(
        &'a self,
        participants: &'a [AgentName],
        kept: &'a impl Fn(RunState) -> bool,
    ) -> impl Iterator<Item = &'a AgentName> {
        let says = move |name: &AgentName| self.agents.get(name).is_some_and(|run| kept(*run));
        participants.iter().filter(move |name| !says(name))
    }

    fn all_report(&self, participants: &[AgentName], kept: &impl Fn(RunState) -> bool) -> bool {
        self.unconfirmed(participants, kept).next().is_none()
    }

    pub(super) fn require_coordinator(&self) -> anyhow::Result<()> {
        if self.coordinators > 0 || self.opened.elapsed() < PATIENCE / 2 {
            return Ok(());
        }
        bail!(Unavailable {
            message: "no heartbeat from a coordinator of this run".into(),
            hint: Some("check with `dyad status` that the run is up".into()),
        })
    }
}
