//! Evaluations of asynchronous runs: each is of one version of every agent's weights, and training goes on afterwards.

use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use tests::program::{json_lines, metrics, wait_for};
use tests::small::Small;
use tests::trace::audit;

use crate::engines::{apart, kill, pids, start};
use crate::evals::{program, run};

const PATIENCE: Duration = Duration::from_secs(240);
const STEPS: u64 = 16;

/// Evaluated at every fourth step; with suites, so that evaluations take longer than a few steps of training would.
fn evaluated(config: Small) -> Small {
    config
        .set("run.train_steps", STEPS as i64)
        // On a busy machine a heartbeat may come late.
        .set("run.lease", "10s")
        .set("workflow.group_size", 16)
        .set("defaults.agent.train.max_staleness", 3)
        .set("eval.every", 4)
        .set("eval.source", "generator:signal")
        .set("eval.tasks", 8)
        .set("eval.suites.more.source", "generator:signal")
        .set("eval.suites.more.tasks", 16)
        .set("eval.suites.more.samples", 40)
        .set("eval.suites.more.every", 1)
}

/// The lines of all evaluations, in the order of their steps.
fn evaluations(run: &Path) -> Vec<Value> {
    let files = std::fs::read_dir(run.join("evals")).unwrap();
    let mut lines: Vec<Value> = files.flat_map(|file| json_lines(&file.unwrap().path())).collect();
    lines.sort_by_key(|line| (line["step"].as_u64(), line["last"].as_bool()));
    lines
}

/// How many versions of an agent's weights have a part in an evaluation.
fn versions(line: &Value, agent: &str) -> usize {
    line["versions"][agent].as_array().unwrap().len()
}

/// All batches were trained, each sample once.
fn trained_to_the_end(run: &Path) {
    let lines = metrics(run, "train");
    let lead = lines.iter().filter(|line| line["agent"] == "a");
    assert_eq!(lead.count() as u64, STEPS);
    for agent in ["a", "b"] {
        let found = audit(run, agent);
        assert_eq!(
            (found.twice, found.missing, found.counts.reserved),
            (0, 0, 0),
            "{agent}: {found:?}"
        );
    }
}

/// Every evaluation is of one version of each agent's weights, the lead's at the step that it is told for.
fn all_pinned(run: &Path) {
    let lines = evaluations(run);
    assert!(
        lines.len() >= 3,
        "at 4, 8, 12 and 16, or a little later: {}",
        lines.len()
    );
    assert_eq!(lines[lines.len() - 1]["last"], true);
    for line in &lines {
        let told = (&line["step"], &line["pinned"], &line["versions"]);
        assert_eq!(line["pinned"], true, "{told:?}");
        assert_eq!((versions(line, "a"), versions(line, "b")), (1, 1), "{told:?}");
        assert_eq!(line["versions"]["a"][0]["step"], line["step"], "{told:?}");
    }
    for line in metrics(run, "eval") {
        assert_eq!(line["weights/pinned"], 1);
        assert_eq!(line["weights/step/a"], line["step"]);
        assert!(line["time/held_s"].is_number());
    }
}

#[test]
fn every_evaluation_is_of_one_version_and_training_goes_on() {
    for config in [Small::scripted(), Small::new().set("run.mode", "async")] {
        let program = program();
        let folder = run(&program, &evaluated(config), &[]);
        all_pinned(&folder);
        assert_eq!(evaluations(&folder)[0]["step"], 0, "before the first batch");
        trained_to_the_end(&folder);
    }
}

/// As it was asked for: agents train on while they are evaluated.
#[test]
fn an_evaluation_that_nobody_holds_for_says_what_it_mixes() {
    let program = program();
    let config = evaluated(Small::scripted())
        .set("eval.hold", false)
        .set("eval.suites.more.samples", 200);
    let folder = run(&program, &config, &[]);
    let lines = evaluations(&folder);
    for line in &lines {
        let single = versions(line, "a") == 1 && versions(line, "b") == 1;
        assert_eq!(line["pinned"], single, "{}", line["versions"]);
    }
    assert!(
        lines.iter().any(|line| line["pinned"] == false),
        "thousands of conversations were played while {STEPS} batches were trained"
    );
    trained_to_the_end(&folder);
}

/// Over real servers and engine processes. Whoever asked agents to hold dies: they are not held for ever, and the next coordinator
/// evaluates.
#[test]
fn a_coordinator_that_is_killed_while_agents_hold_holds_nobody_up() {
    let program = program();
    let config = evaluated(Small::new().set("run.mode", "async"));
    let mut running = start(&program, "up", &apart(config));
    let run = program.run_folder();
    wait_for("agents to hold", PATIENCE, || {
        running.log().contains("holding: no batch").then_some(())
    });
    kill(pids(&running.log(), "coordinator")[0]);
    running.finish(PATIENCE);
    let log = running.log();
    assert_eq!(pids(&log, "coordinator").len(), 2, "{log}");
    all_pinned(&run);
    trained_to_the_end(&run);
    program.succeed(&["audit", "--run", run.to_str().unwrap()]);
}
