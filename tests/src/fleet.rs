//! The processes of one run. A supervisor starts each again when it dies; tests kill, halt and
//! continue them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::program::{Program, wait_until};

/// The id of every run; each test has its own folder.
pub const RUN: &str = "fleet";

/// The processes of one run.
pub struct Fleet {
    members: BTreeMap<String, Member>,
    run: PathBuf,
}

struct Member {
    shared: Arc<Shared>,
    supervisor: Option<std::thread::JoinHandle<()>>,
}

struct Shared {
    label: String,
    child: Mutex<Option<Child>>,
    log: PathBuf,
    starts: AtomicU64,
    /// Exit codes in order; `None` after a signal.
    codes: Mutex<Vec<Option<i32>>>,
    ended: AtomicBool,
    stopping: AtomicBool,
    held: AtomicBool,
    /// Start again although the present process ends well.
    again: AtomicBool,
}

impl Fleet {
    /// Starts agents a and b and `coordinators` coordinators with the configuration at `config`.
    /// Its `run.folder` is [`Program::runs`].
    #[must_use]
    pub fn start(program: &Program, config: &Path, coordinators: usize) -> Self {
        Self::start_with(program, config, coordinators, &[])
    }

    /// Starts a fleet like [`Fleet::start`]; `environment` has (label, variable, value).
    #[must_use]
    pub fn start_with(
        program: &Program,
        config: &Path,
        coordinators: usize,
        environment: &[(&str, &str, &str)],
    ) -> Self {
        let config = config.to_str().unwrap();
        let which = ["--config", config, "--run", RUN];
        let agents = ["a", "b"].map(|name| (name.to_owned(), [&["agent", "--name", name][..], &which[..]].concat()));
        let coordinators = (1..=coordinators).map(|n| (format!("c{n}"), [&["coordinator"][..], &which[..]].concat()));
        let mut members = BTreeMap::new();
        for (label, args) in agents.into_iter().chain(coordinators) {
            let args: Vec<String> = args.into_iter().map(str::to_owned).collect();
            let own = environment.iter().filter(|(name, ..)| *name == label);
            let own: Vec<(String, String)> = own.map(|(_, k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
            let command = move |program: &Program| {
                let args: Vec<&str> = args.iter().map(String::as_str).collect();
                // With XFSZ ignored, a write beyond the file limit is an error that the process
                // reports; without, the signal kills it.
                let mut command = Command::new("/bin/sh");
                command.args(["-c", "trap '' XFSZ; exec \"$0\" \"$@\""]);
                let dyad = program.command(&args);
                command.arg(dyad.get_program()).args(dyad.get_args());
                command
                    .current_dir(Program::root())
                    .env_remove("DYAD_BROKER")
                    .env_remove("DYAD_STATE");
                command.envs(own.clone());
                command
            };
            let log = program.home().join(format!("{label}.log"));
            members.insert(label.clone(), Member::start(label, command(program), log));
        }
        Self {
            members,
            run: program.runs().join(RUN),
        }
    }

    /// Returns the run's folder.
    #[must_use]
    pub fn run(&self) -> &Path {
        &self.run
    }

    #[must_use]
    pub fn labels(&self) -> Vec<String> {
        self.members.keys().cloned().collect()
    }

    /// Sends a signal (`KILL`, `STOP` or `CONT`). Returns true if a process received it.
    pub fn signal(&self, label: &str, signal: &str) -> bool {
        let shared = &self.members[label].shared;
        let child = shared.child();
        let Some(pid) = child.as_ref().map(Child::id) else {
            return false;
        };
        // Under the lock the process is not reaped, so its id cannot belong to a new process.
        let sent = Command::new("kill").args(["-s", signal, &pid.to_string()]).status();
        sent.unwrap().success()
    }

    /// Sends SIGTERM as an operator does and waits until the process has been started again.
    pub fn restart(&self, label: &str, patience: Duration) {
        let (shared, starts) = (&self.members[label].shared, self.starts(label));
        shared.again.store(true, Ordering::SeqCst);
        assert!(self.signal(label, "TERM"), "{label} runs");
        wait_until(&format!("{label} to stop and start"), patience, || {
            self.starts(label) != starts
        });
    }

    /// Waits until coordinator c1 reports that the run is running.
    pub fn wait_until_running(&self, patience: Duration) {
        self.wait_for_log("c1", "the run is running", patience);
    }

    /// Waits until a process has logged `text`.
    pub fn wait_for_log(&self, label: &str, text: &str, patience: Duration) {
        wait_until(&format!("{label} to log {text:?}"), patience, || {
            self.log(label).contains(text)
        });
    }

    /// Kills a process and keeps it stopped until [`Fleet::release`].
    pub fn hold(&self, label: &str) {
        let shared = &self.members[label].shared;
        shared.held.store(true, Ordering::SeqCst);
        self.signal(label, "KILL");
        while shared.child().is_some() {
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Lets a held process start again.
    pub fn release(&self, label: &str) {
        self.members[label].shared.held.store(false, Ordering::SeqCst);
    }

    /// Returns the process id while the process runs.
    #[must_use]
    pub fn pid(&self, label: &str) -> Option<u32> {
        self.members[label].shared.child().as_ref().map(Child::id)
    }

    /// Returns how often a process was started.
    #[must_use]
    pub fn starts(&self, label: &str) -> u64 {
        self.members[label].shared.starts.load(Ordering::SeqCst)
    }

    /// Returns the exit codes of a process so far; `None` after a signal.
    #[must_use]
    pub fn codes(&self, label: &str) -> Vec<Option<i32>> {
        self.members[label].shared.codes().clone()
    }

    /// Asserts that every process was started `times` times.
    pub fn all_started(&self, times: u64) {
        for label in self.members.keys() {
            assert_eq!(self.starts(label), times, "{label}:\n{}", self.log(label));
        }
    }

    /// Returns true if every process has ended well.
    #[must_use]
    pub fn ended(&self) -> bool {
        self.members
            .values()
            .all(|member| member.shared.ended.load(Ordering::SeqCst))
    }

    /// Waits until every process has ended well.
    pub fn finish(&self, patience: Duration) {
        let until = Instant::now() + patience;
        while !self.ended() {
            assert!(Instant::now() < until, "not ended after {patience:?}:\n{}", self.logs());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Returns the last 40 log lines of every process.
    #[must_use]
    pub fn logs(&self) -> String {
        let logs = self.members.values().map(|member| {
            let Shared { label, log, .. } = &*member.shared;
            format!("--- {label}\n{}\n", tail(log, 40))
        });
        logs.collect()
    }

    /// Returns the whole log of a process, over all its starts.
    #[must_use]
    pub fn log(&self, label: &str) -> String {
        std::fs::read_to_string(&self.members[label].shared.log).unwrap_or_default()
    }
}

/// Returns the last `count` lines of a file; empty if there is no file.
pub(crate) fn tail(file: &Path, count: usize) -> String {
    let text = std::fs::read(file).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

impl Member {
    fn start(label: String, mut command: Command, log: PathBuf) -> Self {
        let shared = Arc::new(Shared {
            label,
            child: Mutex::new(None),
            log,
            starts: AtomicU64::new(0),
            codes: Mutex::default(),
            ended: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            held: AtomicBool::new(false),
            again: AtomicBool::new(false),
        });
        let file = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(&shared.log)
            .unwrap();
        command
            .stdin(Stdio::null())
            .stdout(file.try_clone().unwrap())
            .stderr(file);
        let watched = shared.clone();
        let supervisor = std::thread::spawn(move || watched.keep(&mut command));
        Self {
            shared,
            supervisor: Some(supervisor),
        }
    }
}

impl Shared {
    fn child(&self) -> std::sync::MutexGuard<'_, Option<Child>> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn codes(&self) -> std::sync::MutexGuard<'_, Vec<Option<i32>>> {
        self.codes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(&self, command: &mut Command) {
        loop {
            {
                // The lock spans the check and the start, so that a later stop sees the child.
                let mut child = self.child();
                if self.stopping.load(Ordering::SeqCst) {
                    return;
                }
                if !self.held.load(Ordering::SeqCst) {
                    *child = Some(command.spawn().unwrap());
                    self.starts.fetch_add(1, Ordering::SeqCst);
                }
            }
            if self.ends_well() && !self.again.swap(false, Ordering::SeqCst) {
                self.ended.store(true, Ordering::SeqCst);
                return;
            }
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// Waits for the child's end, if there is a child.
    fn ends_well(&self) -> bool {
        loop {
            let mut child = self.child();
            let Some(running) = child.as_mut() else { return false };
            if let Some(status) = running.try_wait().unwrap() {
                *child = None;
                self.codes().push(status.code());
                return status.success();
            }
            drop(child);
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        for member in self.members.values() {
            member.shared.stopping.store(true, Ordering::SeqCst);
        }
        for label in self.labels() {
            self.signal(&label, "KILL");
        }
        for member in self.members.values_mut() {
            if let Some(supervisor) = member.supervisor.take() {
                let _ = supervisor.join();
            }
        }
    }
}
