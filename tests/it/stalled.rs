//! A run in which nothing can be learned stops and says why.

use std::time::Duration;

use tests::kit;
use tests::program::{Program, json_lines, metrics, wait_until};
use tests::small::Small;
use tests::trace::batches;

use crate::program;

const PATIENCE: Duration = Duration::from_secs(240);

/// A grader that cannot be started: Python refuses it.
const BROKEN: &str = "this is no Python\n";
/// A grader that has no grade for any answer.
const HOPELESS: &str = r#"
import json, sys
for line in sys.stdin:
    print(json.dumps({"id": json.loads(line)["id"], "error": "no model"}), flush=True)
"#;

/// A grader that answers.
const CORRECTED: &str = r#"
import json, sys
for line in sys.stdin:
    ask = json.loads(line)
    print(json.dumps({"id": ask["id"], "reward": len(ask["text"]) % 2}), flush=True)
"#;

/// A grader for which all answers are the same.
const SAME: &str = r#"
import json, sys
for line in sys.stdin:
    print(json.dumps({"id": json.loads(line)["id"], "reward": 1}), flush=True)
"#;

/// A grader for which all answers but its first ones are the same.
const SAME_LATER: &str = r#"
import json, sys
for number, line in enumerate(sys.stdin):
    reward = number % 2 if number < 4 else 1
    print(json.dumps({"id": json.loads(line)["id"], "reward": reward}), flush=True)
"#;

/// Returns a run that ends after `empty` groups without a sample, with a grader of this source.
fn graded_by(program: &Program, source: &str, empty: i64) -> Small {
    let grader = program.file("grader.py", source);
    kit::solo()
        .without("agents.verifier")
        .set("run.mode", "async")
        .set("run.train_steps", 1000)
        .set("run.empty_groups", empty)
        .set("tasks.source", "generator:arithmetic")
        .set("graders.correct.kind", format!("process:{grader}"))
        .set("graders.correct.missing", "drop")
        .set("workflow.retries", 1)
}

#[test]
fn a_run_of_one_process_ends_with_75_when_all_groups_die() {
    let program = program();
    let config = graded_by(&program, HOPELESS, 3).save(&program);
    let runs = program.runs();
    let said = program.fail(75, &["run", &config, "--folder", runs.to_str().unwrap()]);
    assert!(
        said.contains("nothing can be learned: 3 groups in succession"),
        "{said}"
    );
    let status = program.succeed(&["status", "--run", program.run_folder().to_str().unwrap()]);
    assert!(status.contains("STOPPED, because nothing can be learned"), "{status}");
}

/// Rounds close their groups together, and asynchronous groups one by one.
#[test]
fn a_run_in_rounds_ends_with_75_when_all_groups_die() {
    let program = program();
    let config = graded_by(&program, HOPELESS, 3).set("run.mode", "sync").save(&program);
    let said = refused(&program, &config);
    assert!(said.contains("nothing can be learned: "), "{said}");
    assert!(said.contains("groups in succession gave no sample"), "{said}");
}

/// Returns what a run printed that ended because nothing could be learned.
fn refused(program: &Program, config: &str) -> String {
    let runs = program.runs();
    program.fail(75, &["run", config, "--folder", runs.to_str().unwrap()])
}

#[test]
fn a_run_ends_with_75_when_all_rewards_are_equal_from_its_beginning() {
    for mode in ["async", "sync"] {
        let program = program();
        let config = graded_by(&program, SAME, 3)
            .set("run.mode", mode)
            .set("defaults.agent.train.batch_groups", 1)
            .save(&program);
        let said = refused(&program, &config);
        assert!(said.contains("nothing can be learned: the first 2"), "{mode}: {said}");
        assert!(
            said.contains("groups had equal rewards for each agent"),
            "{mode}: {said}"
        );
        assert!(batches(&program.run_folder(), "solver") > 20, "{mode}");
        let status = program.succeed(&["status", "--run", program.run_folder().to_str().unwrap()]);
        assert!(status.contains("STOPPED, because nothing can be learned"), "{status}");
    }
}

