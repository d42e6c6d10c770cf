//! The ranks of an agent's trainer: one process for each of `train.devices`.
//!
//! The first rank is the agent's own process. It starts the others as `dyad trainer`, meets them in
//! a file of the run's folder, and watches them. If one ends before the trainer does, the agent's
//! process ends too, and the supervisor starts all of them again. Each start has another
//! generation, so that ranks of an earlier start cannot join. A launcher may start all ranks
//! instead, on several hosts ([`Launched`]). With NCCL, c10d's watchdog may end a process before
//! the trainer gets an error. Other ranks see that as a lost rank too.

mod processes;

use std::io;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::Context;
use broker::AgentName;
use configs::{AgentConfig, DeviceName, RunConfig, Shard};
use tokio::sync::{oneshot, watch};
use trainer::collective::{C10d, Collective, Meeting, Store};
use trainer::device;

use super::build::trainer;
use crate::agent::Agent;
use crate::agent::launched::Launched;
use crate::base::fault::{LostRank, Usage, no_such_agent};
use crate::base::{log_scope, startup};
use crate::policy;
use crate::run_folder::RunFolder;

/// The time in which all ranks must have checked their files. A large model on a slow disk may take
/// that long. Rank 0 of a launcher first starts its engines. A rank that ends is noticed earlier.
const START: Duration = Duration::from_secs(3600);
/// The patience between ranks if `engine.stuck_after` is off: the default of PyTorch's NCCL groups.
const PATIENCE: Duration = Duration::from_secs(600);
/// Gloo's connections have no password: they stay on this machine.
const ADDRESS: &str = "127.0.0.1";
/// The variable that turns NCCL off: `0` sends tensors through host memory.
const NCCL: &str = "DYAD_NCCL";

/// The start that a later rank belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Start {
    /// The agent's process started this rank.
    Child { rank: usize, generation: String },
    /// A launcher started all ranks.
    Launched(Launched),
}

impl Start {
    /// The place of the rank among all.
    #[must_use]
    pub fn rank(&self) -> usize {
        match self {
            Self::Child { rank, .. } => *rank,
            Self::Launched(launched) => launched.rank,
        }
    }

    /// The device of a later rank.
    pub(crate) fn device(&self, name: &AgentName, settings: &AgentConfig) -> anyhow::Result<DeviceName> {
        let (rank, ranks) = (self.rank(), settings.train.devices.len());
        match self {
            Self::Launched(launched) if rank > 0 => launched.device(settings),
            _ => match settings.train.devices.get(rank).filter(|_| rank > 0) {
                Some(device) => Ok(*device),
                None => {
                    let problem = format!("agent {name} has {ranks} train.devices, and no later rank {rank}");
                    Err(Usage::new(problem).into())
                }
            },
        }
    }
}

/// Starts the other ranks, or meets those that a launcher started. Returns `None` if the agent has
/// a single rank.
pub(super) async fn start(agent: &Agent, settings: &AgentConfig) -> anyhow::Result<Option<Box<dyn Collective>>> {
    let ranks = settings.train.devices.len();
    let launched = agent.launched.as_ref().filter(|launched| launched.world_size > 1);
    let start = match launched {
        Some(launched) => Start::Launched(launched.clone()),
        None if ranks < 2 => {
            alone(&agent.name, settings)?;
            return Ok(None);
        }
        None => Start::Child {
            rank: 0,
            generation: agent.incarnation.clone(),
        },
    };
    if let Start::Child { generation, .. } = &start {
        forget(&agent.folder.ranks(), &agent.name).context("removing the meeting places of earlier ranks")?;
        let command = |rank| processes::command(&agent.folder, &agent.name, rank, generation);
        let commands: io::Result<Vec<Command>> = (1..ranks).map(command).collect();
        processes::keep(agent, commands?).context("starting the ranks of the trainer")?;
    }
    let meeting = meeting(&agent.folder, &agent.name, settings, &start)?;
    let name = agent.name.clone();
    let group = log_scope::spawn_blocking(move || join(&meeting, &name)).await??;
    Ok(Some(Box::new(group)))
}

/// Waits for the other ranks.
fn join(meeting: &Meeting, name: &AgentName) -> anyhow::Result<C10d> {
    let waits_for = match meeting.rank {
        0 => format!("{} more ranks of agent {name}'s trainer", meeting.world_size - 1),
        _ => format!("rank 0 of agent {name}'s trainer, which comes when its engines have started"),
    };
    tracing::info!(rank = meeting.rank, at_most = ?meeting.start, "waiting for {waits_for}");
    C10d::join(meeting).with_context(|| format!("waiting for {waits_for}"))
}

/// Rejects a split of the state when there are no ranks to split it among.
fn alone(name: &AgentName, settings: &AgentConfig) -> anyhow::Result<()> {
    if settings.train.shard == Shard::None {
        return Ok(());
    }
    let problem = format!("agent {name} has train.shard and a single rank, which has nothing to split");
    let hint = "write several train.devices, start the ranks with torchrun, or remove train.shard";
    Err(Usage::new(problem).hint(hint).into())
}

