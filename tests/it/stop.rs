//! Orders to stop, and the supervisor's reaction to processes that end too early.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tests::program::{Program, Running, json_lines, wait_for};
use tests::trace::audit;

const PATIENCE: Duration = Duration::from_secs(240);
const STEPS: u64 = 30;

fn up() -> (Program, Running, PathBuf) {
    let program = Program::new(env!("CARGO_BIN_EXE_dyad-under-test"));
    let (steps, runs) = (STEPS.to_string(), program.runs());
    let runs = runs.to_str().unwrap();
    let running = program.start(&["up", "configs/signal.toml", "--steps", &steps, "--folder", runs]);
    let run = program.run_folder();
    trained(&run, "b", 5);
    (program, running, run)
}

/// Waits until an agent has trained a number of batches.
fn trained(run: &Path, agent: &str, steps: usize) {
    let metrics = run.join("metrics").join(format!("{agent}.jsonl"));
    wait_for(&format!("agent {agent} to train {steps} batches"), PATIENCE, || {
        let lines = json_lines(&metrics);
        let done = lines.iter().filter(|line| line["kind"] == "train").count();
        (done >= steps).then_some(())
    });
}

/// Returns the process ids of a label in the order of their starts, from the supervisor's log.
fn pids(log: &str, label: &str) -> Vec<u32> {
    log.lines()
        .filter_map(|line| line.split_once('|'))
        .filter(|(who, _)| who.trim() == label)
        .filter_map(|(_, said)| said.trim().strip_prefix("started, process ")?.parse().ok())
        .collect()
}

fn signal(name: &str, pid: u32) {
    let sent = Command::new("kill")
        .args([&format!("-{name}"), &pid.to_string()])
        .status();
    assert!(sent.unwrap().success(), "kill -{name} {pid}");
}

/// Returns the process of this name that works in this folder.
fn server(name: &str, folder: &Path) -> Option<u32> {
    let folder = folder.canonicalize().ok()?;
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    processes
        .filter(|entry| std::fs::read_to_string(entry.path().join("comm")).is_ok_and(|comm| comm.trim() == name))
        .filter(|entry| std::fs::read_link(entry.path().join("cwd")).is_ok_and(|cwd| cwd.starts_with(&folder)))
        .find_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn complete(run: &Path) {
    for agent in ["a", "b"] {
        let audit = audit(run, agent);
        assert_eq!(
            (audit.twice, audit.missing, audit.counts.reserved),
            (0, 0, 0),
            "agent {agent}: {audit:?}"
        );
        assert!(audit.counts.trained >= STEPS * 256, "agent {agent}: {audit:?}");
    }
}

/// Both processes end well although the run is not done.
#[test]
fn processes_that_somebody_told_to_stop_are_started_again() {
    let (_program, mut running, run) = up();
    signal("TERM", pids(&running.log(), "b")[0]);
    trained(&run, "b", 10);
    signal("TERM", pids(&running.log(), "coordinator")[0]);
    running.finish(PATIENCE);
    let log = running.log();
    for label in ["b", "coordinator"] {
        assert_eq!(pids(&log, label).len(), 2, "{label}:\n{log}");
    }
    let coordinator = json_lines(&run.join("logs/coordinator.jsonl"));
    assert!(
        coordinator.iter().any(|line| line["message"] == "released"),
        "it gave its groups up"
    );
    complete(&run);
}

#[test]
fn private_servers_that_die_come_back_with_their_data() {
    let (_program, mut running, run) = up();
    let servers = run.join("servers");
    signal(
        "KILL",
        server("redis-server", &servers.join("redis")).expect("a private Redis"),
    );
    signal(
        "KILL",
        server("beam.smp", &servers.join("rabbitmq")).expect("a private RabbitMQ"),
    );
    running.finish(PATIENCE);
    let log = running.log();
    for name in ["Redis", "RabbitMQ"] {
        assert!(log.contains(&format!("private {name} died")), "{log}");
    }
    complete(&run);
}

/// The other processes would wait for it for ever.
#[test]
fn a_process_that_refuses_its_configuration_ends_all_with_its_exit_code() {
    let (_program, mut running, run) = up();
    std::fs::write(run.join("config.toml"), "[run]\nname = 7\n").unwrap();
    signal("KILL", pids(&running.log(), "b")[0]);
    let status = running.end(PATIENCE).expect("it ends");
    let log = running.log();
    assert_eq!(status.code(), Some(2), "{log}");
    assert!(
        log.contains("b ended with exit status: 2") && log.contains("hint:"),
        "{log}"
    );
}
