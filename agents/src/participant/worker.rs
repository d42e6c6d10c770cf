//! One copy of a program: started, asked one question at a time, ended when it misbehaves, started
//! again.

use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rollout::workflow::program::Program;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::sync::{Mutex, mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tracing::{Instrument, Span};

use super::answer::{LONGEST, answer_to, with_id};
use super::health::Health;
use crate::base::log_scope;
use crate::base::retry::Pauses;
use crate::base::secret::is_secret;

/// The longest line of its standard error that is logged, in bytes, and the number of lines that
/// are logged of one start.
const LONGEST_NOTE: u64 = 2 << 10;
const NOTES: usize = 200;
/// The characters of its standard error's last line that a failure quotes, and how long that line
/// is waited for.
const QUOTED: usize = 200;
const LAST_LINE: Duration = Duration::from_secs(1);
/// Pause before a program is started again, doubled up to a bound; reset when it has answered.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// A question as a line, and the channel for the answer's line. An error describes what went wrong.
pub(super) struct ProgramJob {
    pub(super) line: String,
    pub(super) reply: oneshot::Sender<Result<String, String>>,
    /// The scope of its turn, for the lines that are logged about it.
    pub(super) span: Span,
}

impl ProgramJob {
    /// A question of the current scope.
    pub(super) fn new(line: String, reply: oneshot::Sender<Result<String, String>>) -> Self {
        let span = Span::current();
        Self { line, reply, span }
    }
}

pub(super) struct Worker {
    file: String,
    program: Program,
    health: Health,
    /// The scope of what the program writes, which belongs to no turn.
    scope: Span,
    running: Option<Running>,
    next_id: u64,
    pauses: Pauses,
    /// The program is not started again before this time.
    rested: Option<Instant>,
}

struct Running {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    /// Returns the last line of its standard error.
    notes: JoinHandle<String>,
}

/// The reason why a question has no answer.
enum Unanswered {
    /// The program ended, or wrote no answer.
    ByProgram(String),
    /// This machine could not ask.
    ByMachine(String),
}

impl Worker {
    /// A copy of `program`, in the file `file`. `health` is shared by all copies.
    pub(super) fn new(file: String, program: Program, health: Health) -> Self {
        Self {
            file,
            program,
            health,
            scope: Span::current(),
            running: None,
            next_id: 0,
            pauses: Pauses::between(FIRST_PAUSE, LONGEST_PAUSE),
            rested: None,
        }
    }

    /// Answers jobs until every sender is gone.
    pub(super) async fn run(mut self, jobs: Arc<Mutex<mpsc::Receiver<ProgramJob>>>) {
        loop {
            let job = jobs.lock().await.recv().await;
            let Some(ProgramJob { line, reply, span }) = job else {
                break;
            };
            // Its conversation is over.
            if reply.is_closed() {
                continue;
            }
            let answer = async {
                match self.answer(&line).await {
                    Ok(answer) => Ok(answer),
                    Err(why) => Err(self.give_up(why).await),
                }
            };
            let answer = answer.instrument(span).await;
            // A dropped receiver means that its conversation is over.
            let _ = reply.send(answer);
        }
        if let Some(mut running) = self.running.take() {
            let ended = running.kill().await;
            tracing::debug!(
                program = self.file,
                status = ended.map(tracing::field::display),
                "ended a program: the run is over"
            );
        }
    }

    async fn answer(&mut self, line: &str) -> Result<String, Unanswered> {
        if self.running.is_none() {
            if let Some(rested) = self.rested {
                tokio::time::sleep_until(rested).await;
            }
            let started = self.scope.in_scope(|| start(&self.file, &self.program));
            self.running = Some(started.map_err(Unanswered::ByMachine)?);
        }
        let limit = self.program.timeout;
        let Some(running) = self.running.as_mut() else {
            return Err(Unanswered::ByMachine("it is not running".into()));
        };
        self.next_id += 1;
        let answer = tokio::time::timeout(limit.0, running.exchange(line, self.next_id)).await;
        let answer = answer.unwrap_or_else(|_| Err(Unanswered::ByProgram(format!("no answer within {limit}"))))?;
        self.pauses.reset();
        self.health.answered();
        Ok(answer)
    }

    /// Ends the program after a question without an answer, and returns the reason for its asker.
    async fn give_up(&mut self, why: Unanswered) -> String {
        let (Unanswered::ByProgram(reason) | Unanswered::ByMachine(reason)) = &why;
        let last = self.stop(reason).await;
        let last = last.map_or_else(String::new, |line| format!("; it wrote last: {line}"));
        let reason = format!("{}: {reason}{last}", self.file);
        if matches!(why, Unanswered::ByProgram(_)) {
            self.health.failed(&reason);
        }
        reason
    }

    /// Ends the program, if it runs: its further output would belong to a question that is over.
    /// Returns the last line of its standard error.
    async fn stop(&mut self, reason: &str) -> Option<String> {
        let Some(mut running) = self.running.take() else {
            self.rest();
            return None;
        };
        let ended = running.kill().await;
        tracing::warn!(
            program = self.file,
            reason,
            status = ended.map(tracing::field::display),
            "ended a program"
        );
        self.rest();
        // A child of its own may still hold the pipe.
        let last = tokio::time::timeout(LAST_LINE, running.notes).await.ok()?.ok()?;
        (!last.is_empty()).then_some(last)
    }

    fn rest(&mut self) {
        self.rested = Some(Instant::now() + self.pauses.next_pause());
    }
}

impl Running {
    /// Kills the program and its children, and waits for its end.
    async fn kill(&mut self) -> Option<ExitStatus> {
        // Kill the group before the wait. Until the wait the id cannot be reused, and children of a
        // program that ended by itself still run.
        let group = self
            .child
            .id()
            .and_then(|id| rustix::process::Pid::from_raw(id.cast_signed()));
        if let Some(group) = group {
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
        self.child.wait().await.ok()
    }

    /// Sends a question and reads its answer, which must have its id.
    async fn exchange(&mut self, line: &str, id: u64) -> Result<String, Unanswered> {
        let question = format!("{}\n", with_id(line, id).map_err(Unanswered::ByMachine)?);
        let lost = |error: std::io::Error| Unanswered::ByProgram(format!("it has ended: {error}"));
        self.stdin.write_all(question.as_bytes()).await.map_err(lost)?;
        self.stdin.flush().await.map_err(lost)?;
        let mut answer = Vec::new();
        let read = (&mut self.stdout).take(LONGEST).read_until(b'\n', &mut answer).await;
        match read.map_err(lost)? {
            0 => return Err(Unanswered::ByProgram("it has ended without an answer".into())),
            _ if !answer.ends_with(b"\n") => {
                let reason = format!("its answer is cut, or longer than {LONGEST} bytes");
                return Err(Unanswered::ByProgram(reason));
            }
            _ => {}
        }
        answer_to(id, answer).map_err(Unanswered::ByProgram)
    }
}

/// Returns the program that runs a file; none runs an executable.
pub(super) fn interpreter(file: &str) -> Option<&'static str> {
    match file.rsplit_once('.')?.1 {
        "py" => Some("python3"),
        "sh" => Some("sh"),
        _ => None,
    }
}

/// Starts a program under its memory limit, in its own process group.
fn start(file: &str, program: &Program) -> Result<Running, String> {
    let interpreter = interpreter(file);
    let path = match (interpreter, file.contains('/')) {
        // A bare name would be looked up among the system's programs.
        (None, false) => format!("./{file}"),
        _ => file.to_owned(),
    };
    let limit = (program.memory.0 / 1024).to_string();
    let mut command = Command::new("sh");
    command
        .args(["-c", "ulimit -v \"$1\" && shift && exec \"$@\"", "sh", &limit])
        .args(interpreter)
        .arg(path)
        .env("PYTHONUNBUFFERED", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true);
    for (name, _) in std::env::vars_os().filter(|(name, _)| is_secret(name)) {
        command.env_remove(name);
    }
    let mut child = command
        .spawn()
        .map_err(|error| format!("it cannot be started: {error}"))?;
    let (Some(stdin), Some(stdout), Some(stderr)) = (child.stdin.take(), child.stdout.take(), child.stderr.take())
    else {
        return Err("it was started without its pipes".into());
    };
    let notes = log_scope::spawn(note(file.to_owned(), stderr));
    tracing::info!(program = file, pid = child.id(), "started a program");
    Ok(Running {
        child,
        stdin,
        stdout: BufReader::new(stdout),
        notes,
    })
}

/// Logs a program's standard error, and keeps reading once the limit is reached. Returns the last
/// line that is not empty.
async fn note(file: String, stderr: ChildStderr) -> String {
    let mut stderr = BufReader::new(stderr);
    let (mut notes, mut last) = (0, String::new());
    loop {
        let mut bytes = Vec::new();
        let read = (&mut stderr).take(LONGEST_NOTE).read_until(b'\n', &mut bytes).await;
        if !matches!(read, Ok(1..)) {
            return last;
        }
        let line = String::from_utf8_lossy(&bytes);
        let line = line.trim();
        if notes < NOTES {
            notes += 1;
            tracing::warn!(program = file, "{line}");
        }
        if !line.is_empty() {
            last = line.chars().take(QUOTED).collect();
        }
    }
}
