//! The program as a child process, and its run folder.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use agents::cli::light;
use agents::run_folder::metrics::figures::is_documented;
use broker::local::shared;

/// `dyad` with its own run folder.
pub struct Program {
    binary: PathBuf,
    /// The program for the commands that compute nothing, as users have it. It starts sooner.
    light: Option<PathBuf>,
    home: Arc<tempfile::TempDir>,
    /// The virtual host of its runs on the RabbitMQ that tests share, taken at the first start of a
    /// run. `None` leaves the choice to the configuration.
    host: Arc<OnceLock<Option<String>>>,
}

/// A child process that is ended with the test, with all its children.
pub struct Running {
    child: Child,
    log: PathBuf,
}

impl Program {
    /// Makes a program from `env!("CARGO_BIN_EXE_dyad-under-test")`. `DYAD_TEST_BINARY` replaces
    /// it, for example with a copy for a long run or with a release build. If nothing replaces it,
    /// the program without libtorch next to it serves the commands that need none.
    #[must_use]
    pub fn new(binary: &str) -> Self {
        match std::env::var("DYAD_TEST_BINARY") {
            Ok(other) => Self::exactly(&other),
            Err(_) => Self {
                light: Some(Path::new(binary).with_file_name("dyad-light-under-test")),
                ..Self::exactly(binary)
            },
        }
    }

    /// Makes a program from exactly this binary; `DYAD_TEST_BINARY` does not replace it.
    #[must_use]
    pub fn exactly(binary: &str) -> Self {
        Self {
            binary: binary.into(),
            light: None,
            home: tempfile::tempdir().unwrap().into(),
            host: Arc::default(),
        }
    }

    /// Keeps the broker of the configuration. With `local:` a run then starts its own RabbitMQ and
    /// ends it.
    #[must_use]
    pub fn with_configured_broker(self) -> Self {
        Self {
            host: Arc::new(None.into()),
            ..self
        }
    }

    /// Returns another program over the same run folder.
    #[must_use]
    pub fn with_binary(&self, binary: &str) -> Self {
        Self {
            binary: binary.into(),
            light: None,
            home: Arc::clone(&self.home),
            host: Arc::clone(&self.host),
        }
    }

    /// Returns the folder that holds run folders.
    #[must_use]
    pub fn runs(&self) -> PathBuf {
        self.home.path().join("runs")
    }

    /// Returns the folder that holds the run folders, logs and configurations of this program.
    #[must_use]
    pub fn home(&self) -> &Path {
        self.home.path()
    }

    /// Writes a file into [`Program::home`] and returns its path.
    #[must_use]
    pub fn file(&self, name: &str, text: &str) -> String {
        let path = self.home().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }

    /// Returns the root of the repository.
    #[must_use]
    pub fn root() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
    }

    /// Returns the command, run in the repository's root. `dyad up` begins its runs on the RabbitMQ
    /// that tests share, if there is one.
    #[must_use]
    pub fn command(&self, args: &[&str]) -> Command {
        let light = self.light.as_ref().filter(|_| {
            let first = args.first().map(OsStr::new);
            first.is_some() && light::serves(first)
        });
        let mut command = Command::new(light.unwrap_or(&self.binary));
        command
            .args(args)
            .current_dir(Self::root())
            .env_remove("DYAD_BROKER")
            .env_remove("DYAD_STATE");
        // A resumed run keeps its broker.
        let begins = args.first() == Some(&"up") && !args.contains(&"--resume");
        if begins && let Some(url) = self.host.get_or_init(shared::take) {
            command.env("DYAD_BROKER", url);
        }
        command
    }

    /// Runs to the end.
    #[must_use]
    pub fn output(&self, args: &[&str]) -> Output {
        self.command(args).stdin(Stdio::null()).output().unwrap()
    }

    /// Runs to the end and must succeed. Returns standard output and standard error.
    pub fn succeed(&self, args: &[&str]) -> String {
        let output = self.output(args);
        let text = format!(
            "{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        assert!(
            output.status.success(),
            "dyad {args:?} ended with {}:\n{text}",
            output.status
        );
        text
    }

    /// Runs to the end, which must have this exit code. Returns standard error.
    pub fn fail(&self, code: i32, args: &[&str]) -> String {
        fail(code, &mut self.command(args))
    }

    /// Runs `COMMAND CONFIG MORE` to a good end, in [`Program::runs`]. Returns the run folder.
    pub fn play(&self, command: &str, config: &str, more: &[&str]) -> PathBuf {
        let runs = self.runs();
        self.succeed(&[&[command, config, "--folder", runs.to_str().unwrap()], more].concat());
        self.run_folder()
    }

    /// Starts `COMMAND CONFIG`, with its folder in [`Program::runs`].
    #[must_use]
    pub fn launch(&self, command: &str, config: &str, environment: &[(&str, &str)]) -> Running {
        let runs = self.runs();
        self.start_with(&[command, config, "--folder", runs.to_str().unwrap()], environment)
    }

    /// Starts a child that prints to a file.
    #[must_use]
    pub fn start(&self, args: &[&str]) -> Running {
        self.start_with(args, &[])
    }

    /// Starts a child like [`Program::start`], with more environment.
    #[must_use]
    pub fn start_with(&self, args: &[&str], environment: &[(&str, &str)]) -> Running {
        let log = self.home.path().join(format!("{}.log", args[0]));
        let file = std::fs::File::create(&log).unwrap();
        let child = self
            .command(args)
            .envs(environment.iter().copied())
            .stdin(Stdio::null())
            .stdout(file.try_clone().unwrap())
            .stderr(file)
            .spawn()
            .unwrap();
        Running { child, log }
    }

    /// Returns the only run folder, once it is there.
    #[must_use]
    pub fn run_folder(&self) -> PathBuf {
        wait_for("a run folder", Duration::from_secs(30), || {
            let mut entries = std::fs::read_dir(self.runs()).ok()?.flatten().map(|entry| entry.path());
            entries.find(|path| path.join("run.json").exists())
        })
    }

    /// Waits until an agent of a run in one process answers over HTTP, and returns its URL.
    #[must_use]
    pub fn front(&self, agent: &str) -> String {
        let logs = self.run_folder().join("logs");
        wait_for("an agent that listens", Duration::from_secs(120), || {
            let is_wanted =
                |line: &serde_json::Value| line["message"] == "the agent answers over HTTP" && line["agent"] == agent;
            let line = json_folder(&logs).into_iter().find(is_wanted)?;
            Some(format!("http://{}/v1", line["address"].as_str().unwrap()))
        })
    }
}

