//! The ranks of an agent's trainer: one process for each of `train.devices`.
//!
//! The first rank is the agent's own process. It starts the others as `dyad trainer`, meets them in
//! a file of the run's folder, and watches them. If one ends before the trainer does, the agent's
//! process ends too, and the supervisor starts all of them again. Each start has another
//! generation, so that ranks of an earlier start cannot join.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use anyhow::Context;
use broker::AgentName;
use configs::{AgentConfig, RunConfig};
use tokio::sync::oneshot;
use trainer::collective::{Collective, Gloo, Meeting};

use super::begin::trainer;
use crate::agent::Agent;
use crate::base::fault::{Usage, leave, no_such_agent};
use crate::base::log_scope;
use crate::base::signals::SUPERVISED;
use crate::policy;
use crate::run_folder::{RunFolder, telemetry};

/// The time in which all ranks must have read their weights.
const START: Duration = Duration::from_secs(600);
/// The patience between ranks if `engine.stuck_after` is off.
const PATIENCE: Duration = Duration::from_secs(600);
/// Time between two looks at the ranks' processes.
const LOOK: Duration = Duration::from_millis(100);
/// Gloo's connections have no password: they stay on this machine.
const ADDRESS: &str = "127.0.0.1";
/// Exit code for wrong usage or configuration: a restart cannot help.
const USAGE: i32 = 2;

/// Starts the other ranks and meets them. Returns `None` if the agent has a single rank.
pub(super) async fn start(agent: &Agent, settings: &AgentConfig) -> anyhow::Result<Option<Box<dyn Collective>>> {
    let ranks = settings.train.devices.len();
    if ranks < 2 {
        return Ok(None);
    }
    forget(&agent.folder.ranks(), &agent.name).context("removing the meeting places of earlier ranks")?;
    let command = |rank| command(&agent.folder, &agent.name, rank, &agent.incarnation);
    let commands: io::Result<Vec<Command>> = (1..ranks).map(command).collect();
    keep(&agent.name, commands?).context("starting the ranks of the trainer")?;
    let meeting = meeting(&agent.folder, &agent.name, settings, 0, &agent.incarnation);
    let group = log_scope::spawn_blocking(move || Gloo::join(&meeting)).await??;
    Ok(Some(Box::new(group)))
}

/// Takes part in an agent's training as one of its later ranks, until the trainer ends.
///
/// # Errors
/// Returns an error if another rank is lost, or if this one cannot begin.
pub async fn serve(
    folder: &RunFolder,
    config: &RunConfig,
    name: &AgentName,
    rank: usize,
    generation: &str,
) -> anyhow::Result<()> {
    let settings = config.agents.get(name).ok_or_else(|| no_such_agent(name, config))?;
    let device = settings.train.devices.get(rank).filter(|_| rank > 0);
    let mut settings = settings.clone();
    settings.device = *device.ok_or_else(|| {
        let ranks = settings.train.devices.len();
        Usage::new(format!(
            "agent {name} has {ranks} train.devices, and no later rank {rank}"
        ))
    })?;
    let mut prepared = policy::prepare(folder, name, &settings, config.run.seed).await?;
    let meeting = meeting(folder, name, &settings, rank, generation);
    let (end, ended) = oneshot::channel();
    // A thread of its own: a stop signal ends the process while it waits for orders.
    let serving = move || {
        let mut serve = || -> anyhow::Result<()> {
            let group = Gloo::join(&meeting)?;
            let mut trainer = trainer(&mut prepared, Some(Box::new(group)))?;
            tracing::info!(rank, "rank is serving");
            Ok(trainer.serve()?)
        };
        // The receiver lives until the process ends.
        let _ = end.send(serve());
    };
    std::thread::Builder::new()
        .name(format!("trainer-{name}"))
        .spawn(log_scope::inherit(serving))?;
    ended.await.context("the trainer's thread panicked")?
}

fn meeting(folder: &RunFolder, name: &AgentName, settings: &AgentConfig, rank: usize, generation: &str) -> Meeting {
    let stuck_after = settings.engine.stuck_after.0;
    Meeting {
        file: folder.ranks().join(format!("{name}-{generation}")),
        name: format!("{}/{name}/{generation}", folder.run()),
        address: ADDRESS.into(),
        rank,
        world_size: settings.train.devices.len(),
        start: START,
        // A little less: the error then names the operation before the watch ends the process.
        timeout: if stuck_after.is_zero() {
            PATIENCE
        } else {
            stuck_after * 4 / 5
        },
    }
}

/// Removes what earlier starts of the agent have left.
fn forget(folder: &Path, name: &AgentName) -> io::Result<()> {
    std::fs::create_dir_all(folder)?;
    let begins = format!("{name}-");
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(&begins) {
            std::fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

fn command(folder: &RunFolder, name: &AgentName, rank: usize, generation: &str) -> io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command
        .arg("trainer")
        .arg("--run")
        .arg(folder.path())
        .args(["--agent", name.as_str(), "--rank", &rank.to_string(), "--generation", generation])
        // The pipe closes when this process ends.
        .stdin(Stdio::piped())
        .env(SUPERVISED, "1")
        // An interrupt from the keyboard is for the agent.
        .process_group(0);
    Ok(command)
}

/// Starts the processes and watches them on a thread that lives as long as they do: the kernel ends
/// them with the thread that started them.
fn keep(name: &AgentName, mut commands: Vec<Command>) -> io::Result<()> {
    let (start, started) = mpsc::channel();
    let watched = name.clone();
    let watch = move || {
        let children: io::Result<Vec<Child>> = commands.iter_mut().map(Command::spawn).collect();
        match children {
            Ok(children) => {
                let _ = start.send(Ok(()));
                watch(&watched, children);
            }
            Err(error) => {
                let _ = start.send(Err(error));
            }
        }
    };
    std::thread::Builder::new()
        .name(format!("ranks-{name}"))
        .spawn(log_scope::inherit(watch))?;
    started
        .recv()
        .unwrap_or_else(|_| Err(io::Error::other("the watching thread ended")))
}

/// Returns when all ranks have ended in order.
fn watch(name: &AgentName, children: Vec<Child>) {
    let mut children: Vec<(usize, Child)> = (1..).zip(children).collect();
    for (rank, child) in &children {
        tracing::info!(rank, pid = child.id(), "started a rank of the trainer");
    }
    while !children.is_empty() {
        std::thread::sleep(LOOK);
        children.retain_mut(|(rank, child)| match child.try_wait() {
            Ok(None) => true,
            Ok(Some(status)) if status.success() => false,
            Ok(Some(status)) => lost(name, *rank, status),
            Err(error) => {
                tracing::warn!(rank, %error, "a rank of the trainer cannot be watched");
                false
            }
        });
    }
}

/// Ends this process: the other ranks would wait for the lost one.
fn lost(name: &AgentName, rank: usize, status: ExitStatus) -> ! {
    tracing::error!(
        rank,
        %status,
        "a rank of the trainer ended: this process ends too and should be restarted; the rank's log tells why"
    );
    eprintln!("error: agent {name}: rank {rank} of its trainer ended with {status}; its log tells why");
    if status.code() == Some(USAGE) {
        telemetry::flush();
        leave(USAGE);
    }
    telemetry::end_for_a_bug();
}
