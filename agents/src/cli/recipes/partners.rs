//! Programs of ours that two recipes need beside their run, started and ended with it.

use std::fs::File;
use std::io::{BufRead, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use anyhow::{Context, bail};
use configs::{EngineKind, RunConfig};

use crate::run_folder::RunFolder;

/// The Python that runs them, where it is not `python3`.
const PYTHON: &str = "DYAD_PYTHON";
/// A server says where it listens within this time.
const PATIENCE: Duration = Duration::from_secs(30);

/// Who stands beside a recipe.
#[derive(Debug)]
pub(super) struct Partner {
    python: String,
    program: PathBuf,
    argument: String,
    /// Asked over the run's own broker, which is there when the run has begun; else a server that must be there before.
    over_broker: bool,
}

/// A partner at work, ended with this.
#[derive(Debug)]
pub(super) struct Running(Child);

impl Running {
    /// How it has ended, if it has.
    pub(super) fn ended(&mut self) -> anyhow::Result<Option<ExitStatus>> {
        self.0.try_wait().context("looking at a program beside the run")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // One that has ended by itself is past both.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The partner of the recipe in `file`, or why it cannot be started here; `None` for a recipe without one that is ours.
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
        return Some(Err(format!("{} is not there", program.display())));
    }
    let partner = Partner {
        python: python.to_owned(),
        program,
        argument,
        over_broker,
    };
    Some(has(python, module).map(|()| partner))
}

/// The port of the only server that the run asks.
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
            "{python} has no module {module}: pip install {module}, or name a Python that has it in {PYTHON}"
        )),
        Err(error) => Err(format!(
            "{python} cannot be started ({error}): name a Python in {PYTHON}"
        )),
    }
}

impl Partner {
    /// What it is, for people.
    pub(super) fn program(&self) -> &Path {
        &self.program
    }

    /// Starts a server, before its run, with what it prints in `log`; `None` of one that waits for the run's broker.
    ///
    /// # Errors
    /// It cannot be started, ends, or does not say in time where it listens.
    pub(super) fn before(&self, log: &File) -> anyhow::Result<Option<Running>> {
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
            bail!(
                "{program} did not say within {} s where it listens",
                patience.as_secs_f64()
            );
        };
        if !said.starts_with("http://") {
            bail!(
                "{program} ended at once: is port {} taken? End what listens there",
                self.argument
            );
        }
        Ok(running)
    }

    /// Starts one that is asked over the broker, once the run below `folder` says where that is, with what it prints in `log`; `None`
    /// until then.
    pub(super) fn beside(&self, folder: &Path, log: &File) -> anyhow::Result<Option<Running>> {
        if !self.over_broker {
            return Ok(None);
        }
        // There is no run yet, or it is being made.
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

/// The first line that a program prints, empty if it ends without one; what follows goes to `log`.
fn first_line(out: ChildStdout, mut log: File) -> Receiver<String> {
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || {
        let (mut out, mut said) = (BufReader::new(out), String::new());
        // One that says nothing readable says nothing.
        let _ = out.read_line(&mut said);
        let _ = tell.send(said);
        let _ = follow(out, &mut log);
    });
    told
}

