//! Programs of ours that two recipes need beside their run, started and ended with it.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, ensure};
use configs::{EngineKind, RunConfig};

use crate::folder::RunFolder;

/// The Python that runs them, where it is not `python3`.
const PYTHON: &str = "DYAD_PYTHON";

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
    /// Starts a server, before its run; `None` of one that waits for the run's broker.
    pub(super) fn before(&self) -> anyhow::Result<Option<Running>> {
        if self.over_broker {
            return Ok(None);
        }
        let mut running = Running(self.command().stdout(Stdio::piped()).spawn()?);
        let mut said = String::new();
        let out = running.0.stdout.take().context("a server without a standard output")?;
        BufReader::new(out).read_line(&mut said)?;
        ensure!(
            said.starts_with("http://"),
            "{} ended at once: is port {} taken? End what listens there",
            self.program.display(),
            self.argument
        );
        Ok(Some(running))
    }

    /// Starts one that is asked over the broker, once the run below `folder` says where that is; `None` until then.
    pub(super) fn beside(&self, folder: &Path) -> anyhow::Result<Option<Running>> {
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
        let mut command = self.command();
        command
            .env("DYAD_BROKER", urls.broker)
            .env("DYAD_RUN", run.run().as_str());
        Ok(Some(Running(command.stdout(Stdio::null()).spawn()?)))
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.python);
        command.arg(&self.program).arg(&self.argument);
        command.stdin(Stdio::null()).stderr(Stdio::null());
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};

    fn shipped(name: &str) -> (PathBuf, RunConfig) {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs").join(name);
        let config = RunConfig::load(&file).unwrap();
        (file, config)
    }

    #[test]
    fn a_server_is_there_before_its_run_and_gone_after_it() {
        let (file, mut config) = shipped("image-turns.toml");
        // A port that nobody has.
        let free = std::net::TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap();
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
        let running = partner.before().unwrap().unwrap();
        let mut asked = std::net::TcpStream::connect(free).unwrap();
        asked
            .write_all(b"POST / HTTP/1.1\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}")
            .unwrap();
        let mut said = String::new();
        asked.read_to_string(&mut said).unwrap();
        assert!(said.starts_with("HTTP/1.1 400"), "{said}");
        let taken = partner.before().unwrap_err().to_string();
        assert!(taken.contains("is port") && taken.contains("taken"), "{taken}");
        assert!(partner.beside(Path::new("nowhere")).unwrap().is_none());
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
