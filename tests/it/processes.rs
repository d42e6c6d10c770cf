//! Separate processes over a private RabbitMQ and Redis.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use tests::program::{Program, Running, json_lines, wait_for};
use tests::trace::{audit, digests, rewards};

const PATIENCE: Duration = Duration::from_secs(240);
const STEPS: u64 = 40;

fn program() -> Program {
    Program::new(env!("CARGO_BIN_EXE_dyad-under-test"))
}

fn arguments<'a>(command: &'a str, steps: &'a str, runs: &'a str) -> [&'a str; 8] {
    [
        command,
        "configs/signal.toml",
        "--seed",
        "5",
        "--steps",
        steps,
        "--folder",
        runs,
    ]
}

fn up(program: &Program) -> Running {
    program.start(&arguments("up", &STEPS.to_string(), program.runs().to_str().unwrap()))
}

/// Plays the same run in one process and without faults.
fn undisturbed() -> (Program, std::path::PathBuf) {
    let program = program();
    program.succeed(&arguments("run", &STEPS.to_string(), program.runs().to_str().unwrap()));
    let run = program.run_folder();
    (program, run)
}

/// Returns the process ids of a label in the order of their starts, from the supervisor's log.
fn pids(log: &str, label: &str) -> Vec<u32> {
    log.lines()
        .filter_map(|line| line.split_once('|'))
        .filter(|(who, _)| who.trim() == label)
        .filter_map(|(_, said)| said.trim().strip_prefix("started, process ")?.parse().ok())
        .collect()
}

fn steps_trained(run: &Path, agent: &str) -> usize {
    json_lines(&run.join("metrics").join(format!("{agent}.jsonl")))
        .iter()
        .filter(|l| l["kind"] == "train")
        .count()
}

fn kill(pid: u32) {
    assert!(
        Command::new("kill")
            .args(["-9", &pid.to_string()])
            .status()
            .unwrap()
            .success()
    );
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
fn three_processes_train_what_one_process_trains() {
    let program = program();
    let mut running = up(&program);
    running.finish(PATIENCE);
    let log = running.log();
    let all: BTreeSet<u32> = ["a", "b", "coordinator"]
        .iter()
        .flat_map(|label| pids(&log, label))
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
fn a_killed_agent_comes_back_and_nothing_is_lost_or_counted_twice() {
    let program = program();
    let mut running = up(&program);
    let run = program.run_folder();
    wait_for("agent b to train 12 batches", PATIENCE, || {
        (steps_trained(&run, "b") >= 12).then_some(())
    });
    kill(*pids(&running.log(), "b").last().unwrap());
    running.finish(PATIENCE);
    assert_eq!(pids(&running.log(), "b").len(), 2, "started again:\n{}", running.log());
    nothing_happened(&run);
}

#[test]
fn a_killed_coordinator_comes_back_and_nothing_is_lost_or_counted_twice() {
    let program = program();
    let mut running = up(&program);
    let run = program.run_folder();
    wait_for("agent a to train 12 batches", PATIENCE, || {
        (steps_trained(&run, "a") >= 12).then_some(())
    });
    kill(*pids(&running.log(), "coordinator").last().unwrap());
    running.finish(PATIENCE);
    assert_eq!(
        pids(&running.log(), "coordinator").len(),
        2,
        "started again:\n{}",
        running.log()
    );
    nothing_happened(&run);
}
