//! `dyad pause`, `resume`, `drain`, `checkpoint`: orders to a live run, repeated until they are seen to be kept.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use broker::AgentName;
use broker::bus::{Bus, Consumer, Outgoing, heard};
use broker::codec;
use broker::protocol::Kind;
use broker::protocol::control::{Beat, Command, RunPhase, RunState, SnapshotDone};
use broker::topology::{Speaker, Topology};
use clap::Args;
use tokio::time::Instant;

use super::select;
use crate::base::fault::{Unavailable, Usage};
use crate::ledger::snapshot;
use crate::run_folder::RunFolder;

/// An order may get lost, as heartbeats may: it is given again.
const AGAIN: Duration = Duration::from_secs(1);
/// A live run is heard at least each second.
const PATIENCE: Duration = Duration::from_secs(20);

/// Which run, and how to reach it.
#[derive(Debug, Args)]
pub struct To {
    /// The run: `latest`, its id or the start of it, or its folder
    #[arg(default_value = "latest", env = "DYAD_RUN")]
    pub run: String,
    /// Where run folders are
    #[arg(long, env = "DYAD_RUNS", default_value = "runs", value_name = "FOLDER")]
    pub runs: PathBuf,
    /// Broker URL, instead of the run's own
    #[arg(long, env = "DYAD_BROKER", hide_env_values = true, value_name = "URL")]
    pub broker: Option<String>,
}

/// Begin no more groups; what is open is finished, what is ready is trained
#[derive(Debug, Args)]
pub struct PauseArgs {
    #[command(flatten)]
    pub to: To,
}

/// Go on after a pause
#[derive(Debug, Args)]
pub struct ResumeArgs {
    #[command(flatten)]
    pub to: To,
}

/// End a run in order: what was published and what is open is finished first
#[derive(Debug, Args)]
pub struct DrainArgs {
    #[command(flatten)]
    pub to: To,
    /// Return when the run has closed, not when it has begun to drain
    #[arg(long)]
    pub wait: bool,
}

/// Write a joint snapshot: one checkpoint of each agent, with nothing in flight
#[derive(Debug, Args)]
pub struct CheckpointArgs {
    #[command(flatten)]
    pub to: To,
    /// What open groups are given to finish; then they are voided, and begin anew afterwards
    #[arg(long, default_value = "60s", value_name = "TIME")]
    pub within: configs::HumanDuration,
}

pub fn pause(args: &PauseArgs) -> anyhow::Result<()> {
    let done = |run: RunState| run.phase == RunPhase::Paused;
    order(
        &args.to,
        &Command::Pause,
        done,
        &[RunPhase::Draining, RunPhase::Closed],
        PATIENCE,
    )?;
    println!("paused: nothing new is begun until `dyad resume`");
    Ok(())
}

pub fn resume(args: &ResumeArgs) -> anyhow::Result<()> {
    let done = |run: RunState| run.phase == RunPhase::Running;
    order(
        &args.to,
        &Command::Resume,
        done,
        &[RunPhase::Draining, RunPhase::Closed],
        PATIENCE,
    )?;
    println!("running");
    Ok(())
}

pub fn drain(args: &DrainArgs) -> anyhow::Result<()> {
    let (until, patience) = if args.wait {
        (RunPhase::Closed, Duration::MAX)
    } else {
        (RunPhase::Draining, PATIENCE)
    };
    order(&args.to, &Command::Drain, move |run| run.phase >= until, &[], patience)?;
    println!(
        "{}",
        if args.wait {
            "closed"
        } else {
            "draining: what is open is finished, then the run ends"
        }
    );
    Ok(())
}

pub fn checkpoint(args: &CheckpointArgs) -> anyhow::Result<()> {
    let folder = RunFolder::find(&args.to.runs, &args.to.run)?;
    let name = snapshot::new_name(&folder)?;
    let command = Command::Checkpoint {
        snapshot: name.clone(),
        patience_ms: u64::try_from(args.within.0.as_millis()).unwrap_or(u64::MAX),
    };
    let done = select::block_on(async {
        let mut line = Line::open(&args.to, &folder).await?;
        // Bundles arrive and checkpoints are written after the time for open groups.
        let until = Instant::now() + args.within.0 + Duration::from_secs(180);
        loop {
            line.exchange(&command).await?;
            if let Some(done) = line.snapshots.remove(&name) {
                return Ok(done);
            }
            line.must_be_heard()?;
            if line.newest().is_some_and(|run| run.phase == RunPhase::Closed) {
                bail!(Usage::new("the run is closed: its last checkpoints are its snapshot"));
            }
            if Instant::now() > until {
                bail!(
                    "no snapshot after {:?}: `dyad logs coordinator` says why",
                    args.within.0
                );
            }
        }
    })?;
    if let Some(error) = done.error {
        bail!("no snapshot: {error}");
    }
    tell_snapshot(&folder, &name, done.voided)
}

