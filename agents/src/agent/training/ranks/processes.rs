//! The processes of the ranks above the first, started and watched by the agent's process.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use configs::AgentName;

use crate::base::fault::leave;
use crate::base::log_scope;
use crate::base::signals::SUPERVISED;
use crate::base::startup::SHOWN;
use crate::run_folder::{RunFolder, telemetry};

/// Time between two looks at the ranks' processes.
const LOOK: Duration = Duration::from_millis(100);
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
        // The agent's own stage is shown.
        .env_remove(SHOWN)
        // An interrupt from the keyboard is for the agent.
        .process_group(0);
    Ok(command)
}

/// Starts the processes and watches them on a thread that lives as long as they do: the kernel ends
/// them with the thread that started them.
pub(super) fn keep(name: &AgentName, mut commands: Vec<Command>) -> io::Result<()> {
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
