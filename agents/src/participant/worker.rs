//! One copy of a program: started, asked one question at a time, ended when it misbehaves, started
//! again.

use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use rollout::workflow::program::Program;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::sync::{Mutex, mpsc, oneshot};
use tokio::time::Instant;

use super::answer::{LONGEST, answer_to, with_id};
use crate::base::log_scope;
use crate::base::secret::is_secret;

/// The longest line of its standard error that is logged, in bytes, and the number of lines that
/// are logged of one start.
const LONGEST_NOTE: u64 = 2 << 10;
const NOTES: usize = 200;
/// Pause before a program is started again, doubled up to a bound; reset when it has answered.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// A question as a line, and the channel for the answer's line. An error describes what went wrong.
pub(super) struct ProgramJob {
    pub(super) line: String,
    pub(super) reply: oneshot::Sender<Result<String, String>>,
}

pub(super) struct Worker {
    file: String,
    program: Program,
    running: Option<Running>,
    next_id: u64,
    pause: Duration,
    /// The program is not started again before this time.
    rested: Option<Instant>,
}

struct Running {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Worker {
    /// A copy of `program`, in the file `file`.
    pub(super) fn new(file: String, program: Program) -> Self {
        Self {
            file,
            program,
            running: None,
            next_id: 0,
            pause: FIRST_PAUSE,
            rested: None,
        }
    }

    /// Answers jobs until every sender is gone.
    pub(super) async fn run(mut self, jobs: Arc<Mutex<mpsc::Receiver<ProgramJob>>>) {
        loop {
            let job = jobs.lock().await.recv().await;
            let Some(ProgramJob { line, reply }) = job else { break };
            // Its conversation is over.
            if reply.is_closed() {
                continue;
            }
            let answer = self.answer(&line).await;
            if let Err(reason) = &answer {
                self.stop(reason).await;
            }
            // A dropped receiver means that its conversation is over.
            let _ = reply.send(answer);
        }
        self.stop("the run is over").await;
    }

    async fn answer(&mut self, line: &str) -> Result<String, String> {
        if self.running.is_none() {
            if let Some(rested) = self.rested {
                tokio::time::sleep_until(rested).await;
            }
            self.running = Some(start(&self.file, &self.program)?);
        }
        let (file, limit) = (&self.file, self.program.timeout);
        let Some(running) = self.running.as_mut() else {
            return Err(format!("{file} is not running"));
        };
        self.next_id += 1;
        let answer = tokio::time::timeout(limit.0, running.exchange(line, self.next_id)).await;
        let answer = answer.unwrap_or_else(|_| Err(format!("no answer within {limit}")));
        if answer.is_ok() {
            self.pause = FIRST_PAUSE;
        }
        answer.map_err(|reason| format!("{file}: {reason}"))
    }

    /// Ends the program, if it runs: its further output would belong to a question that is over.
    async fn stop(&mut self, reason: &str) {
        let Some(mut running) = self.running.take() else {
            self.rest();
            return;
        };
        // Kill the group before the wait. Until the wait the id cannot be reused, and children of a
        // program that ended by itself still run.
        if let Some(group) = running
            .child
            .id()
            .and_then(|id| rustix::process::Pid::from_raw(id.cast_signed()))
        {
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
        let ended = running.child.wait().await.ok();
        tracing::warn!(program = self.file, reason, status = ?ended, "ended a program");
        self.rest();
    }

    fn rest(&mut self) {
        self.rested = Some(Instant::now() + self.pause);
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
    }
}

impl Running {
    /// Sends a question and reads its answer, which must have its id.
    async fn exchange(&mut self, line: &str, id: u64) -> Result<String, String> {
        let question = format!("{}\n", with_id(line, id)?);
        let lost = |error: std::io::Error| format!("it has ended: {error}");
        self.stdin.write_all(question.as_bytes()).await.map_err(lost)?;
        self.stdin.flush().await.map_err(lost)?;
        let mut answer = Vec::new();
        let read = (&mut self.stdout).take(LONGEST).read_until(b'\n', &mut answer).await;
        match read.map_err(lost)? {
            0 => return Err("it has ended without an answer".into()),
            _ if !answer.ends_with(b"\n") => return Err(format!("its answer is cut, or longer than {LONGEST} bytes")),
            _ => {}
        }
        answer_to(id, answer)
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
        .map_err(|error| format!("{file} cannot be started: {error}"))?;
    let (Some(stdin), Some(stdout), Some(stderr)) = (child.stdin.take(), child.stdout.take(), child.stderr.take())
    else {
        return Err(format!("{file} was started without its pipes"));
    };
    log_scope::spawn(note(file.to_owned(), stderr));
    tracing::info!(program = file, pid = child.id(), "started a program");
    Ok(Running {
        child,
        stdin,
        stdout: BufReader::new(stdout),
    })
}

/// Logs a program's standard error, and keeps reading once the limit is reached.
async fn note(file: String, stderr: ChildStderr) {
    let mut stderr = BufReader::new(stderr);
    let mut notes = 0;
    loop {
        let mut line = Vec::new();
        match (&mut stderr).take(LONGEST_NOTE).read_until(b'\n', &mut line).await {
            Ok(0) | Err(_) => return,
            Ok(_) if notes < NOTES => {
                notes += 1;
                tracing::warn!(program = file, "{}", String::from_utf8_lossy(&line).trim_end());
            }
            Ok(_) => {}
        }
    }
}
