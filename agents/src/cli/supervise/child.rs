//! One child process: started, its lines forwarded, and stopped in order.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::process::Stdio;
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context;
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::task::JoinHandle;

use crate::base::signals::SUPERVISED;
use crate::base::startup::{SHOWN, STAGE};
use crate::run_folder::logs::printable;

/// Longest wait for the last lines of a process that has ended.
const READ: Duration = Duration::from_secs(1);
/// Time between two draws of the bar of a process that loads.
const TICK: Duration = Duration::from_secs(1);
/// Time between the stop signal and the kill.
const GRACE: Duration = Duration::from_secs(10);

/// The bars of the processes that load, below all lines. They are hidden unless standard error is a
/// terminal.
static BARS: LazyLock<MultiProgress> =
    LazyLock::new(|| MultiProgress::with_draw_target(ProgressDrawTarget::stderr_with_hz(5)));
/// The same by label.
static LOADING: LazyLock<Mutex<BTreeMap<String, ProgressBar>>> = LazyLock::new(Mutex::default);

/// The prefix of one process's lines.
#[derive(Debug, Clone)]
pub(crate) struct Line {
    pub(crate) label: String,
    pub(crate) index: usize,
    /// Length of the longest label.
    pub(crate) width: usize,
}

impl Line {
    /// Prints one line with its prefix, in colour on a terminal.
    pub(crate) fn say(&self, line: &str) {
        const COLOURS: [u8; 6] = [36, 35, 33, 32, 34, 31];
        let (label, width) = (&self.label, self.width);
        let colour = COLOURS[self.index % COLOURS.len()];
        BARS.suspend(|| {
            let mut err = std::io::stderr().lock();
            // A closed terminal must not end the run.
            let _ = if err.is_terminal() {
                writeln!(err, "\x1b[{colour}m{label:width$} |\x1b[0m {line}")
            } else {
                writeln!(err, "{label:width$} | {line}")
            };
        });
    }

    /// Shows what the process does while it loads; an empty stage ends that.
    fn show_stage(&self, stage: &str) {
        let mut loading = LOADING.lock().unwrap_or_else(PoisonError::into_inner);
        if stage.is_empty() {
            if let Some(bar) = loading.remove(&self.label) {
                bar.finish_and_clear();
                BARS.remove(&bar);
            }
            return;
        }
        let begin = || {
            let bar = BARS.add(ProgressBar::new_spinner());
            if let Ok(style) = ProgressStyle::with_template("starting  {prefix}: {msg} ({elapsed})") {
                bar.set_style(style);
            }
            bar.set_prefix(self.label.clone());
            bar.enable_steady_tick(TICK);
            bar
        };
        let bar = loading.entry(self.label.clone()).or_insert_with(begin);
        bar.set_message(stage.to_owned());
    }

    /// Prints the lines of a stream. Returns a command's last error in one line, without its hint.
    pub(crate) fn forward(&self, stream: impl AsyncRead + Unpin + Send + 'static) -> JoinHandle<Option<String>> {
        let line = self.clone();
        tokio::spawn(async move {
            let (mut error, mut goes_on) = (None::<String>, false);
            let mut lines = BufReader::new(stream).lines();
            while let Ok(Some(text)) = lines.next_line().await {
                if let Some(stage) = text.strip_prefix(STAGE) {
                    line.show_stage(&printable(stage));
                    continue;
                }
                line.say(&printable(&text));
                if let Some(begin) = text.strip_prefix("error: ") {
                    error = Some(begin.to_owned());
                    goes_on = true;
                } else if let Some(error) = error.as_mut().filter(|_| goes_on && text.starts_with("  ")) {
                    error.push(' ');
                    error.push_str(text.trim());
                } else {
                    goes_on = false;
                }
            }
            line.show_stage("");
            error
        })
    }
}

/// A child and the pipe that holds it. When the supervisor ends in any way, the pipe closes and the
/// child stops.
pub(crate) struct Held {
    pub(crate) child: Child,
    /// Its standard output, unless it is forwarded.
    pub(crate) lines: Option<ChildStdout>,
    /// Its lines of standard error.
    errors: Option<JoinHandle<Option<String>>>,
    _leash: Option<ChildStdin>,
}

impl Held {
    /// Returns the error that the process, which has ended, printed last.
    pub(crate) async fn error(&mut self) -> Option<String> {
        // A process that it started may hold the stream open.
        let read = tokio::time::timeout(READ, self.errors.take()?).await;
        read.ok()?.ok()?
    }
}

/// Starts this program with other arguments, and prints its lines. The child is killed when the
/// result is dropped.
pub(crate) fn start(args: &[String], line: &Line) -> anyhow::Result<Held> {
    let program = std::env::current_exe().context("finding this program")?;
    let mut held = spawn(&program, args, line)?;
    if let Some(lines) = held.lines.take() {
        line.forward(lines);
    }
    Ok(held)
}

/// Starts a program like [`start`]. The caller reads its standard output.
pub(crate) fn spawn(program: &Path, args: &[String], line: &Line) -> anyhow::Result<Held> {
    let mut command = Command::new(program);
    if std::io::stderr().is_terminal() {
        command.env(SHOWN, "1");
    }
    let mut child = command
        .args(args)
        // They would outrank the run folder, which has what `dyad up` made of them.
        .env_remove("DYAD_BROKER")
        .env_remove("DYAD_BROKER_PUBLISHER")
        .env_remove("DYAD_BROKER_OPERATOR")
        .env_remove("DYAD_STATE")
        .env_remove("DYAD_CONFIG")
        .stdin(Stdio::piped())
        .env(SUPERVISED, "1")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // A separate process group: the supervisor passes on interruptions from the keyboard
        // itself.
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .with_context(|| format!("starting {}", line.label))?;
    Ok(Held {
        lines: child.stdout.take(),
        errors: child.stderr.take().map(|lines| line.forward(lines)),
        _leash: child.stdin.take(),
        child,
    })
}

/// Stops a process: sends a signal, waits, then kills it.
pub(crate) async fn end(mut held: Held) -> anyhow::Result<()> {
    let child = &mut held.child;
    if let Some(pid) = child.id() {
        // The standard library cannot send SIGTERM; the shell's kill can. The process is our own
        // child.
        let _ = Command::new("kill").arg(pid.to_string()).status().await;
    }
    if tokio::time::timeout(GRACE, child.wait()).await.is_err() {
        child.kill().await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn last_error_of_a_stream_is_kept() {
        let line = Line {
            label: "a".into(),
            index: 0,
            width: 1,
        };
        let lines = b"reading\nerror: not started:\n  a: no port\n  b: no file\nhint: another\n  more\n".as_slice();
        let error = line.forward(lines).await.unwrap();
        assert_eq!(error.as_deref(), Some("not started: a: no port b: no file"));
        assert_eq!(line.forward(b"done\n".as_slice()).await.unwrap(), None);
    }
}
