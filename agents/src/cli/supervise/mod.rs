//! `dyad up`: starts and supervises the processes of a run. There is one for each agent and
//! coordinator, and one for each engine of kind `dyad` with a URL on this machine. Their lines get
//! a prefix.
//!
//! A process is done when the run's ledgers say so, not when it ends well. A crashed process is
//! started again after a pause, which doubles up to a limit. A process that stays stopped (SIGSTOP)
//! for `engine.stuck_after` is killed first. A process that rejects its
//! configuration ends all. The supervisor also holds the private servers of `local:` URLs and
//! starts them again when they die. It ends everything on a stop signal or when all processes are
//! done. An engine is never done: it ends with the others.

mod child;
mod halted;
pub(crate) mod pages;

use std::net::SocketAddr;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use anyhow::Context;
use configs::{AgentName, DeviceName, EngineConfig, RunConfig};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::base::fault::Usage;
use crate::base::retry::Pauses;
use crate::base::signals::Signals;
use crate::cli::embedded;
use crate::cli::tasks::saved;
use crate::ledger::completion;
use crate::run_folder::servers::Servers;
use crate::run_folder::{Connection, RunFolder};
use child::Line;

const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// A process that ran this long has recovered: its next pause is short again.
const RECOVERED: Duration = Duration::from_secs(60);
/// Exit code for wrong usage or configuration: a restart cannot help.
const USAGE: i32 = 2;

/// One process of a run.
#[derive(Debug, Clone)]
pub struct Role {
    pub label: String,
    pub args: Vec<String>,
    kind: Kind,
    /// The time after which the stopped process is killed; zero: never.
    patience: Duration,
}

#[derive(Debug, Clone)]
enum Kind {
    Agent(AgentName),
    Coordinator,
    Engine,
}

/// Returns the processes of a run.
#[must_use]
pub fn roles(config: &RunConfig, folder: &RunFolder) -> Vec<Role> {
    let run = folder.path().display().to_string();
    let patience = |engine: &EngineConfig| engine.stuck_after.0;
    // Zero turns the check of an agent off, and of the coordinator if all agents have it off.
    let longest = config
        .agents
        .values()
        .map(|agent| patience(&agent.engine))
        .max()
        .unwrap_or_default();
    let agent = |name: &AgentName| Role {
        patience: config.agents.get(name).map_or(longest, |agent| patience(&agent.engine)),
        label: name.to_string(),
        args: ["agent", "--name", name.as_str(), "--run", &run]
            .map(str::to_owned)
            .to_vec(),
        kind: Kind::Agent(name.clone()),
    };
    let coordinator = Role {
        label: "coordinator".into(),
        args: ["coordinator", "--run", &run].map(str::to_owned).to_vec(),
        kind: Kind::Coordinator,
        patience: longest,
    };
    let participants = config.participants();
    let engines = participants.iter().flat_map(|name| engines(config, folder, name));
    participants
        .iter()
        .map(agent)
        .chain([coordinator])
        .chain(engines)
        .collect()
}

/// Returns the engines of an agent that must run on this machine.
fn engines(config: &RunConfig, folder: &RunFolder, name: &AgentName) -> Vec<Role> {
    let Some(agent) = config.agents.get(name) else {
        return Vec::new();
    };
    let file = folder.path().join("config.toml").display().to_string();
    let role = |(index, address, device): (usize, SocketAddr, Option<DeviceName>)| {
        let label = format!("{name}.engine{index}");
        let mut args = vec!["engine".to_owned(), file.clone()];
        let options = [
            ("--agent", Some(name.to_string())),
            ("--listen", Some(address.to_string())),
            ("--device", device.map(|device| device.to_string())),
            ("--log", Some(folder.log(&label).display().to_string())),
        ];
        for (option, value) in options {
            args.extend(value.map(|value| [option.to_owned(), value]).into_iter().flatten());
        }
        Role {
            label,
            args,
            kind: Kind::Engine,
            patience: agent.engine.stuck_after.0,
        }
    };
    agent.engine.here().map(role).collect()
}

/// Runs all processes to their end.
///
/// # Errors
/// Returns an error if a process cannot go on, a server does not start, or a stop signal arrives.
pub async fn supervise(config: &RunConfig, folder: &RunFolder) -> anyhow::Result<()> {
    let urls = Connection {
        broker: config.run.broker.clone(),
        state: config.run.state.clone(),
    };
    anyhow::ensure!(
        urls.broker != "memory:" && urls.state != "memory:",
        "processes cannot share memory: set run.broker and run.state to \"local:\" or to servers, or use `dyad run`"
    );
    folder.set_continued()?;
    let mut signals = Signals::listen()?;
    let data = folder.path().join("servers");
    let (servers, urls) = tokio::select! {
        started = Servers::start(urls, &data) => started?,
        () = signals.next() => return Err(interrupted(folder)),
    };
    folder.set_connection(&urls)?;
    let servers = servers.keep();
    let (stop, stopping) = watch::channel(false);
    let (mut keepers, mut working) = keepers(config, folder, &stopping);
    let mut outcome = Ok(());
    loop {
        tokio::select! {
            ended = keepers.join_next() => match ended.map(|end| end.context("a supervising task ended").and_then(|end| end)) {
                None => break,
                Some(Ok(kind)) => {
                    working -= usize::from(!matches!(kind, Kind::Engine));
                    // The engines have no clients left.
                    if working == 0 {
                        stop.send_replace(true);
                    }
                }
                // The other processes would wait for it for ever.
                Some(Err(error)) => {
                    outcome = outcome.and(Err(error));
                    stop.send_replace(true);
                }
            },
            // A second signal ends everything at once.
            () = signals.next() => if stop.send_replace(true) {
                keepers.shutdown().await;
            } else {
                outcome = outcome.and(Err(interrupted(folder)));
            },
        }
    }
    tokio::select! {
        () = saved::save_from(&urls.broker, folder, &config.run.broker) => {}
        () = signals.next() => {}
    }
    servers.stop().await;
    outcome
}

