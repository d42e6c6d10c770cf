//! Solver and verifier on sums: how they are measured, before and after.

use std::path::Path;

use serde_json::Value;
use tests::program::{Program, metrics};

/// `configs/arithmetic.toml` with a short warm start, two steps and small evaluations.
fn short() -> String {
    let text = std::fs::read_to_string(Program::root().join("configs/arithmetic.toml")).unwrap();
    let mut config: toml::Table = text.parse().unwrap();
    let mut set = |path: &[&str], value: i64| {
        let (last, tables) = path.split_last().unwrap();
        let table = tables
            .iter()
            .fold(&mut config, |table, key| table[*key].as_table_mut().unwrap());
        assert!(
            table.insert((*last).to_owned(), value.into()).is_some(),
            "{path:?} is not in the file"
        );
    };
    set(&["run", "train_steps"], 2);
    set(&["agents", "solver", "train", "warm_start", "steps"], 350);
    set(&["agents", "verifier", "train", "warm_start", "steps"], 60);
    set(&["eval", "tasks"], 100);
    set(&["eval", "pool"], 10);
    config.to_string()
}

/// Runs it and answers with what was printed, the run's folder, its pool and its evaluations.
fn play(program: &Program, folder: &Path) -> (String, Vec<Value>, Vec<Value>) {
    let config = folder.join("arithmetic.toml");
    std::fs::write(&config, short()).unwrap();
    let runs = program.runs();
    let printed = program.succeed(&["run", config.to_str().unwrap(), "--folder", runs.to_str().unwrap()]);
    let lines = |path: &Path| -> Vec<Value> {
        let text = std::fs::read_to_string(path).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let run = program.run_folder();
    let evals = std::fs::read_dir(run.join("evals"))
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    (printed, lines(&run.join("pool.jsonl")), lines(&evals))
}

#[test]
fn the_verifier_is_measured_on_a_frozen_pool_and_intervals_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let programs = [(); 2].map(|()| Program::new(env!("CARGO_BIN_EXE_dyad-under-test")));
    let (printed, pool, evals) = play(&programs[0], folder.path());
    assert!(
        printed.contains("verifier: right verdicts on its frozen pool"),
        "{printed}"
    );
    assert!(
        printed.contains("95% interval") && printed.contains("report.html"),
        "{printed}"
    );

    let solution = |task: &Value| task["metadata"]["solution"].as_str().unwrap().trim().to_owned();
    // As the solver would write it.
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
    // What the pool was chosen from is what the solver answered first.
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
    let (_, pool_again, evals_again) = play(&programs[1], folder.path());
    assert_eq!(pool_again, pool, "the same seed has the same pool");
    assert_eq!(evals_again, evals, "and the same evaluations, task by task");
}
