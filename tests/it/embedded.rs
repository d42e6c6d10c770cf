//! The whole run in one process.

use serde_json::Value;
use tests::program::{Program, metrics};
use tests::trace::{audit, rewards, successes};

fn program() -> Program {
    Program::new(env!("CARGO_BIN_EXE_dyad-under-test"))
}

/// Runs the signal game for a few steps and answers with its metrics.
fn signal(program: &Program, seed: &str, steps: &str) -> Vec<Value> {
    let runs = program.runs();
    let runs = runs.to_str().unwrap();
    program.succeed(&[
        "run",
        "configs/signal.toml",
        "--seed",
        seed,
        "--steps",
        steps,
        "--folder",
        runs,
    ]);
    let folder = program.run_folder();
    let mut lines = metrics(&folder, "train");
    lines.extend(metrics(&folder, "eval"));
    lines.extend(metrics(&folder, "checkpoint"));
    lines.iter_mut().for_each(strip_time);
    lines
}

fn strip_time(line: &mut Value) {
    if let Some(line) = line.as_object_mut() {
        line.retain(|key, _| !key.starts_with("time/"));
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let (first, second) = (program(), program());
    let (one, two) = (signal(&first, "3", "12"), signal(&second, "3", "12"));
    assert!(
        one.iter().any(|line| line["kind"] == "checkpoint"),
        "digests are compared"
    );
    assert!(
        one.iter().filter(|line| line["kind"] == "train").count() == 24,
        "12 steps of two agents"
    );
    assert_eq!(one, two);
    let other = signal(&program(), "4", "12");
    assert_ne!(one, other, "another seed is another run");
}

#[test]
fn every_sample_is_trained_once() {
    let program = program();
    let lines = signal(&program, "0", "6");
    for line in lines.iter().filter(|line| line["kind"] == "train") {
        assert_eq!(line["samples"], 256);
        assert_eq!(
            line["staleness/max"], 0,
            "synchronous rounds train on their own weights"
        );
        let gap = line["mismatch/on_policy_gap"].as_f64().unwrap();
        assert!(gap <= 1e-4, "sampler and trainer agree: {gap}");
    }
    for agent in ["a", "b"] {
        let audit = audit(&program.run_folder(), agent);
        assert_eq!(
            (audit.counts.trained, audit.twice, audit.missing),
            (6 * 256, 0, 0),
            "{audit:?}"
        );
    }
}

/// Two agents that begin at random invent a language: a few dozen rounds are enough to be far from chance (1/16).
#[test]
fn both_agents_get_better() {
    let program = program();
    signal(&program, "1", "60");
    let run = program.run_folder();
    for agent in ["a", "b"] {
        let (first, last) = rewards(&run, agent, 5);
        assert!(first < 0.3 && last > first + 0.25, "{agent}: {first} -> {last}");
    }
    let successes = successes(&run);
    assert!(
        successes.first().unwrap().1 < 0.3 && successes.last().unwrap().1 > 0.5,
        "{successes:?}"
    );
}
