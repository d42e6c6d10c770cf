//! A prompt that fills its role's context, in a workflow that continues without the turn.

use serde_json::Value;
use tests::program::metrics;
use tests::small::Small;
use tests::trace::{nothing_lost, transcripts};

use crate::program;

/// Rewriters have no room: their conversations end there. The solvers are paid and trained, in runs
/// and in evaluations.
#[test]
fn solvers_are_trained_where_the_rewriters_have_no_room() {
    let program = program();
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
        .save(&program);
    let folder = program.play("run", &config, &["--steps", "2"]);
    nothing_lost(&folder, "all");
    let all = transcripts(&folder);
    let of = |one: &Value, role: &str| {
        let turns = one["turns"].as_array().unwrap().iter();
        turns.filter(|turn| turn["role"] == role).count()
    };
    let without: Vec<&Value> = all.iter().filter(|one| of(one, "rewriter") > 0).collect();
    assert!(!without.is_empty(), "{all:?}");
    for one in without {
        assert_eq!((of(one, "rewriter"), of(one, "selector")), (3, 0), "{one}");
        assert_eq!(one["metrics"]["no_room"], 1.0, "{one}");
        assert!(one["failed"].is_null(), "{one}");
        let paid: Vec<&String> = one["rewards"].as_object().unwrap().keys().collect();
        assert!(
            paid.iter().all(|seat| seat.starts_with("solver")) && !paid.is_empty(),
            "{one}"
        );
    }
    let evals = metrics(&folder, "eval");
    assert!(
        evals.iter().any(|line| line["no_room"].as_f64() > Some(0.0)),
        "{evals:?}"
    );
}
