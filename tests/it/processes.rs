//! Separate processes over a private RabbitMQ and Redis.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tests::program::{Program, Running, signal, wait_until};
use tests::trace::{audit, batches, digests, rewards};

use crate::program;

const PATIENCE: Duration = Duration::from_secs(240);
const STEPS: u64 = 40;

const CONFIG: &str = "configs/signal.toml";

fn up(program: &Program) -> Running {
    let (steps, runs) = (STEPS.to_string(), program.runs());
    let folder = ["--folder", runs.to_str().unwrap()];
    program.start(&[&["up", CONFIG, "--seed", "5", "--steps", &steps][..], &folder].concat())
}

/// Plays the same run in one process and without faults.
fn undisturbed() -> (Program, PathBuf) {
    let program = program();
    let run = program.play("run", CONFIG, &["--seed", "5", "--steps", &STEPS.to_string()]);
    (program, run)
}

/// Asserts that either agent trained every sample once and has the weights of the undisturbed run,
/// bit for bit.
fn nothing_happened(run: &Path) {
    let (_keep, clean) = undisturbed();
    for agent in ["a", "b"] {
        let audit = audit(run, agent);
        let counts = (audit.counts.trained, audit.twice, audit.missing);
        assert_eq!(counts, (STEPS * 256, 0, 0), "agent {agent}: {audit:?}");
    }
    assert_eq!(digests(run), digests(&clean));
}

#[test]
fn three_processes_and_one_process_train_the_same() {
    let program = program();
    let mut running = up(&program);
    running.finish(PATIENCE);
    let log = running.log();
    let all: BTreeSet<u32> = ["a", "b", "coordinator"]
        .iter()
        .flat_map(|label| running.pids(label))
        .collect();
    assert_eq!(all.len(), 3, "three processes:\n{log}");
    let run = program.run_folder();
    for agent in ["a", "b"] {
        let (first, last) = rewards(&run, agent, 5);
        assert!(last > first + 0.1, "{agent}: {first} -> {last}");
    }
    nothing_happened(&run);
}

#[test]
fn a_killed_agent_restarts_and_no_sample_is_lost_or_repeated() {
    let program = program();
    let mut running = up(&program);
    let run = program.run_folder();
    wait_until("agent b to train 12 batches", PATIENCE, || batches(&run, "b") >= 12);
    signal("KILL", *running.pids("b").last().unwrap());
    running.finish(PATIENCE);
    assert_eq!(running.pids("b").len(), 2, "started again:\n{}", running.log());
    nothing_happened(&run);
}

#[test]
fn a_killed_coordinator_restarts_and_no_sample_is_lost() {
    let program = program();
    let mut running = up(&program);
    let run = program.run_folder();
    wait_until("agent a to train 12 batches", PATIENCE, || batches(&run, "a") >= 12);
    signal("KILL", *running.pids("coordinator").last().unwrap());
    running.finish(PATIENCE);
    assert_eq!(
        running.pids("coordinator").len(),
        2,
        "started again:\n{}",
        running.log()
    );
    nothing_happened(&run);
}
