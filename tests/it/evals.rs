//! Evaluations with chosen weights, cross-play, comparisons, and the table of all recipes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tests::program::{Program, json_folder, metrics};
use tests::small::Small;
use tests::trace::{checkpoint, train};

use crate::program;

pub(crate) fn json(path: &Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// Runs a configuration to its end and returns its folder.
pub(crate) fn run(program: &Program, config: &Small) -> PathBuf {
    program.play("run", &config.save(program), &[])
}

/// A metric's value for each task.
pub(crate) type Values = BTreeMap<String, BTreeMap<String, f64>>;

/// Returns the evaluations of a run, task by task, in the order of their steps.
pub(crate) fn evaluations(run: &Path) -> Vec<Values> {
    let mut lines = json_folder(&run.join("evals"));
    lines.sort_by_key(|line| line["step"].as_u64().unwrap());
    let values = lines.into_iter().map(|line| line["values"].clone());
    values.map(|values| serde_json::from_value(values).unwrap()).collect()
}

fn mean(values: &Values, metric: &str) -> f64 {
    let values = &values[metric];
    values.values().sum::<f64>() / values.len() as f64
}

/// Returns the figures of `dyad eval` for the greedy conversations of `[eval]`, in the same shape.
fn measured(program: &Program, args: &[&str]) -> Values {
    let file = program.home().join("figures.json");
    let mut all = vec!["eval", "--json", file.to_str().unwrap()];
    all.extend(args);
    program.succeed(&all);
    let mut values = Values::new();
    let found = json(&file);
    let sets = found["sets"].as_array().unwrap().iter();
    // The tasks of `[eval]`, and the verifier's pool.
    for one in sets.flat_map(|set| set["conversations"].as_array().unwrap()) {
        for (name, value) in one["figures"]
            .as_object()
            .unwrap()
            .iter()
            .filter(|(name, _)| *name != "tokens")
        {
            let task = one["task"].as_str().unwrap().to_owned();
            values
                .entry(name.clone())
                .or_default()
                .insert(task, value.as_f64().unwrap());
        }
    }
    values
}

/// A repeated row is one task: two conversations under one name would wait for each other for ever.
#[test]
fn an_evaluation_in_which_a_row_comes_again_ends_in_both_modes() {
    let row = |id: &str, word: &str| format!("{{\"id\": \"{id}\", \"prompt\": \"{word}\", \"label\": \"{word}\"}}\n");
    for mode in ["sync", "async"] {
        let program = program();
        let tasks = program.home().join("tasks.jsonl");
        std::fs::write(&tasks, row("x", "o0") + &row("y", "o1") + &row("x", "o0")).unwrap();
        let config = Small::new()
            .set("run.mode", mode)
            .set("run.train_steps", 2)
            .set("eval.every", 1)
            .set("eval.id", "id")
            .set("eval.source", format!("jsonl:{}", tasks.display()));
        let folder = run(&program, &config);
        let found = evaluations(&folder);
        assert!(found.len() >= 2, "{mode}: {found:?}");
        for one in &found {
            assert!(one["success"].keys().eq(["x", "y"]), "{mode}: {one:?}");
        }
        // A turn is one token here, and neither figure counts evaluations.
        let counted = metrics(&folder, "coordinator").pop().unwrap();
        assert!(counted["turns"].as_u64() > Some(0), "{counted}");
        assert_eq!(counted["tokens"], counted["turns"], "{mode}");
        std::fs::write(&tasks, row("x", "o0") + &row("x", "o1")).unwrap();
        let said = program.fail(2, &["check", &config.save(&program)]);
        assert!(said.contains("the id \"x\" is also that of "), "{said}");
    }
}

/// The weights after a warm start are in the first checkpoint alone, which is removed.
#[test]
fn initial_weights_have_the_figures_of_the_first_evaluation() {
    let whole = Small::of("configs/arithmetic.toml")
        .set("run.train_steps", 3)
        .set("defaults.agent.train.checkpoint_every", 1)
        .set("defaults.agent.train.keep_checkpoints", 1)
        .set("defaults.agent.train.batch_groups", 4)
        // Entropy changes the weights although no answer is right yet.
        .set("defaults.agent.train.entropy", 0.5)
        .set("agents.solver.train.optimizer.lr", 0.01)
        .set("agents.solver.train.warm_start.steps", 120)
        .set("agents.verifier.train.warm_start.steps", 30)
        .set("eval.pool", 2)
        .set("eval.tasks", 40);
    let adapters = Small::of("configs/two-lora-rewards.toml")
        .set("run.train_steps", 2)
        .set("defaults.agent.train.checkpoint_every", 1)
        .set("defaults.agent.train.keep_checkpoints", 1)
        .set("defaults.agent.train.batch_groups", 4)
        .set("defaults.agent.train.loss.kind", "cross_entropy")
        .set("defaults.agent.train.optimizer.lr", 0.01)
        .set("agents.a.train.warm_start.steps", 10)
        .set("agents.b.train.warm_start.steps", 10)
        .set("eval.tasks", 20);
    for config in [whole, adapters] {
        let program = program();
        let folder = run(&program, &config);
        let path = folder.to_str().unwrap();
        let found = evaluations(&folder);
        assert_eq!(found.len(), 2);
        assert_ne!(found[0], found[1], "training changed something");
        for agent in std::fs::read_dir(folder.join("checkpoints")).unwrap() {
            assert!(!agent.unwrap().path().join("step-0").exists());
        }
        assert_eq!(measured(&program, &["--run", &format!("{path}@initial")]), found[0]);
        assert_eq!(measured(&program, &["--run", path]), found[1]);
        // A configuration alone has no warm-started weights.
        let said = program.fail(2, &["eval", &config.save(&program)]);
        assert!(said.contains("RUN@initial"), "{said}");
    }
}

fn signal() -> Small {
    Small::of("configs/signal.toml")
        .set("run.train_steps", 4)
        .set("eval.every", 100)
        .set("defaults.agent.train.checkpoint_every", 2)
}

#[test]
fn eval_chooses_weights_by_run_step_folder_and_agent() {
    let program = program();
    let folder = run(&program, &signal());
    let path = folder.to_str().unwrap();
    let found = evaluations(&folder);
    let config = signal().save(&program);
    // A run without a warm start keeps nothing: its first weights are made again from the seed.
    assert!(!folder.join("initial").exists());
    assert_eq!(measured(&program, &["--run", &format!("{path}@initial")]), found[0]);
    assert_eq!(measured(&program, &[&config]), found[0]);
    assert_eq!(measured(&program, &["--run", &format!("{path}@4")]), found[1]);
    let a = format!("a={}", folder.join("checkpoints/a/step-4").display());
    let b = format!("b={}", checkpoint(&folder, "b").display());
    assert_eq!(
        measured(&program, &[&config, "--checkpoint", &a, "--checkpoint", &b]),
        found[1]
    );
    let said = program.fail(2, &["eval", "--run", &format!("{path}@3")]);
    assert!(said.contains("kept steps: 2, 4"), "{said}");

    let file = program.home().join("sampled.json");
    let file = file.to_str().unwrap();
    let samples = ["--samples", "4", "--temperature", "0.7", "--json", file];
    let sampled = [&["eval", "--run", path][..], &samples].concat();
    let printed = program.succeed(&sampled);
    assert!(printed.contains("avg@4") && printed.contains("pass@2"), "{printed}");
    let first = json(file.as_ref());
    program.succeed(&sampled);
    assert_eq!(json(file.as_ref()), first, "samples repeat");
    let conversations = first["sets"][0]["conversations"].as_array().unwrap();
    assert_eq!(conversations.len(), 16 * 5);
    let rows = first["sets"][0]["score"]["rows"].as_array().unwrap();
    let success = rows.iter().find(|row| row["figure"] == "success").unwrap();
    let sum: f64 = conversations
        .iter()
        .filter(|one| one["sample"].is_u64())
        .map(|one| one["figures"]["success"].as_f64().unwrap())
        .sum();
    let avg = success["avg"]["mean"].as_f64().unwrap();
    assert!((avg - sum / 64.0).abs() < 1e-12 && (success["pass"]["1"]["mean"].as_f64().unwrap() - avg).abs() < 1e-12);
}

#[test]
fn cross_play_and_comparisons_have_the_figures_of_the_runs() {
    let program = program();
    let folders: Vec<PathBuf> = ["0", "1"]
        .iter()
        .map(|seed| {
            let base = program.home().join(format!("seed-{seed}"));
            let file = signal().save(&program);
            program.succeed(&["run", &file, "--seed", seed, "--folder", base.to_str().unwrap()]);
            let mut entries = std::fs::read_dir(&base).unwrap();
            entries.next().unwrap().unwrap().path()
        })
        .collect();
    let ends: Vec<Vec<Values>> = folders.iter().map(|folder| evaluations(folder)).collect();
    let over_runs = |at: usize, metric: &str| ends.iter().map(|ends| mean(&ends[at], metric)).sum::<f64>() / 2.0;
    let paths: Vec<&str> = folders.iter().map(|folder| folder.to_str().unwrap()).collect();

    let out = program.home().join("cross.json");
    let printed = program.succeed(&["cross-play", paths[0], paths[1], "--json", out.to_str().unwrap()]);
    assert!(
        printed.contains("a trained, others initial") && printed.contains("2 runs, Student's t"),
        "{printed}"
    );
    let table = json(&out);
    assert_eq!(json(&folders[0].join("cross_play.json")), table);
    assert!(!folders[1].join("cross_play.json").exists());
    assert_eq!(table["figures"], serde_json::json!(["success", "reward/a", "reward/b"]));
    let cells = table["cells"].as_array().unwrap();
    assert_eq!(cells.len(), 4);
    for metric in ["success", "reward/a", "reward/b"] {
        let of_cell = |at: usize| cells[at][1][metric]["mean"].as_f64().unwrap();
        assert!(
            (of_cell(0) - over_runs(0, metric)).abs() < 1e-12,
            "all initial: {metric}"
        );
        assert!(
            (of_cell(3) - over_runs(1, metric)).abs() < 1e-12,
            "all trained: {metric}"
        );
        let all = table["differences"].as_array().unwrap().last().unwrap()[1][metric]["mean"]
            .as_f64()
            .unwrap();
        assert!((all - (of_cell(3) - of_cell(0))).abs() < 1e-12);
    }

    let out = program.home().join("compare.json");
    let printed = program.succeed(&["compare", paths[0], paths[1], "--json", out.to_str().unwrap()]);
    assert!(
        printed.contains("tasks, paired") && printed.contains("trained tokens"),
        "{printed}"
    );
    let row = &json(&out)["rows"][0];
    assert_eq!(row["metric"], "success");
    let expected = mean(&ends[1][1], "success") - mean(&ends[0][1], "success");
    assert!((row["difference"]["mean"].as_f64().unwrap() - expected).abs() < 1e-12);
    program.fail(2, &["compare", "--a", paths[0], "--b", paths[0], paths[1]]);
}

#[test]
fn learn_reports_a_recipe_over_seeds_with_cross_play() {
    let program = program();
    let file = signal().save(&program);
    let base = program.home().join("learn");
    let base = ["--folder", base.to_str().unwrap()];
    let printed = program.succeed(&[&["learn", &file, "--seeds", "2", "--steps", "2"][..], &base].concat());
    let learnt = |metric: &str| {
        printed
            .lines()
            .any(|line| line.starts_with(metric) && line.contains(" -> "))
    };
    assert!(
        learnt("success") && learnt("reward/a") && learnt("reward/b"),
        "{printed}"
    );
    assert!(printed.contains("all trained - a trained, others initial"), "{printed}");
}

/// Over the real RabbitMQ and Redis, as `make recipes` does.
#[test]
#[ignore = "slow: `make test-long`"]
fn the_table_of_recipes_has_their_figures_and_names_a_failure() {
    let program = program();
    let out = program.home().join("recipes.json");
    let broken = program.file("broken.toml", "[run]\nname = \"broken\"\n");
    let base = program.home().join("base");
    let output = program.output(&[
        "recipes",
        "configs/signal.toml",
        &broken,
        "configs/doctor-patient-8b.toml",
        "configs/guess-number.toml",
        "--steps",
        "2",
        "--folder",
        base.to_str().unwrap(),
        "--json",
        out.to_str().unwrap(),
    ]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("recipes failed: broken")
            && said.contains("servers or programs that you start: doctor-patient-8b"),
        "{said}"
    );
    let rows = json(&out);
    let rows = rows.as_array().unwrap();
    assert_eq!(rows.len(), 3);
    for row in [&rows[0], &rows[2]] {
        assert!(row["failed"].is_null(), "{row}");
        let folder = PathBuf::from(row["run"].as_str().unwrap());
        let ends = evaluations(&folder);
        let mean = |at: usize, metric: &str| mean(&ends[at], metric);
        let close = |found: &Value, expected: f64| (found.as_f64().unwrap() - expected).abs() < 1e-9;
        let last = ends.len() - 1;
        assert!(
            close(&row["success"]["before"], mean(0, "success"))
                && close(&row["success"]["after"], mean(last, "success"))
        );
        for one in row["agents"].as_array().unwrap() {
            let agent = one["agent"].as_str().unwrap();
            let metric = format!("reward/{agent}");
            assert!(
                close(&one["reward"]["before"], mean(0, &metric))
                    && close(&one["reward"]["after"], mean(last, &metric))
            );
            let lines = train(&folder, agent);
            let samples: u64 = lines.iter().map(|line| line["samples"].as_u64().unwrap()).sum();
            assert!(samples > 0 && one["samples"].as_u64() == Some(samples), "{row}");
        }
    }
    // Speaker and listener say one word each.
    assert!((rows[0]["turns"].as_f64().unwrap() - 2.0).abs() < 1e-9, "{}", rows[0]);
    assert!(rows[2]["turns"].as_f64().unwrap() > 2.0, "{}", rows[2]);
}