fn interrupted(folder: &RunFolder) -> anyhow::Error {
    embedded::interrupted(folder, "up")
}

/// Starts a keeper for each process. Also returns the number of processes that are not engines.
fn keepers(
    config: &RunConfig,
    folder: &RunFolder,
    stopping: &watch::Receiver<bool>,
) -> (JoinSet<anyhow::Result<Kind>>, usize) {
    let roles = roles(config, folder);
    let working = roles.iter().filter(|role| !matches!(role.kind, Kind::Engine)).count();
    let width = roles.iter().map(|role| role.label.len()).max().unwrap_or(0);
    let mut keepers = JoinSet::new();
    for (index, role) in roles.into_iter().enumerate() {
        let line = Line {
            label: role.label.clone(),
            index,
            width,
        };
        let participants = config.participants();
        keepers.spawn(keep(role, line, folder.clone(), participants, stopping.clone()));
    }
    (keepers, working)
}

/// The step after the end of a process.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    Done,
    Again,
    Never,
}

fn next(status: ExitStatus, run_says_done: bool) -> Next {
    match status.code() {
        Some(USAGE) => Next::Never,
        Some(0) if run_says_done => Next::Done,
        _ => Next::Again,
    }
}

/// Keeps one process running until the run says that it is done, or everything stops.
async fn keep(
    role: Role,
    line: Line,
    folder: RunFolder,
    participants: Vec<AgentName>,
    mut stopping: watch::Receiver<bool>,
) -> anyhow::Result<Kind> {
    let mut pauses = Pauses::between(FIRST_PAUSE, LONGEST_PAUSE);
    let done = || match &role.kind {
        Kind::Agent(name) => completion::agent(&folder, name),
        Kind::Coordinator => completion::all(&folder, &participants),
        Kind::Engine => false,
    };
    while !*stopping.borrow() {
        let started = Instant::now();
        let mut held = child::start(&role.args, &line)?;
        let id = held.child.id();
        line.say(&format!("started, process {}", id.unwrap_or(0)));
        let status = tokio::select! {
            status = held.child.wait() => status?,
            () = halted::for_longer_than(role.patience, id) => {
                line.say(&format!("stopped by a signal for {:?}: killing it", role.patience));
                held.child.kill().await?;
                held.child.wait().await?
            }
            _ = stopping.changed() => return child::end(held).await.map(|()| role.kind.clone()),
        };
        match next(status, done()) {
            Next::Done => {
                line.say("done");
                return Ok(role.kind);
            }
            Next::Never => {
                let why = held.error().await.unwrap_or_else(|| "see its lines above".into());
                let message = format!(
                    "{} ended with {status}: {why}; the other processes were stopped too",
                    role.label
                );
                return Err(Usage::new(message)
                    .hint("correct the configuration or the call, then start again or use `dyad up --resume`")
                    .into());
            }
            Next::Again => {}
        }
        if started.elapsed() > RECOVERED {
            pauses.reset();
        }
        let pause = pauses.next_pause();
        line.say(&format!(
            "ended with {status} before the run; starting again in {pause:?}"
        ));
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            _ = stopping.changed() => {}
        }
    }
    Ok(role.kind)
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    #[test]
    fn engines_of_this_machine_have_their_devices() {
        let base = tempfile::tempdir().unwrap();
        let mut config = crate::run_folder::tests::config_in(base.path());
        let folder = RunFolder::create(base.path(), &config, None).unwrap();
        let name: AgentName = "a".parse().unwrap();
        let engine = &mut config.agents.get_mut(&name).unwrap().engine;
        engine.kind = configs::EngineKind::Dyad;
        engine.urls = ["http://gpu1:8101", "http://127.0.0.1:8102"]
            .map(str::to_owned)
            .to_vec();
        let args = |config: &RunConfig| -> Vec<String> {
            let roles = roles(config, &folder).into_iter();
            let engines = roles.filter(|role| matches!(role.kind, Kind::Engine));
            engines
                .map(|role| format!("{} {}", role.label, role.args[2..].join(" ")))
                .collect()
        };
        let log = format!("--log {}", folder.log("a.engine1").display());
        assert_eq!(
            args(&config),
            [format!("a.engine1 --agent a --listen 127.0.0.1:8102 {log}")]
        );
        config.agents.get_mut(&name).unwrap().engine.devices = vec![DeviceName::Cuda(2), DeviceName::Cuda(3)];
        assert_eq!(
            args(&config),
            [format!(
                "a.engine1 --agent a --listen 127.0.0.1:8102 --device cuda:3 {log}"
            )]
        );
    }

    #[test]
    fn process_is_done_when_the_run_says_so() {
        let exit = |code: i32| ExitStatus::from_raw(code << 8);
        let killed = ExitStatus::from_raw(9);
        assert_eq!(next(exit(0), true), Next::Done);
        assert_eq!(next(exit(0), false), Next::Again, "stopped by a signal");
        assert_eq!(next(exit(1), true), Next::Again);
        assert_eq!(next(exit(70), false), Next::Again);
        assert_eq!(next(killed, false), Next::Again);
        assert_eq!(next(exit(2), false), Next::Never);
    }
}
