//! Runs with an external trainer: `trainer/external/fsdp2.py` with two Gloo ranks.

use std::path::PathBuf;
use std::time::Duration;

use tests::program::{Program, Running, signal, wait_until};
use tests::small::Small;
use tests::trace::{audit, batches, checkpoint, rewards};

use crate::program;

const PATIENCE: Duration = Duration::from_secs(600);

/// Returns the Python that has torch, if `make parity` named one.
pub(crate) fn python() -> Option<String> {
    let python = std::env::var("DYAD_PARITY_PYTHON").ok();
    if python.is_none() {
        println!("Python not asked: DYAD_PARITY_PYTHON names none (`make parity` sets it)");
    }
    python
}

/// Returns the command that starts two ranks.
fn command(python: &str) -> Vec<String> {
    let script = Program::root().join("trainer/external/fsdp2.py");
    let words = [
        python,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
    ];
    let words = words.into_iter().map(ToOwned::to_owned);
    words.chain([script.display().to_string()]).collect()
}

fn config(python: &str, of: Small) -> Small {
    of.set("agents.a.train.command", command(python))
}

/// Returns the ids of the ranks that run `script`, without their launcher.
fn ranks(script: &str) -> Vec<u32> {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let is_rank = |pid: &u32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        line.contains(script) && line.contains(" -u ") && !line.contains("torch.distributed.run")
    };
    numbers.filter(is_rank).collect()
}

/// Agent a describes the object, and trains with FSDP2. Agent b names it, and trains with the
/// built-in trainer. Neither can win alone.
#[test]
fn demo_learns_with_an_external_trainer() {
    let Some(python) = python() else { return };
    let program = program();
    let config = config(&python, Small::of("configs/signal.toml"));
    let run = program.play("run", &config.save(&program), &[]);
    let (first, last) = rewards(&run, "a", 5);
    assert!(first < 0.2 && last > 0.9, "{first} to {last}");
    let folder = checkpoint(&run, "a");
    assert!(folder.join("optimizer.safetensors").is_file(), "{}", folder.display());
}

/// A run of `up` with an external trainer, after its first batches.
struct Up {
    program: Program,
    running: Running,
    run: PathBuf,
    /// The path of this run's `fsdp2.py`: other runs on this machine have ranks too.
    script: String,
}

impl Up {
    fn begun(python: &str) -> Self {
        let program = program();
        let folder = program.home().join("links");
        std::fs::create_dir(&folder).unwrap();
        let script = folder.join("ranks.py");
        std::os::unix::fs::symlink(Program::root().join("trainer/external/fsdp2.py"), &script).unwrap();
        let script = script.display().to_string();
        let mut words = command(python);
        *words.last_mut().unwrap() = script.clone();
        let config = Small::new()
            .set("run.train_steps", 12)
            .set("agents.a.train.command", words);
        let (config, runs) = (config.save(&program), program.runs());
        let running = program.start(&["up", &config, "--folder", runs.to_str().unwrap()]);
        let run = program.run_folder();
        wait_until("agent a to train 5 batches", PATIENCE, || batches(&run, "a") >= 5);
        Self {
            program,
            running,
            run,
            script,
        }
    }

    /// Waits for the end. The agent started again once, and lost nothing.
    fn ends_after_a_restart(mut self) {
        self.running.finish(PATIENCE);
        let log = self.running.log();
        assert_eq!(self.running.pids("a").len(), 2, "the agent started again:\n{log}");
        let audit = audit(&self.run, "a");
        assert_eq!((audit.twice, audit.missing), (0, 0), "{audit:?}");
        assert!(ranks(&self.script).is_empty(), "no rank is left");
        drop(self.program);
    }
}

/// A killed rank ends its agent, which comes back with new ranks and loses nothing.
#[test]
fn killed_rank_of_an_external_trainer_ends_its_agent() {
    let Some(python) = python() else { return };
    let up = Up::begun(&python);
    let before = ranks(&up.script);
    assert_eq!(before.len(), 2, "{before:?}");
    signal("KILL", before[1]);
    up.ends_after_a_restart();
}

/// A killed agent leaves no rank behind, not even one that hangs.
#[test]
fn ranks_of_an_external_trainer_end_with_their_agent() {
    let Some(python) = python() else { return };
    let up = Up::begun(&python);
    let before = ranks(&up.script);
    assert_eq!(before.len(), 2, "{before:?}");
    signal("STOP", before[1]);
    signal("KILL", up.running.pids("a")[0]);
    wait_until("both ranks to end", PATIENCE, || {
        before.iter().all(|pid| !ranks(&up.script).contains(pid))
    });
    up.ends_after_a_restart();
}
