//! The processes of the ranks above the first, started and watched by the agent's process.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use configs::AgentName;
use tokio::sync::watch;

use crate::agent::Agent;
use crate::base::fault::{LostRank, leave};
use crate::base::log_scope;
use crate::base::signals::SUPERVISED;
use crate::run_folder::{RunFolder, telemetry};

/// Time between two looks at the ranks' processes.
const LOOK: Duration = Duration::from_millis(100);
/// Time in which an agent must end in order after the loss of a rank.
const LEAVING: Duration = Duration::from_secs(5);
/// Exit code for wrong usage or configuration: a restart cannot help.
const USAGE: i32 = 2;

pub(super) fn command(folder: &RunFolder, name: &AgentName, rank: usize, generation: &str) -> io::Result<Command> {
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
pub(super) fn keep(agent: &Agent, mut commands: Vec<Command>) -> io::Result<()> {
    let (start, started) = mpsc::channel();
    let (name, lost) = (agent.name.clone(), agent.lost_rank.clone());
    let watch = move || {
        let children: io::Result<Vec<Child>> = commands.iter_mut().map(Command::spawn).collect();
        match children {
            Ok(children) => {
                let _ = start.send(Ok(()));
                if let Some(rank) = watch(&name, children) {
                    end(rank, &lost);
                }
            }
            Err(error) => {
                let _ = start.send(Err(error));
            }
        }
    };
    std::thread::Builder::new()
        .name(format!("ranks-{}", agent.name))
        .spawn(log_scope::inherit(watch))?;
    started
        .recv()
        .unwrap_or_else(|_| Err(io::Error::other("the watching thread ended")))
}

/// Returns the first rank that is lost, or `None` when all have ended in order.
fn watch(name: &AgentName, children: Vec<Child>) -> Option<LostRank> {
    let mut children: Vec<(usize, Child)> = (1..).zip(children).collect();
    for (rank, child) in &children {
        tracing::info!(rank, pid = child.id(), "started a rank of the trainer");
    }
    while !children.is_empty() {
        std::thread::sleep(LOOK);
        let mut lost = None;
        children.retain_mut(|(rank, child)| match child.try_wait() {
            Ok(None) => true,
            Ok(Some(status)) => {
                let (agent, rank) = (name.clone(), *rank);
                let is_lost = !status.success() && lost.is_none();
                lost = lost.take().or(is_lost.then_some(LostRank { agent, rank, status }));
                false
            }
            Err(error) => {
                tracing::warn!(rank, %error, "a rank of the trainer cannot be watched");
                false
            }
        });
        if lost.is_some() {
            return lost;
        }
    }
    None
}

/// Ends this process: the other ranks would wait for the lost one. An agent that serves ends itself
/// in order. One that starts, or takes too long, is ended here.
fn end(lost: LostRank, agent: &watch::Sender<Option<LostRank>>) -> ! {
    let LostRank { rank, status, .. } = &lost;
    tracing::error!(
        rank,
        %status,
        "a rank of the trainer ended: this process ends too and should be restarted; the rank's log says why"
    );
    agent.send_replace(Some(lost.clone()));
    if agent.receiver_count() > 0 {
        std::thread::sleep(LEAVING);
    }
    eprintln!("error: {lost}");
    if status.code() == Some(USAGE) {
        telemetry::flush();
        leave(USAGE);
    }
    telemetry::end_for_a_bug();
}
