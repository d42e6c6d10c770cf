//! A program with its own workflow and grader in Rust (`configs/programs/own_workflow.rs`): every
//! command knows them.

use std::path::Path;
use std::time::Duration;

use tests::kit::{configuration, essence, played};
use tests::program::Program;
use tests::small::Small;
use tests::trace::{nothing_lost, transcripts};

use crate::program;

const PATIENCE: Duration = Duration::from_secs(180);
const CONFIG: &str = "configs/programs/own_workflow.toml";

fn own() -> Program {
    Program::exactly(env!("CARGO_BIN_EXE_own-workflow"))
}

#[test]
fn a_rust_type_of_another_crate_plays_like_the_shipped_one() {
    let (own, dyad) = (own(), program());
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
fn only_the_program_that_registers_a_kind_accepts_it() {
    let (own, dyad) = (own(), program());
    own.succeed(&["check", CONFIG, "--quiet"]);
    let said = dyad.fail(2, &["check", CONFIG]);
    for path in ["workflow.kind", "graders.correct.kind"] {
        assert!(said.contains(path), "{path}: {said}");
    }
    let check = |config: Small| own.fail(2, &["check", &config.save(&own)]);
    let said = check(Small::of(CONFIG).set("workflow.params.rounds", 3));
    assert!(said.contains("workflow.params.rounds"), "{said}");
    let said = check(Small::of(CONFIG).set("workflow.reward.solver.style", 1.0));
    assert!(said.contains("workflow.reward.solver.style"), "{said}");
    // A misspelled name is answered with the right one.
    let said = check(Small::of(CONFIG).set("workflow.kind", "double-chek"));
    assert!(said.contains("did you mean \"double-check\""), "{said}");
}

#[test]
fn workflow_test_tries_the_contract_first() {
    let said = own().succeed(&["workflow", "test", CONFIG, "--task", "configs/programs/task.json"]);
    assert!(said.contains("double-check keeps its contract in 100"), "{said}");
}

#[test]
fn a_run_in_one_process_trains_on_its_own_rewards() {
    let program = own();
    trained(&program.play("run", CONFIG, &["--steps", "2"]));
}

#[test]
fn the_processes_of_a_run_are_the_program_too() {
    let program = own();
    let runs = program.runs();
    let mut running = program.start(&["up", CONFIG, "--steps", "2", "--folder", runs.to_str().unwrap()]);
    running.finish(PATIENCE);
    trained(&program.run_folder());
}

/// Asserts that conversations were played and paid, and that each agent trained its samples once.
fn trained(run: &Path) {
    for agent in ["solver", "verifier"] {
        nothing_lost(run, agent);
    }
    let all = transcripts(run);
    // Models of random bytes talk to their limit: their answers are cut, and paid.
    let played: Vec<_> = all.iter().filter(|one| one["status"] != "failed").collect();
    assert!(!played.is_empty(), "{} transcripts", all.len());
    for one in played {
        assert!(one["rewards"]["verifier"].get("verdict").is_some(), "{one}");
    }
}
