//! `dyad up`: one process per agent and coordinator, supervised, with their lines prefixed.
//!
//! A process that ends with an error is started again after a pause that doubles up to a bound; one that ends well is done.
//! The supervisor holds the private servers of `local:` URLs, and ends everything when it is told to or when all are done.

use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::Context;
use configs::RunConfig;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::watch;

use crate::connect::Servers;
use crate::folder::{Connection, RunFolder};

const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// A process that ran for this long has recovered: its next pause is short again.
const RECOVERED: Duration = Duration::from_secs(60);
/// What a process is given between being asked to end and being killed.
const GRACE: Duration = Duration::from_secs(10);

/// One kind of process of a run.
#[derive(Debug, Clone)]
pub struct Role {
    pub label: String,
    pub args: Vec<String>,
}

/// The processes of a run.
#[must_use]
pub fn roles(config: &RunConfig, folder: &RunFolder) -> Vec<Role> {
    let run = folder.path().display().to_string();
    let agent = |name: &configs::AgentName| Role {
        label: name.to_string(),
        args: ["agent", "--name", name.as_str(), "--run", &run]
            .map(str::to_owned)
            .to_vec(),
    };
    let coordinator = Role {
        label: "coordinator".into(),
        args: ["coordinator", "--run", &run].map(str::to_owned).to_vec(),
    };
    config.participants().iter().map(agent).chain([coordinator]).collect()
}

/// Runs all processes to their end.
pub async fn supervise(config: &RunConfig, folder: &RunFolder) -> anyhow::Result<()> {
    let urls = Connection {
        broker: config.run.broker.clone(),
        state: config.run.state.clone(),
    };
    anyhow::ensure!(
        urls.broker != "memory:" && urls.state != "memory:",
        "processes cannot share memory: set run.broker and run.state to \"local:\" or to servers, or use `dyad run`"
    );
    let (servers, urls) = Servers::start(urls, &folder.path().join("servers")).await?;
    folder.set_connection(&urls)?;
    let (stop, stopping) = watch::channel(false);
    let width = config
        .participants()
        .iter()
        .map(|name| name.as_str().len())
        .max()
        .unwrap_or(0)
        .max("coordinator".len());
    let tasks: Vec<_> = roles(config, folder)
        .into_iter()
        .enumerate()
        .map(|(index, role)| tokio::spawn(keep(role, index, width, stopping.clone())))
        .collect();
    let mut all = std::pin::pin!(futures_util::future::join_all(tasks));
    let outcome = tokio::select! {
        ended = &mut all => ended.into_iter().try_for_each(|end| end.context("a supervising task ended").and_then(|end| end)),
        signal = interrupted() => {
            signal?;
            let _ = stop.send(true);
            all.await;
            Err(anyhow::anyhow!("interrupted; `dyad up --resume {}` goes on", folder.path().display()))
        }
    };
    servers.stop();
    outcome
}

async fn interrupted() -> anyhow::Result<()> {
    let mut term = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    tokio::select! {
        signal = tokio::signal::ctrl_c() => signal?,
        _ = term.recv() => {}
    }
    Ok(())
}

/// Keeps one process running until it ends well or all are to stop.
async fn keep(role: Role, index: usize, width: usize, mut stopping: watch::Receiver<bool>) -> anyhow::Result<()> {
    let mut pause = FIRST_PAUSE;
    loop {
        let started = Instant::now();
        let mut child = start(&role, index, width)?;
        say(
            &role.label,
            index,
            width,
            &format!("started, process {}", child.id().unwrap_or(0)),
        );
        let status = tokio::select! {
            status = child.wait() => status?,
            _ = stopping.changed() => return end(child).await,
        };
        if status.success() {
            say(&role.label, index, width, "done");
            return Ok(());
        }
        // Wrong usage or configuration does not get better by itself.
        if status.code() == Some(2) {
            anyhow::bail!("{} ended with {status}: see its lines above", role.label);
        }
        if started.elapsed() > RECOVERED {
            pause = FIRST_PAUSE;
        }
        say(
            &role.label,
            index,
            width,
            &format!("ended with {status}; starting again in {pause:?}"),
        );
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            _ = stopping.changed() => return Ok(()),
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

fn start(role: &Role, index: usize, width: usize) -> anyhow::Result<Child> {
    let program = std::env::current_exe().context("finding this program")?;
    let mut child = Command::new(program)
        .args(&role.args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .with_context(|| format!("starting {}", role.label))?;
    if let Some(lines) = child.stdout.take() {
        forward(lines, role.label.clone(), index, width);
    }
    if let Some(lines) = child.stderr.take() {
        forward(lines, role.label.clone(), index, width);
    }
    Ok(child)
}

fn forward(stream: impl tokio::io::AsyncRead + Unpin + Send + 'static, label: String, index: usize, width: usize) {
    tokio::spawn(async move {
        let mut lines = BufReader::new(stream).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            say(&label, index, width, &line);
        }
    });
}

/// Ends a process: asks, waits, kills.
async fn end(mut child: Child) -> anyhow::Result<()> {
    if let Some(pid) = child.id() {
        // The standard library cannot send SIGTERM; the shell's kill can, and the process is ours.
        let _ = Command::new("kill").arg(pid.to_string()).status().await;
    }
    if tokio::time::timeout(GRACE, child.wait()).await.is_err() {
        child.kill().await?;
    }
    Ok(())
}

/// One line of one process, prefixed, coloured when a person looks.
fn say(label: &str, index: usize, width: usize, line: &str) {
    use std::io::{IsTerminal, Write};
    const COLOURS: [u8; 6] = [36, 35, 33, 32, 34, 31];
    let mut err = std::io::stderr().lock();
    let colour = COLOURS[index % COLOURS.len()];
    // A closed terminal must not end the run.
    let _ = if err.is_terminal() {
        writeln!(err, "\x1b[{colour}m{label:width$} |\x1b[0m {line}")
    } else {
        writeln!(err, "{label:width$} | {line}")
    };
}