/// Takes part in an agent's training as one of its later ranks, until the trainer ends.
///
/// # Errors
/// Returns an error if another rank is lost, or if this one cannot begin.
pub async fn serve(
    folder: &RunFolder,
    config: &RunConfig,
    name: &AgentName,
    start: &Start,
    on_ready: impl Fn() + Send + 'static,
) -> anyhow::Result<()> {
    let settings = config.agents.get(name).ok_or_else(|| no_such_agent(name, config))?;
    if !settings.train.enabled {
        let problem = format!("agent {name} does not train, so it has no later ranks: start one process for it");
        return Err(Usage::new(problem).into());
    }
    if settings.train.is_external() {
        let problem =
            format!("agent {name} has train.command, which starts the ranks itself: start one process for it");
        return Err(Usage::new(problem).into());
    }
    let mut settings = settings.clone();
    settings.device = start.device(name, &settings)?;
    let mut starting = Some(startup::begin(name));
    let mut prepared = policy::prepare(folder, name, &settings, config.run.seed).await?;
    let meeting = meeting(folder, name, &settings, start)?;
    let rank = start.rank();
    startup::enter(name, "waiting for the other ranks");
    let (end, ended) = oneshot::channel();
    let (name, thread) = (name.clone(), format!("trainer-{name}"));
    // A thread of its own: a stop signal ends the process while it waits for orders.
    let serving = move || {
        let mut serve = move || -> anyhow::Result<()> {
            let group = join(&meeting, &name)?;
            startup::enter(&name, "starting the trainer");
            let mut trainer = trainer(&mut prepared, Some(Box::new(group)))?;
            drop(starting.take());
            tracing::info!(rank, "rank is serving");
            on_ready();
            Ok(trainer.serve()?)
        };
        // The receiver lives until the process ends.
        let _ = end.send(serve());
    };
    std::thread::Builder::new()
        .name(thread)
        .spawn(log_scope::inherit(serving))?;
    ended.await.context("the trainer's thread panicked")?
}

/// Waits until a rank of the trainer is lost; waits for ever if none is. The agent then ends in
/// order: the groups in its engine did not cause the loss.
pub(crate) async fn lost(mut ranks: watch::Receiver<Option<LostRank>>) -> anyhow::Error {
    let lost = ranks.wait_for(Option::is_some).await.ok().and_then(|lost| lost.clone());
    match lost {
        Some(lost) => lost.into(),
        None => std::future::pending().await,
    }
}

/// The place where the ranks meet. Call it when the device of `settings` is set up.
fn meeting(folder: &RunFolder, name: &AgentName, settings: &AgentConfig, start: &Start) -> anyhow::Result<Meeting> {
    let (store, address, world_size, generation) = match start {
        Start::Child { generation, .. } => (
            Store::File(folder.ranks().join(format!("{name}-{generation}"))),
            ADDRESS.to_owned(),
            settings.train.devices.len(),
            generation.clone(),
        ),
        Start::Launched(launched) => (
            Store::Server {
                address: launched.master,
                here: launched.serves,
            },
            launched.address()?.to_string(),
            launched.world_size,
            launched.restart.to_string(),
        ),
    };
    Ok(Meeting {
        store,
        name: format!("{}/{name}/{generation}", folder.run()),
        address,
        rank: start.rank(),
        world_size,
        start: START,
        timeout: patience(settings.engine.stuck_after.0),
        gpu: gpu(settings)?,
    })
}

/// The time that an operation waits for other ranks. It is a little less than `stuck_after`, so
/// that the error names the operation before the watch ends the process.
fn patience(stuck_after: Duration) -> Duration {
    if stuck_after.is_zero() {
        PATIENCE
    } else {
        stuck_after * 4 / 5
    }
}

/// The GPU of tensors that go through NCCL. NCCL has no two ranks on one GPU.
fn gpu(settings: &AgentConfig) -> anyhow::Result<Option<usize>> {
    let DeviceName::Cuda(index) = settings.device else {
        return Ok(None);
    };
    let mut devices = settings.train.devices.clone();
    devices.sort_unstable();
    let shared = devices.windows(2).any(|pair| pair[0] == pair[1]);
    if shared || std::env::var(NCCL).is_ok_and(|value| value == "0") {
        return Ok(None);
    }
    device::open_own()?;
    Ok(Some(index))
}

/// Removes what earlier starts of the agent have left.
fn forget(folder: &Path, name: &AgentName) -> io::Result<()> {
    std::fs::create_dir_all(folder)?;
    let begins = format!("{name}-");
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let file = entry.file_name();
        // The rest of another agent's file (a-b) has a dash.
        let rest = file.to_str().and_then(|file| file.strip_prefix(&begins));
        if rest.is_some_and(|rest| !rest.contains('-')) {
            std::fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rank_that_waits_in_vain_says_for_what() {
        let folder = tempfile::tempdir().unwrap();
        let name = AgentName::new("a").unwrap();
        for (rank, waits_for) in [
            (0, "2 more ranks of agent a's trainer"),
            (
                2,
                "rank 0 of agent a's trainer, which comes when its engines have started",
            ),
        ] {
            let meeting = Meeting {
                store: Store::File(folder.path().join(rank.to_string())),
                name: "alone".into(),
                address: ADDRESS.into(),
                rank,
                world_size: 3,
                start: Duration::from_secs(1),
                timeout: Duration::from_secs(1),
                gpu: None,
            };
            let error = join(&meeting, &name).map(drop).unwrap_err();
            let text = format!("{error:#}");
            assert!(text.contains(&format!("waiting for {waits_for}")), "{text}");
            assert!(text.contains("of 3 did not meet the others within"), "{text}");
        }
    }

    #[test]
    fn ranks_wait_for_a_time_even_if_the_watch_is_off() {
        assert_eq!(patience(Duration::from_secs(10)), Duration::from_secs(8));
        assert_eq!(patience(Duration::ZERO), Duration::from_secs(600));
    }
}