fn tell_snapshot(folder: &RunFolder, name: &str, voided: u64) -> anyhow::Result<()> {
    let path = snapshot::path(folder, name);
    println!("{}", path.display());
    if voided > 0 {
        println!("  {voided} groups were still played and begin anew");
    }
    if path.is_file() {
        for (agent, saved) in snapshot::Manifest::read(&path)?.agents {
            println!("  {agent}  step {}  {}", saved.step, saved.digest);
        }
    }
    Ok(())
}

/// Gives an order until every agent repeats a state in which it is kept, and has it on disk.
fn order(
    to: &To,
    command: &Command,
    kept: impl Fn(RunState) -> bool,
    too_late: &[RunPhase],
    patience: Duration,
) -> anyhow::Result<()> {
    let folder = RunFolder::find(&to.runs, &to.run)?;
    let participants = folder.config()?.participants();
    select::block_on(async {
        let mut line = Line::open(to, &folder).await?;
        let begun = Instant::now();
        loop {
            line.exchange(command).await?;
            if line.all_say(&participants, &kept) {
                return Ok(());
            }
            line.must_be_heard()?;
            if let Some(run) = line.newest().filter(|run| too_late.contains(&run.phase)) {
                let phase = format!("{:?}", run.phase).to_lowercase();
                bail!(Usage::new(format!("too late: the run is {phase}")));
            }
            if begun.elapsed() > patience {
                let silent: Vec<&str> = line.not_saying(&participants, &kept).map(AgentName::as_str).collect();
                bail!(Unavailable {
                    message: format!("given, and not repeated by {} within {patience:?}", silent.join(", ")),
                    hint: Some("`dyad status` shows who is there; the order is kept when they come back".into()),
                });
            }
        }
    })
}

/// Orders out, heartbeats in.
struct Line {
    bus: Arc<dyn Bus>,
    topology: Topology,
    beats: Box<dyn Consumer>,
    agents: BTreeMap<AgentName, RunState>,
    snapshots: BTreeMap<String, SnapshotDone>,
    coordinators: u64,
    opened: Instant,
    given: u64,
}

impl Line {
    async fn open(to: &To, folder: &RunFolder) -> anyhow::Result<Self> {
        let url = select::broker_url(to.broker.as_deref(), Some(folder))?;
        let bus = select::connect(&url, "order").await?;
        let topology = Topology::new(folder.run().clone());
        let queue = topology.control(&format!("order-{}", std::process::id()));
        bus.declare_queue(&queue).await?;
        Ok(Self {
            beats: bus.consume(&queue, 256).await?,
            bus,
            topology,
            agents: BTreeMap::new(),
            snapshots: BTreeMap::new(),
            coordinators: 0,
            opened: Instant::now(),
            given: 0,
        })
    }

    /// Gives the order, then listens for a while.
    async fn exchange(&mut self, command: &Command) -> anyhow::Result<()> {
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
        let until = Instant::now() + AGAIN;
        while let Ok(Some(delivery)) = tokio::time::timeout_at(until, self.beats.next()).await {
            delivery.ack().await;
            match heard::beat(&self.topology, &delivery) {
                Ok(Beat::Agent(beat)) => {
                    self.agents.insert(beat.agent, beat.run);
                }
                Ok(Beat::Coordinator(beat)) => {
                    self.coordinators += 1;
                    self.snapshots
                        .extend(beat.snapshot_done.map(|done| (done.snapshot.clone(), done)));
                }
                // Our own orders come back too.
                Err(_) => {}
            }
        }
        Ok(())
    }

    fn newest(&self) -> Option<RunState> {
        self.agents.values().max().copied()
    }

    fn not_saying<'a>(
        &'a self,
        participants: &'a [AgentName],
        kept: &'a impl Fn(RunState) -> bool,
    ) -> impl Iterator<Item = &'a AgentName> {
        let says = move |name: &AgentName| self.agents.get(name).is_some_and(|run| kept(*run));
        participants.iter().filter(move |name| !says(name))
    }

    fn all_say(&self, participants: &[AgentName], kept: &impl Fn(RunState) -> bool) -> bool {
        self.not_saying(participants, kept).next().is_none()
    }

    fn must_be_heard(&self) -> anyhow::Result<()> {
        if self.coordinators > 0 || self.opened.elapsed() < PATIENCE / 2 {
            return Ok(());
        }
        bail!(Unavailable {
            message: "no coordinator of the run was heard".into(),
            hint: Some("is it running? `dyad status` shows who is there".into()),
        })
    }
}
