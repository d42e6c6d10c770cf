//! Partner programs that two recipes need during their run.

use std::fs::File;
use std::io::{BufRead, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use anyhow::{Context, bail};
use configs::{EngineKind, RunConfig};

use crate::run_folder::RunFolder;

/// Environment variable with the Python to use instead of `python3`.
const PYTHON: &str = "DYAD_PYTHON";
/// Time within which a server must print its address.
const PATIENCE: Duration = Duration::from_secs(30);

/// A program that runs next to a recipe.
#[derive(Debug)]
pub(super) struct Partner {
    python: String,
    program: PathBuf,
    argument: String,
    /// True if the program is asked over the run's broker, so that it starts after the run. Else it
    /// is a server that must start before the run.
    over_broker: bool,
}

/// A running partner, which is killed when this value is dropped.
#[derive(Debug)]
pub(super) struct Running(Child);

impl Running {
    /// Returns the exit status if the program has ended.
    pub(super) fn ended(&mut self) -> anyhow::Result<Option<ExitStatus>> {
        self.0.try_wait().context("checking the program next to the run")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both calls do nothing if the program has already ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns the partner of the recipe in `file`, or why it cannot start here. Returns `None` if the
/// recipe has no partner of ours.
pub(super) fn of(file: &Path, config: &RunConfig) -> Option<Result<Partner, String>> {
    let python = std::env::var(PYTHON).unwrap_or_else(|_| "python3".into());
    find(file, config, &python)
}

fn find(file: &Path, config: &RunConfig, python: &str) -> Option<Result<Partner, String>> {
    let (program, argument, module, over_broker) = match (config.run.name.as_str(), config.remotes().first()) {
        ("image-turns", None) => ("vision_server.py", port(config)?, "zlib", false),
        ("remote", Some(name)) => ("remote_workflow.py", name.to_string(), "pika", true),
        _ => return None,
    };
    let program = file.parent().unwrap_or(Path::new(".")).join("programs").join(program);
    if !program.is_file() {
        return Some(Err(format!("{} does not exist", program.display())));
    }
    let partner = Partner {
        python: python.to_owned(),
        program,
        argument,
        over_broker,
    };
    Some(has(python, module).map(|()| partner))
}

/// Returns the port of the only server that the run asks.
fn port(config: &RunConfig) -> Option<String> {
    let mut engines = config.agents.values().map(|agent| &agent.engine);
    let asked = engines.find(|engine| engine.kind == EngineKind::Openai)?;
    let (_, port) = asked.urls.first()?.trim_end_matches('/').rsplit_once(':')?;
    Some(port.to_owned())
}

fn has(python: &str, module: &str) -> Result<(), String> {
    let mut asked = Command::new(python);
    asked.args(["-c", &format!("import {module}")]);
    let asked = asked.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    match asked.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => Err(format!(
            "{python} has no module {module}: pip install {module}, or set {PYTHON} to a Python that has it"
        )),
        Err(error) => Err(format!(
            "{python} cannot be started ({error}): set {PYTHON} to a Python"
        )),
    }
}

impl Partner {
    /// The program's path, for messages.
    pub(super) fn program(&self) -> &Path {
        &self.program
    }

    /// Starts a server before its run; its output goes to `log`. Returns `None` if the partner
    /// waits for the run's broker.
    ///
    /// # Errors
    /// Returns an error if the program cannot start, ends, or prints no address in time.
    pub(super) fn start_server(&self, log: &File) -> anyhow::Result<Option<Running>> {
        if self.over_broker {
            return Ok(None);
        }
        self.server(log, PATIENCE).map(Some)
    }

    fn server(&self, log: &File, patience: Duration) -> anyhow::Result<Running> {
        let program = self.program.display();
        let mut command = self.command(log)?;
        let started = command.stdout(Stdio::piped()).spawn();
        let mut running = Running(started.with_context(|| format!("starting {program}"))?);
        let out = running.0.stdout.take().context("a server without a standard output")?;
        let Ok(said) = first_line(out, log.try_clone()?).recv_timeout(patience) else {
            bail!("{program} printed no address within {} s", patience.as_secs_f64());
        };
        if !said.starts_with("http://") {
            bail!(
                "{program} ended at once: is port {} taken? Stop the program that listens there",
                self.argument
            );
        }
        Ok(running)
    }

    /// Starts a partner that is asked over the broker, as soon as the run below `folder` has
    /// written its address; its output goes to `log`. Returns `None` until then.
    pub(super) fn start_with_run(&self, folder: &Path, log: &File) -> anyhow::Result<Option<Running>> {
        if !self.over_broker {
            return Ok(None);
        }
        // The run does not exist yet, or is being created.
        let Ok(run) = RunFolder::find(folder, "latest") else {
            return Ok(None);
        };
        let Some(urls) = run.connection()? else {
            return Ok(None);
        };
        let mut command = self.command(log)?;
        command
            .env("DYAD_BROKER", urls.broker)
            .env("DYAD_RUN", run.run().as_str());
        let started = command.stdout(log.try_clone()?).spawn();
        let running = started.with_context(|| format!("starting {}", self.program.display()))?;
        Ok(Some(Running(running)))
    }

    fn command(&self, log: &File) -> anyhow::Result<Command> {
        let mut command = Command::new(&self.python);
        command.arg(&self.program).arg(&self.argument);
        command.stdin(Stdio::null()).stderr(log.try_clone()?);
        Ok(command)
    }
}

/// Returns the first line that a program prints, or an empty text if there is none. The rest goes
/// to `log`.
fn first_line(out: ChildStdout, mut log: File) -> Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let (mut out, mut said) = (BufReader::new(out), String::new());
        // A line that cannot be read counts as empty.
        let _ = out.read_line(&mut said);
        let _ = sender.send(said);
        let _ = follow(out, &mut log);
    });
    receiver
}

