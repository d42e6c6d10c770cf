//! Starts the program that trains in place of the built-in trainer (`train.command`).
//!
//! The environment variable `DYAD_TRAINER` has the path of a Unix socket, to which the program
//! connects. The program ends when the connection closes. If it ends earlier, the agent's process
//! ends at its next command, and the supervisor starts both again.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use broker::protocol::train::{TrainCommand, TrainReply};
use configs::AgentName;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use trainer::pulse::Pulse;
use trainer::train::{External, TrainError, TrainerClient};

use super::begin::Sink;
use super::build::options;
use crate::agent::Agent;
use crate::base::fault::Usage;
use crate::base::log_scope;
use crate::base::secret::is_secret;
use crate::policy::Prepared;

/// The environment variable with the path of the socket.
const SOCKET: &str = "DYAD_TRAINER";
/// The longest time until the program connects.
const START: Duration = Duration::from_secs(600);
/// The longest wait for the end of the program. A program that still runs is killed.
const END: Duration = Duration::from_secs(30);
/// The time between its termination and its kill.
const TERM: Duration = Duration::from_secs(5);
/// The time between two checks of the program.
const LOOK: Duration = Duration::from_millis(20);
/// The folder below the agent's checkpoints through which both programs exchange files.
const EXCHANGE: &str = ".external";

/// Starts the program and gives it the model. Returns the trainer and its pulse.
pub(super) async fn start(
    agent: &Agent,
    prepared: &Prepared,
    sinks: Vec<Sink>,
) -> anyhow::Result<(Box<dyn TrainerClient>, Pulse)> {
    let (name, words) = (agent.name.clone(), prepared.settings.train.command.clone());
    let exchange = agent.folder.checkpoints(&agent.name).join(EXCHANGE);
    let (shape, model, options) = (prepared.shape.clone(), prepared.folder.clone(), options(prepared));
    let start = move || -> anyhow::Result<(Box<dyn TrainerClient>, Pulse)> {
        let program = Program::start(&name, &words)?;
        let stream = program.connect(&name)?;
        let limits = stream.try_clone()?;
        // The agent watches for a trainer that hangs only after its start.
        limits.set_read_timeout(Some(START))?;
        let exchange = std::path::absolute(exchange)?;
        let mut trainer = External::open(stream, shape, &model.canonicalize()?, exchange, options)?;
        limits.set_read_timeout(None)?;
        sinks.into_iter().for_each(|sink| trainer.add_sink(sink));
        let pulse = trainer.pulse();
        Ok((Box::new(Watched { trainer, program }), pulse))
    };
    log_scope::spawn_blocking(start).await?
}

/// An external trainer and its program, which end together.
struct Watched {
    trainer: External,
    program: Program,
}

impl TrainerClient for Watched {
    fn execute(&mut self, command: TrainCommand) -> Result<TrainReply, TrainError> {
        self.trainer.execute(command).map_err(|error| match error {
            TrainError::Lost(reason) => match self.program.ended_within(END) {
                Some(status) => TrainError::Lost(format!("{reason}; {status}")),
                None => TrainError::Lost(reason),
            },
            other => other,
        })
    }

    fn close(&mut self) {
        self.trainer.close();
        match self.program.ended_within(END) {
            Some(status) if status.success() => {}
            Some(status) => tracing::warn!(%status, "the external trainer ended with an error: read its output"),
            None => tracing::warn!("the external trainer did not end within 30 s and is killed"),
        }
    }
}

/// The program in a process group of its own, which is killed on drop.
struct Program {
    child: Child,
    listener: UnixListener,
    folder: PathBuf,
}

impl Program {
    fn start(name: &AgentName, words: &[String]) -> anyhow::Result<Self> {
        let folder = std::env::temp_dir().join(format!("dyad-{}-{name}", std::process::id()));
        let socket = folder.join("socket");
        let listener = listen(&folder, &socket).with_context(|| format!("listening at {}", socket.display()))?;
        let child = command(words, &socket).and_then(|mut command| command.spawn());
        let child = child.map_err(|error| {
            let _ = std::fs::remove_dir_all(&folder);
            let problem = format!("agent {name}: its train.command {words:?} cannot be started: {error}");
            Usage::new(problem).hint("name a program of this machine, with its path if it is not in PATH")
        })?;
        tracing::info!(pid = child.id(), command = ?words, "started the external trainer");
        Ok(Self {
            child,
            listener,
            folder,
        })
    }

    fn connect(&self, name: &AgentName) -> anyhow::Result<UnixStream> {
        let begun = Instant::now();
        while begun.elapsed() < START {
            match self.listener.accept() {
                Ok((stream, _)) => {
                    stream.set_nonblocking(false)?;
                    // Removed now, because a process that is killed later would leave the folder
                    // behind.
                    std::fs::remove_dir_all(&self.folder)?;
                    return Ok(stream);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error).context("waiting for the external trainer"),
            }
            if let Some(status) = self.ended() {
                let problem = format!(
                    "agent {name}: its external trainer ended with {status} before it connected: read its output, then correct train.command"
                );
                return Err(Usage::new(problem).into());
            }
            std::thread::sleep(LOOK);
        }
        bail!("the external trainer of agent {name} did not connect to the socket in {SOCKET} within {START:?}")
    }

    fn ended_within(&self, limit: Duration) -> Option<ExitStatus> {
        let begun = Instant::now();
        loop {
            match self.ended() {
                None if begun.elapsed() < limit => std::thread::sleep(LOOK),
                ended => return ended,
            }
        }
    }

    /// Returns the program's status, if it has ended. Does not reap the program: its id must stay
    /// reserved until the drop kills its group.
    fn ended(&self) -> Option<ExitStatus> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let ended = waitid(WaitId::Pid(self.group()?), options).ok()??;
        let code = ended.exit_status().map(|code| code << 8);
        Some(ExitStatus::from_raw(code.or(ended.terminating_signal())?))
    }

    fn group(&self) -> Option<Pid> {
        Pid::from_raw(self.child.id().cast_signed())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if let Some(group) = self.group() {
            // torchrun ends its ranks, which are in sessions of their own.
            let _ = kill_process_group(group, Signal::TERM);
            let _ = self.ended_within(TERM);
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Listens in a folder that only this user can enter.
fn listen(folder: &Path, socket: &Path) -> io::Result<UnixListener> {
    match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        other => other?,
    }
    std::fs::DirBuilder::new().mode(0o700).create(folder)?;
    let listener = UnixListener::bind(socket)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

fn command(words: &[String], socket: &Path) -> io::Result<Command> {
    let (program, arguments) = words.split_first().ok_or_else(|| io::Error::other("name a program"))?;
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env(SOCKET, socket)
        .env("PYTHONUNBUFFERED", "1")
        .stdin(Stdio::null())
        // The agent's standard output may be a result that another program reads.
        .stdout(io::stderr().as_fd().try_clone_to_owned()?)
        // An interrupt from the keyboard must reach the agent only.
        .process_group(0);
    for (name, _) in std::env::vars_os().filter(|(name, _)| is_secret(name)) {
        command.env_remove(name);
    }
    Ok(command)
}