/// A policy that has learned all there is goes on to its last step, in the same process and in the
/// next one.
#[test]
fn equal_rewards_after_others_stop_no_run() {
    let program = program();
    let config = graded_by(&program, SAME_LATER, 3)
        .set("run.train_steps", 24)
        .set("defaults.agent.train.batch_groups", 1)
        .save(&program);
    program.launch("run", &config, &[]).finish(PATIENCE);
    let folder = program.run_folder();
    let idle = |line: &&serde_json::Value| line["collapse/idle"] == 1;
    assert!(metrics(&folder, "train").iter().filter(idle).count() > 20);
    program.succeed(&["run", "--resume", folder.to_str().unwrap(), "--steps", "48"]);
    assert_eq!(batches(&folder, "solver"), 48);
}

/// The verifier of random weights never rejects, so its role is the last one of a conversation.
#[test]
fn a_run_ends_with_75_when_its_lead_never_gets_a_sample() {
    for mode in ["async", "sync"] {
        let program = program();
        let config = kit::configuration("solve-verify")
            .set("run.mode", mode)
            .set("run.train_steps", 1000)
            .set("run.empty_groups", 8)
            .set("run.lead", "third")
            .set("workflow.roles.retry", "third")
            .set("agents.third", toml::Table::new())
            .save(&program);
        let said = refused(&program, &config);
        let wanted = "nothing can be learned: agent third: 8 groups in succession gave it no sample";
        assert!(said.contains(wanted), "{mode}: {said}");
    }
}

/// One answer a task has nothing to compare with, except over the batch.
#[test]
fn rewards_that_differ_within_a_batch_are_no_stall() {
    let program = program();
    let config = graded_by(&program, CORRECTED, 3)
        .set("run.mode", "sync")
        .set("run.train_steps", 4)
        .set("workflow.group_size", 1)
        .set("defaults.agent.train.advantage", "reinforce_plus_plus")
        .save(&program);
    program.launch("run", &config, &[]).finish(PATIENCE);
    let lines = metrics(&program.run_folder(), "train");
    assert!(lines.iter().any(|line| line["collapse/idle"] == 0), "{lines:?}");
}

#[test]
fn a_run_whose_grader_cannot_start_ends_with_75() {
    let program = program();
    let config = graded_by(&program, BROKEN, 0).save(&program);
    let runs = program.runs();
    let said = program.fail(75, &["run", &config, "--folder", runs.to_str().unwrap()]);
    assert!(said.contains("grader.py: it has ended"), "{said}");
    assert!(said.contains("and never answered"), "{said}");
    assert!(said.contains("it wrote last: SyntaxError: invalid syntax"), "{said}");
    let log = json_lines(&program.run_folder().join("logs/coordinator.jsonl"));
    let ended = log.iter().find(|line| line["message"] == "ended a program").unwrap();
    for field in ["conversation_id", "role", "turn"] {
        assert!(!ended[field].is_null(), "{field}: {ended}");
    }
}

#[test]
fn a_run_of_several_processes_pauses_when_all_groups_die() {
    let program = program();
    let config = graded_by(&program, HOPELESS, 3).save(&program);
    let _run = program.launch("up", &config, &[]);
    let folder = program.run_folder();
    wait_until("a pause with its reason", PATIENCE, || {
        let output = program.output(&["status", "--run", folder.to_str().unwrap()]);
        let status = String::from_utf8_lossy(&output.stdout).into_owned();
        status.contains("because nothing can be learned: 3 groups in succession")
    });
}

#[test]
fn a_run_of_several_processes_goes_on_with_its_corrected_grader() {
    let program = program();
    let config = graded_by(&program, BROKEN, 0).save(&program);
    let _run = program.launch("up", &config, &[]);
    let folder = program.run_folder();
    let run = folder.to_str().unwrap();
    wait_until("a pause with its reason", PATIENCE, || {
        let output = program.output(&["status", "--run", run]);
        String::from_utf8_lossy(&output.stdout).contains("and never answered")
    });
    let _ = program.file("grader.py", CORRECTED);
    program.succeed(&["resume", "--run", run]);
    wait_until("a trained batch", PATIENCE, || batches(&folder, "solver") > 0);
}