/// Copies the output into a log to which the program's errors are written at the same time.
/// `std::io::copy` would let the kernel splice it without the lock on the shared file position, and
/// the writers would overwrite each other.
fn follow(mut out: impl BufRead, log: &mut File) -> std::io::Result<()> {
    loop {
        let said = out.fill_buf()?;
        if said.is_empty() {
            return Ok(());
        }
        log.write_all(said)?;
        let taken = said.len();
        out.consume(taken);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::ports::HeldPort;
    use std::collections::BTreeSet;
    use std::io::Read as _;

    fn shipped(name: &str) -> (PathBuf, RunConfig) {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs").join(name);
        let config = RunConfig::load(&file).unwrap();
        (file, config)
    }

    /// Returns a log to write to, and its file.
    fn log() -> (File, tempfile::NamedTempFile) {
        let file = tempfile::NamedTempFile::new().unwrap();
        (file.as_file().try_clone().unwrap(), file)
    }

    /// Returns a server that is this shell script.
    fn script(folder: &Path, text: &str) -> Partner {
        let program = folder.join("server.sh");
        std::fs::write(&program, text).unwrap();
        Partner {
            python: "sh".into(),
            program,
            argument: "8200".into(),
            over_broker: false,
        }
    }

    #[test]
    fn silent_server_is_given_up() {
        let folder = tempfile::tempdir().unwrap();
        let silent = script(folder.path(), "exec sleep 60\n");
        let why = silent
            .server(&log().0, Duration::from_millis(200))
            .unwrap_err()
            .to_string();
        assert!(why.contains("server.sh printed no address within 0.2 s"), "{why}");
    }

    #[test]
    fn dead_server_is_noticed_and_its_output_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let dies = script(folder.path(), "echo http://here\necho more\necho why >&2\nexit 3\n");
        let (log, file) = log();
        let mut running = dies.start_server(&log).unwrap().unwrap();
        let status = running.0.wait().unwrap();
        assert_eq!(running.ended().unwrap(), Some(status));
        assert_eq!(status.code(), Some(3));
        let said = std::fs::read_to_string(file.path()).unwrap();
        assert!(said.contains("why"), "{said}");
    }

    #[test]
    fn output_and_errors_written_at_once_are_both_kept() {
        let folder = tempfile::tempdir().unwrap();
        let both = "for line in $(seq 200); do echo out$line; echo err$line >&2; done\n";
        let mut command = script(folder.path(), both).command(&log().0).unwrap();
        let (mut log, file) = log();
        let errors = Stdio::from(log.try_clone().unwrap());
        let mut server = command.stdout(Stdio::piped()).stderr(errors).spawn().unwrap();
        follow(BufReader::new(server.stdout.take().unwrap()), &mut log).unwrap();
        server.wait().unwrap();
        let said = std::fs::read_to_string(file.path()).unwrap();
        let said: BTreeSet<&str> = said.lines().collect();
        let all = (1..=200).flat_map(|line| [format!("out{line}"), format!("err{line}")]);
        let lost: Vec<String> = all.filter(|line| !said.contains(line.as_str())).collect();
        assert!(lost.is_empty(), "{lost:?}");
    }

    #[test]
    fn server_runs_before_its_run_and_ends_after_it() {
        let (file, mut config) = shipped("image-turns.toml");
        let held = HeldPort::new();
        let free = held.address();
        config
            .agents
            .values_mut()
            .for_each(|agent| agent.engine.urls = Vec::new());
        assert!(find(&file, &config, "python3").is_none(), "no server is asked");
        let eye = config
            .agents
            .iter_mut()
            .find(|(name, _)| name.as_str() == "eye")
            .unwrap()
            .1;
        eye.engine.urls = vec![format!("http://{free}")];
        let partner = find(&file, &config, "python3").unwrap().unwrap();
        let (log, file) = log();
        let running = partner.start_server(&log).unwrap().unwrap();
        let mut asked = std::net::TcpStream::connect(free).unwrap();
        asked
            .write_all(b"POST / HTTP/1.1\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}")
            .unwrap();
        let mut said = String::new();
        asked.read_to_string(&mut said).unwrap();
        assert!(said.starts_with("HTTP/1.1 400"), "{said}");
        let taken = partner.start_server(&log).unwrap_err().to_string();
        assert!(taken.contains("is port") && taken.contains("taken"), "{taken}");
        let said = std::fs::read_to_string(file.path()).unwrap();
        assert!(said.contains("OSError"), "its error is in the log: {said}");
        assert!(partner.start_with_run(Path::new("nowhere"), &log).unwrap().is_none());
        drop(running);
        assert!(std::net::TcpStream::connect(free).is_err());
    }

    #[test]
    fn missing_parts_are_named_and_others_have_no_partner() {
        let (file, config) = shipped("remote.toml");
        let why = find(&file, &config, "no-such-python").unwrap().unwrap_err();
        assert!(why.contains("no-such-python") && why.contains(PYTHON), "{why}");
        let why = find(Path::new("elsewhere/remote.toml"), &config, "python3")
            .unwrap()
            .unwrap_err();
        assert!(why.contains("remote_workflow.py does not exist"), "{why}");
        let missing = has("python3", "no_such_module").unwrap_err();
        assert!(missing.contains("pip install no_such_module"), "{missing}");
        for other in ["signal.toml", "image-turns-7b.toml", "doctor-patient-8b.toml"] {
            let (file, config) = shipped(other);
            assert!(find(&file, &config, "python3").is_none(), "{other}");
        }
    }
}
