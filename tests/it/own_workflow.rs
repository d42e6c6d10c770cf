//! A program with its own workflow and grader in Rust (`configs/programs/own_workflow.rs`): every
//! command knows them.

use std::time::Duration;

use tests::kit::{configuration, essence, played};
use tests::program::{Program, json_lines};
use tests::small::Small;
use tests::trace::audit;

const PATIENCE: Duration = Duration::from_secs(180);
const CONFIG: &str = "configs/programs/own_workflow.toml";

fn own() -> Program {
    Program::exactly(env!("CARGO_BIN_EXE_own-workflow"))
}

fn dyad() -> Program {
    Program::new(env!("CARGO_BIN_EXE_dyad-under-test"))
}

#[test]
fn a_rust_type_of_another_crate_plays_what_the_shipped_one_and_the_program_play() {
    let (own, dyad) = (own(), dyad());
    let home = tempfile::tempdir().unwrap();
    let file = |name: &str, kind: &str| configuration(kind).write(&home.path().join(name));
    let shipped = played(&dyad, &file("shipped.toml", "solve-verify"), &[]);
    let process = file("process.toml", "process:configs/programs/solve_verify.py");
    let process = played(&own, &process, &[]);
    let rust = played(&own, &file("own.toml", "double-check"), &[]);
    assert_eq!((shipped.len(), process.len(), rust.len()), (32, 32, 32));
    for ((shipped, process), rust) in shipped.iter().zip(&process).zip(&rust) {
        assert_eq!(rust["status"], "completed");
        assert_eq!(essence(rust), essence(shipped));
        assert_eq!(essence(rust), essence(process));
    }
    // Its grader also grades for shipped workflows.
    let graded = configuration("solve-verify")
        .set("graders.correct.kind", "last-number")
        .write(&home.path().join("graded.toml"));
    let graded = played(&own, &graded, &[]);
    assert_eq!(graded.len(), shipped.len());
    for (shipped, graded) in shipped.iter().zip(&graded) {
        assert_eq!(essence(shipped), essence(graded));
    }
}

#[test]
fn the_program_that_registers_a_kind_checks_it_and_others_refuse_it_by_name() {
    let (own, dyad) = (own(), dyad());
    own.succeed(&["check", CONFIG, "--quiet"]);
    let refused = dyad.output(&["check", CONFIG]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(2), "{said}");
    for path in ["workflow.kind", "graders.correct.kind"] {
        assert!(said.contains(path), "{path}: {said}");
    }
    let home = tempfile::tempdir().unwrap();
    let wrong = Small::of(CONFIG)
        .set("workflow.params.rounds", 3)
        .write(&home.path().join("wrong.toml"));
    let refused = own.output(&["check", wrong.to_str().unwrap()]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(said.contains("workflow.params.rounds"), "{said}");
    let wrong = Small::of(CONFIG)
        .set("workflow.reward.solver.style", 1.0)
        .write(&home.path().join("wrong.toml"));
    let refused = own.output(&["check", wrong.to_str().unwrap()]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("workflow.reward.solver.style"), "{said}");
    // A misspelled name is answered with the right one.
    let near = Small::of(CONFIG)
        .set("workflow.kind", "double-chek")
        .write(&home.path().join("near.toml"));
    let refused = own.output(&["check", near.to_str().unwrap()]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("did you mean \"double-check\""), "{said}");
}

#[test]
fn workflow_test_tries_the_contract_first() {
    let said = own().succeed(&["workflow", "test", CONFIG, "--task", "configs/programs/task.json"]);
    assert!(said.contains("double-check keeps its contract in 100"), "{said}");
}

#[test]
fn a_run_in_one_process_trains_on_what_it_pays() {
    let program = own();
    let runs = program.runs();
    program.succeed(&["run", CONFIG, "--steps", "2", "--folder", runs.to_str().unwrap()]);
    trained(&program);
}

#[test]
fn the_processes_of_a_run_are_the_program_too() {
    let program = own();
    let runs = program.runs();
    let mut running = program.start(&["up", CONFIG, "--steps", "2", "--folder", runs.to_str().unwrap()]);
    running.finish(PATIENCE);
    trained(&program);
}

/// Asserts that conversations were played and paid, and that each agent trained its samples once.
fn trained(program: &Program) {
    let run = program.run_folder();
    for agent in ["solver", "verifier"] {
        let audit = audit(&run, agent);
        assert!(
            audit.counts.trained > 0 && audit.twice == 0 && audit.missing == 0,
            "{agent}: {audit:?}"
        );
    }
    let files = std::fs::read_dir(run.join("transcripts")).unwrap();
    let told: Vec<_> = files.flat_map(|file| json_lines(&file.unwrap().path())).collect();
    // Models of random bytes talk to their limit: their answers are cut, and paid.
    let played: Vec<_> = told.iter().filter(|one| one["status"] != "failed").collect();
    assert!(!played.is_empty(), "{} transcripts", told.len());
    for one in played {
        assert!(one["rewards"]["verifier"].get("verdict").is_some(), "{one}");
    }
}
