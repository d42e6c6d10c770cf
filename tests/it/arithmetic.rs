//! Solver and verifier on sums: measurements before and after training.

use std::path::Path;

use serde_json::Value;
use tests::program::{Program, metrics};
use tests::small::Small;

use crate::program;

/// Returns `configs/arithmetic.toml` with a short warm start, two steps and small evaluations.
fn short() -> Small {
    Small::of("configs/arithmetic.toml")
        .replace("run.train_steps", 2)
        .replace("agents.solver.train.warm_start.steps", 350)
        .replace("agents.verifier.train.warm_start.steps", 60)
        .replace("eval.tasks", 100)
        .replace("eval.pool", 10)
}

/// Runs it and returns the output, the pool and the evaluations.
fn play(program: &Program) -> (String, Vec<Value>, Vec<Value>) {
    let (config, runs) = (short().save(program), program.runs());
    let printed = program.succeed(&["run", &config, "--folder", runs.to_str().unwrap()]);
    let run = program.run_folder();
    // Every line must parse.
    let lines = |path: &Path| -> Vec<Value> {
        let text = std::fs::read_to_string(path).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let mut evals = std::fs::read_dir(run.join("evals")).unwrap();
    let evals = evals.next().unwrap().unwrap().path();
    (printed, lines(&run.join("pool.jsonl")), lines(&evals))
}

#[test]
#[ignore = "slow: `make test-long`"]
fn the_verifier_is_measured_on_a_frozen_pool_with_intervals() {
    let programs = [(); 2].map(|()| program());
    let (printed, pool, evals) = play(&programs[0]);
    assert!(
        printed.contains("verifier: right verdicts on its frozen pool"),
        "{printed}"
    );
    assert!(
        printed.contains("95% interval") && printed.contains("report.html"),
        "{printed}"
    );

    let solution = |task: &Value| task["metadata"]["solution"].as_str().unwrap().trim().to_owned();
    // The solver writes numbers in this form.
    let label = |task: &Value| task["label"].to_string();
    let right = pool.iter().filter(|task| solution(task) == label(task)).count();
    assert!(
        !pool.is_empty() && pool.len() == 2 * right,
        "half of {} are right: {right}",
        pool.len()
    );
    assert_eq!(
        evals
            .iter()
            .map(|eval| eval["step"].as_u64().unwrap())
            .collect::<Vec<_>>(),
        [0, 2]
    );
    for eval in &evals {
        let values = |metric: &str| eval["values"][metric].as_object().unwrap();
        assert_eq!(values("solver_first").len(), 100);
        assert_eq!(values("verifier_balanced").len(), pool.len());
        assert!(
            values("solver_first").keys().all(|id| !id.starts_with("eval/")),
            "tasks are named the same each time"
        );
    }
    // The pool was chosen from the solver's first answers.
    for task in &pool {
        let id = task["id"].as_str().unwrap();
        let graded = evals[0]["values"]["solver_first"][id].as_f64().unwrap();
        assert_eq!(graded > 0.5, solution(task) == label(task), "{task}");
    }
    let summary = &metrics(&programs[0].run_folder(), "summary")[0];
    for part in ["before", "after", "gain", "gain_low", "gain_high"] {
        for metric in ["success", "solver_first", "verifier_balanced"] {
            assert!(
                summary[format!("{metric}/{part}")].is_f64(),
                "{metric}/{part} in {summary}"
            );
        }
    }
    let (_, pool_again, evals_again) = play(&programs[1]);
    assert_eq!(pool_again, pool, "the same seed has the same pool");
    assert_eq!(evals_again, evals, "and the same evaluations, task by task");
}
