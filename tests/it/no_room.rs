//! A prompt that fills its role's context, in a workflow that continues without the turn.

use serde_json::Value;
use tests::program::{Program, json_lines, metrics};
use tests::small::Small;

use crate::recipes::nothing_lost;

/// Rewriters have no room: their conversations end there. The solvers are paid and trained, in runs
/// and in evaluations.
#[test]
fn solvers_are_trained_where_the_rewriters_have_no_room() {
    let program = Program::new(env!("CARGO_BIN_EXE_dyad-under-test"));
    let config = Small::of("configs/solve-rewrite-select.toml")
        .without("agents.all.train.warm_start")
        .set("agents.all.model.random.layers", 1)
        .set("agents.all.train.batch_groups", 2)
        .set("workflow.group_size", 4)
        // Too small even for the sum at the start of their prompt.
        .set("workflow.sampling.rewriter.max_new_tokens", 1)
        .set("workflow.sampling.rewriter.max_context", 6)
        .set("eval.every", 1)
        .set("eval.tasks", 8)
        .write(&program.runs().with_extension("toml"));
    let runs = program.runs();
    let (config, runs) = (config.to_str().unwrap(), runs.to_str().unwrap());
    program.succeed(&["run", config, "--steps", "2", "--folder", runs]);
    let folder = program.run_folder();
    nothing_lost(&folder, "all");
    let files = std::fs::read_dir(folder.join("transcripts")).unwrap();
    let told: Vec<Value> = files.flat_map(|file| json_lines(&file.unwrap().path())).collect();
    let of = |told: &Value, role: &str| {
        let turns = told["turns"].as_array().unwrap().iter();
        turns.filter(|turn| turn["role"] == role).count()
    };
    let without: Vec<&Value> = told.iter().filter(|told| of(told, "rewriter") > 0).collect();
    assert!(!without.is_empty(), "{told:?}");
    for told in without {
        assert_eq!((of(told, "rewriter"), of(told, "selector")), (3, 0), "{told}");
        assert_eq!(told["metrics"]["no_room"], 1.0, "{told}");
        assert!(told["failed"].is_null(), "{told}");
        let paid: Vec<&String> = told["rewards"].as_object().unwrap().keys().collect();
        assert!(
            paid.iter().all(|seat| seat.starts_with("solver")) && !paid.is_empty(),
            "{told}"
        );
    }
    let evals = metrics(&folder, "eval");
    assert!(
        evals.iter().any(|line| line["no_room"].as_f64() > Some(0.0)),
        "{evals:?}"
    );
}