/// Writes what comes into a log that the program's errors go to at the same time. `std::io::copy` has the kernel splice it, without the
/// lock on the position in the file that writers share: they would write over each other.
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

    /// A log to write to, and where it is.
    fn log() -> (File, tempfile::NamedTempFile) {
        let file = tempfile::NamedTempFile::new().unwrap();
        (file.as_file().try_clone().unwrap(), file)
    }

    /// A server that is this shell script.
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
    fn a_server_that_says_nothing_is_not_waited_for_without_end() {
        let folder = tempfile::tempdir().unwrap();
        let silent = script(folder.path(), "exec sleep 60\n");
        let why = silent
            .server(&log().0, Duration::from_millis(200))
            .unwrap_err()
            .to_string();
        assert!(why.contains("server.sh did not say within 0.2 s"), "{why}");
    }

    #[test]
    fn a_server_that_dies_is_noticed_and_what_it_said_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let dies = script(folder.path(), "echo http://here\necho more\necho why >&2\nexit 3\n");
        let (log, told) = log();
        let mut running = dies.before(&log).unwrap().unwrap();
        let status = running.0.wait().unwrap();
        assert_eq!(running.ended().unwrap(), Some(status));
        assert_eq!(status.code(), Some(3));
        let said = std::fs::read_to_string(told.path()).unwrap();
        assert!(said.contains("why"), "{said}");
    }

    #[test]
    fn nothing_that_a_server_says_on_both_ways_at_once_is_lost() {
        let folder = tempfile::tempdir().unwrap();
        let both = "for line in $(seq 200); do echo out$line; echo err$line >&2; done\n";
        let mut command = script(folder.path(), both).command(&log().0).unwrap();
        let (mut log, told) = log();
        let errors = Stdio::from(log.try_clone().unwrap());
        let mut server = command.stdout(Stdio::piped()).stderr(errors).spawn().unwrap();
        follow(BufReader::new(server.stdout.take().unwrap()), &mut log).unwrap();
        server.wait().unwrap();
        let said = std::fs::read_to_string(told.path()).unwrap();
        let said: BTreeSet<&str> = said.lines().collect();
        let all = (1..=200).flat_map(|line| [format!("out{line}"), format!("err{line}")]);
        let lost: Vec<String> = all.filter(|line| !said.contains(line.as_str())).collect();
        assert!(lost.is_empty(), "{lost:?}");
    }

    #[test]
    fn a_server_is_there_before_its_run_and_gone_after_it() {
        let (file, mut config) = shipped("image-turns.toml");
        let held = HeldPort::new();
        let free = held.address();
        config
            .agents
            .values_mut()
            .for_each(|agent| agent.engine.urls = Vec::new());
        assert!(find(&file, &config, "python3").is_none(), "nobody is asked");
        let eye = config
            .agents
            .iter_mut()
            .find(|(name, _)| name.as_str() == "eye")
            .unwrap()
            .1;
        eye.engine.urls = vec![format!("http://{free}")];
        let partner = find(&file, &config, "python3").unwrap().unwrap();
        let (log, told) = log();
        let running = partner.before(&log).unwrap().unwrap();
        let mut asked = std::net::TcpStream::connect(free).unwrap();
        asked
            .write_all(b"POST / HTTP/1.1\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}")
            .unwrap();
        let mut said = String::new();
        asked.read_to_string(&mut said).unwrap();
        assert!(said.starts_with("HTTP/1.1 400"), "{said}");
        let taken = partner.before(&log).unwrap_err().to_string();
        assert!(taken.contains("is port") && taken.contains("taken"), "{taken}");
        let said = std::fs::read_to_string(told.path()).unwrap();
        assert!(said.contains("OSError"), "what it died of is in the log: {said}");
        assert!(partner.beside(Path::new("nowhere"), &log).unwrap().is_none());
        drop(running);
        assert!(std::net::TcpStream::connect(free).is_err());
    }

    #[test]
    fn what_is_missing_is_told_and_others_have_no_partner() {
        let (file, config) = shipped("remote.toml");
        let why = find(&file, &config, "no-such-python").unwrap().unwrap_err();
        assert!(why.contains("no-such-python") && why.contains(PYTHON), "{why}");
        let why = find(Path::new("elsewhere/remote.toml"), &config, "python3")
            .unwrap()
            .unwrap_err();
        assert!(why.contains("remote_workflow.py is not there"), "{why}");
        let missing = has("python3", "no_such_module_of_anybody").unwrap_err();
        assert!(missing.contains("pip install no_such_module_of_anybody"), "{missing}");
        for other in ["signal.toml", "image-turns-7b.toml", "doctor-patient-8b.toml"] {
            let (file, config) = shipped(other);
            assert!(find(&file, &config, "python3").is_none(), "{other}");
        }
    }
}