impl Running {
    #[must_use]
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Waits for a good end.
    pub fn finish(&mut self, patience: Duration) {
        if let Err(problem) = self.ends_well(patience) {
            panic!("{problem}:\n{}", self.log());
        }
    }

    /// Waits for the end and returns an error if it is not a good one.
    pub fn ends_well(&mut self, patience: Duration) -> Result<(), String> {
        match self.end(patience) {
            Some(status) if status.success() => Ok(()),
            Some(status) => Err(format!("ended with {status}")),
            None => Err(format!("not done after {patience:?}")),
        }
    }

    /// Waits for any end.
    pub fn end(&mut self, patience: Duration) -> Option<ExitStatus> {
        let until = Instant::now() + patience;
        while Instant::now() < until {
            let status = self.child.try_wait().unwrap();
            if status.is_some() {
                return status;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        None
    }

    /// Kills it with SIGKILL, as a failing machine does, once `seen` returns true. It must still
    /// run then.
    pub fn kill_when(&mut self, what: &str, patience: Duration, mut seen: impl FnMut() -> bool) {
        wait_for(what, patience, || (seen() || !self.running()).then_some(()));
        assert!(self.running(), "it ended before it was killed:\n{}", self.log());
        self.child.kill().unwrap();
        self.end(patience).expect("a killed process ends");
    }

    /// Returns true if it still runs.
    pub fn running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the supervisor's lines as (label, text).
    #[must_use]
    pub fn supervised(&self) -> Vec<(String, String)> {
        let log = self.log();
        let lines = log.lines().filter_map(|line| line.split_once('|'));
        lines
            .map(|(label, text)| (label.trim().to_owned(), text.trim().to_owned()))
            .collect()
    }

    /// Returns the process ids of a label in the order of their starts, from the supervisor's log.
    #[must_use]
    pub fn pids(&self, label: &str) -> Vec<u32> {
        let lines = self.supervised().into_iter().filter(|(own, _)| own == label);
        lines
            .filter_map(|(_, text)| text.strip_prefix("started, process ")?.parse().ok())
            .collect()
    }
}

/// A killed process that stays dead: its supervisor, which starts it again, is halted until drop.
pub struct Killed(u32);

impl Killed {
    /// Kills the newest process of a label with SIGKILL.
    #[must_use]
    pub fn of(supervisor: &Running, label: &str) -> Self {
        let newest = supervisor.pids(label).pop().expect("a process of this label");
        signal("STOP", supervisor.pid());
        let killed = Self(supervisor.pid());
        signal("KILL", newest);
        killed
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = Command::new("kill").args(["-s", "CONT", &self.0.to_string()]).status();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.running() {
            // SIGTERM first, so that it ends its own children; SIGKILL after five seconds.
            let _ = Command::new("kill").arg(self.pid().to_string()).status();
            for _ in 0..100 {
                if !self.running() {
                    return;
                }
                std::thread::sleep(Duration::from_millis(50));
            }
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Runs a command to its end, which must have this exit code. Returns standard error.
pub fn fail(code: i32, command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{command:?}: {errors}");
    errors
}

/// Sends a signal (`KILL` or `TERM`) to a process, which must be there.
pub fn signal(name: &str, pid: u32) {
    let sent = Command::new("kill").args(["-s", name, &pid.to_string()]).status();
    assert!(sent.unwrap().success(), "kill -s {name} {pid}");
}

/// Waits until `is_done` returns true, or fails.
pub fn wait_until(what: &str, patience: Duration, mut is_done: impl FnMut() -> bool) {
    wait_for(what, patience, || is_done().then_some(()));
}

/// Calls `look` until it returns a value, or fails.
pub fn wait_for<T>(what: &str, patience: Duration, mut look: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + patience;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < until, "waited {patience:?} for {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Returns the whole lines of a JSON-lines file.
#[must_use]
pub fn json_lines(path: &Path) -> Vec<serde_json::Value> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect()
}

/// Returns the lines of all JSON-lines files in a folder, which must be there.
#[must_use]
pub fn json_folder(folder: &Path) -> Vec<serde_json::Value> {
    let files = std::fs::read_dir(folder).unwrap();
    files.flat_map(|file| json_lines(&file.unwrap().path())).collect()
}

/// Returns all metrics lines of one kind, of all processes of a run.
#[must_use]
pub fn metrics(run: &Path, kind: &str) -> Vec<serde_json::Value> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(run.join("metrics"))
        .map(|dir| dir.flatten().map(|e| e.path()).collect())
        .unwrap_or_default();
    files.sort();
    let lines = files.iter().flat_map(|file| json_lines(file));
    let lines: Vec<_> = lines.filter(|line| line["kind"] == kind).collect();
    for name in lines.iter().flat_map(|line| line.as_object().unwrap().keys()) {
        assert!(is_documented(kind, name), "METRICS.md has no figure {name} of {kind}");
    }
    lines
}
