//! A run in which nothing can be learned stops and says why.

use std::time::Duration;

use tests::kit;
use tests::program::{Program, json_lines, wait_until};
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
