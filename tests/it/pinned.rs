//! Evaluations of asynchronous runs: each uses one version of every agent's weights, and training
//! continues afterwards.

use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use tests::chaos::{Shape, World};
use tests::program::{json_folder, metrics, signal, wait_until};
use tests::small::Small;
use tests::trace::{audit, checkpoint, train};

use crate::engines::apart;
use crate::evals::{json, run};
use crate::program;

const PATIENCE: Duration = Duration::from_secs(240);
const STEPS: u64 = 16;

/// Evaluates at every fourth step, with suites, so that evaluations take longer than a few steps of
/// training would.
pub(crate) fn evaluated(config: Small) -> Small {
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

/// Returns the lines of all evaluations, in the order of their steps.
pub(crate) fn evaluations(run: &Path) -> Vec<Value> {
    let mut lines = json_folder(&run.join("evals"));
    lines.sort_by_key(|line| (line["step"].as_u64(), line["last"].as_bool()));
    lines
}

/// Returns the steps of evaluations while a run trains, and of those after its last step.
fn steps(lines: &[Value]) -> (Vec<u64>, Vec<u64>) {
    let step = |line: &Value| line["step"].as_u64().unwrap();
    let (last, regular): (Vec<&Value>, Vec<&Value>) = lines.iter().partition(|line| line["last"] == true);
    let steps = |lines: Vec<&Value>| lines.into_iter().map(step).collect();
    (steps(regular), steps(last))
}

/// Returns the number of versions of an agent's weights in an evaluation.
fn versions(line: &Value, agent: &str) -> usize {
    line["versions"][agent].as_array().unwrap().len()
}

/// Asserts that all batches were trained, each sample once.
fn trained_to_the_end(run: &Path) {
    assert_eq!(train(run, "a").len() as u64, STEPS);
    for agent in ["a", "b"] {
        let found = audit(run, agent);
        assert_eq!(
            (found.twice, found.missing, found.counts.reserved),
            (0, 0, 0),
            "{agent}: {found:?}"
        );
    }
}

/// Asserts that every evaluation uses one version of each agent's weights, and the lead's version
/// has the evaluation's step.
fn all_pinned(run: &Path) {
    let lines = evaluations(run);
    assert!(lines.len() >= 3, "{:?}", steps(&lines));
    assert_eq!(lines[lines.len() - 1]["last"], true);
    for line in &lines {
        let weights = (&line["step"], &line["pinned"], &line["versions"]);
        assert_eq!(line["pinned"], true, "{weights:?}");
        assert_eq!((versions(line, "a"), versions(line, "b")), (1, 1), "{weights:?}");
        assert_eq!(line["versions"]["a"][0]["step"], line["step"], "{weights:?}");
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
        let folder = run(&program, &evaluated(config));
        all_pinned(&folder);
        // At any speed of training: before the first batch and at every fourth step, never later.
        assert_eq!(steps(&evaluations(&folder)), (vec![0, 4, 8, 12], vec![STEPS]));
        trained_to_the_end(&folder);
    }
}

/// With `eval.hold = false` agents train during the evaluation. The number of mixed versions
/// depends on their speed.
#[test]
fn an_evaluation_without_holding_reports_its_mixed_versions() {
    let program = program();
    let config = evaluated(Small::scripted())
        .set("eval.hold", false)
        .set("eval.suites.more.samples", 200);
    let folder = run(&program, &config);
    let lines = evaluations(&folder);
    for line in &lines {
        let single = versions(line, "a") == 1 && versions(line, "b") == 1;
        assert_eq!(line["pinned"], single, "{}", line["versions"]);
    }
    trained_to_the_end(&folder);
}

/// Returns the step of an agent's last checkpoint.
fn last_checkpoint(run: &Path, agent: &str) -> Value {
    json(&checkpoint(run, agent).join("manifest.json"))["step"].clone()
}

/// A batch of b takes many times as long as one of a: when a has made its last step, b has full
/// batches left.
#[test]
fn the_last_evaluation_is_of_the_weights_that_the_run_ends_with() {
    let program = program();
    let config = evaluated(Small::new().set("run.mode", "async")).set("agents.b.train.epochs", 40);
    let folder = run(&program, &config);
    let lines = evaluations(&folder);
    let last = &lines[lines.len() - 1];
    assert_eq!(
        (&last["last"], &last["pinned"]),
        (&Value::from(true), &Value::from(true))
    );
    for agent in ["a", "b"] {
        let weights = &last["versions"][agent];
        assert_eq!(versions(last, agent), 1, "{agent}: {weights}");
        assert_eq!(
            weights[0]["step"],
            last_checkpoint(&folder, agent),
            "{agent}: {weights}"
        );
    }
    trained_to_the_end(&folder);
}

/// Over real servers, with agents that hold and without.
#[test]
fn two_coordinators_make_each_evaluation_once() {
    const TASKS: u64 = 40;
    let changes: [fn(Small) -> Small; 2] = [evaluated, |small| evaluated(small).set("eval.hold", false)];
    for (change, held) in changes.into_iter().zip([true, false]) {
        let shape = Shape {
            change,
            ..Shape::default()
        };
        let mut world = World::shaped(crate::DYAD, shape);
        world.publish(TASKS);
        world.wait_closed(TASKS);
        world.end_well();
        let (regular, last) = steps(&evaluations(world.fleet.run()));
        assert_eq!(last.len(), 1, "{regular:?}");
        // One evaluation is due at every fourth step. Without holding it is made at that step or
        // later, or not at all.
        let mut due: Vec<u64> = regular.iter().map(|step| step / 4).collect();
        due.dedup();
        assert_eq!(due.len(), regular.len(), "{regular:?}");
        // Eight batches: the last evaluation is at their end, and there may be one just before it.
        assert!(!held || [&[0, 4][..], &[0, 4, 8]].contains(&&*regular), "{regular:?}");
    }
}

/// Over real servers and engine processes. The coordinator that asked agents to hold dies: they do
/// not hold for ever, and the next coordinator evaluates.
#[test]
#[ignore = "slow: `make test-long`; its neighbours show the same promise"]
fn a_coordinator_killed_while_agents_hold_blocks_no_agent() {
    let program = program();
    let config = evaluated(Small::new().set("run.mode", "async"));
    let config = apart(config).save(&program);
    let mut running = program.launch("up", &config, &[("RUST_LOG", "info,agents=debug")]);
    let run = program.run_folder();
    wait_until("agents to hold", PATIENCE, || {
        running.log().contains("holding: no batch")
    });
    signal("KILL", running.pids("coordinator")[0]);
    running.finish(PATIENCE);
    let log = running.log();
    assert_eq!(running.pids("coordinator").len(), 2, "{log}");
    all_pinned(&run);
    trained_to_the_end(&run);
    program.succeed(&["audit", "--run", run.to_str().unwrap()]);
}
