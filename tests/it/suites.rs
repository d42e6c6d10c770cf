//! Suites: sets of tasks that `dyad eval` and runs play.

use std::collections::BTreeMap;
use std::time::Duration;

use tests::kit;
use tests::program::metrics;
use tests::small::Small;
use tests::trace::batches;

use crate::evals::{Values, evaluations, json, run};
use crate::program;

const PATIENCE: Duration = Duration::from_secs(120);

#[test]
fn a_suite_of_a_preset_needs_its_file_alone() {
    let program = program();
    let lines = "{\"problem\": \"2+3=\", \"answer\": \"5\"}\n{\"problem\": \"1+1=\", \"answer\": \"2\"}\n";
    let tasks = program.file("aime.jsonl", lines);
    let file = kit::solo()
        .set("graders.correct.kind", "integer")
        .without("agents.verifier")
        .save(&program);
    let suite = format!("aime24={tasks}");
    let out = program.home().join("suite.json");
    let json_file = ["--json", out.to_str().unwrap()];
    let printed = program.succeed(&[&["eval", &file, "--suite", &suite, "--samples", "3"][..], &json_file].concat());
    assert!(
        printed.contains("aime24: 2 tasks, greedy and 3 samples of each at temperature 0.6"),
        "{printed}"
    );
    assert!(printed.contains("maj@3"), "{printed}");
    let set = &json(&out)["sets"][0];
    assert_eq!(set["conversations"].as_array().unwrap().len(), 2 * 4);
    assert!(set["conversations"][0]["answer"].is_string());
    let said = program.fail(2, &["eval", &file, "--suite", "other"]);
    assert!(said.contains("math500"), "{said}");
}

/// Returns the tiny signal game with a suite that every second evaluation plays.
fn with_suite() -> Small {
    Small::new()
        .set("workflow.group_size", 16)
        .set("run.train_steps", 4)
        .set("eval.every", 1)
        .set("eval.source", "generator:signal")
        .set("eval.tasks", 4)
        .set("eval.suites.more.source", "generator:signal")
        .set("eval.suites.more.tasks", 6)
        // More than are played at once.
        .set("eval.suites.more.samples", 100)
        .set("eval.suites.more.temperature", 0.8)
        .set("eval.suites.more.every", 2)
}

#[test]
fn a_suite_of_a_run_and_eval_give_the_same_figures() {
    let (one, two) = (program(), program());
    let folder = run(&one, &with_suite());
    let found = evaluations(&folder);
    assert_eq!(
        found,
        evaluations(&run(&two, &with_suite())),
        "the same seed, the same figures"
    );
    let plays = |values: &Values| values.contains_key("more/success");
    let played: Vec<bool> = found.iter().map(plays).collect();
    assert_eq!(
        played,
        [true, false, true, false, true],
        "the first, each second, and the last"
    );
    assert!(found[0]["more/success"].len() == 6 && found[0]["more/pass@64/success"].len() == 6);
    let lines = metrics(&folder, "eval");
    assert!(lines[0]["more/avg@100/success"].is_number() && lines[1].get("more/success").is_none());
    // A run and `dyad eval` give the same figures.
    let file = one.home().join("figures.json");
    let of = format!("{}@initial", folder.display());
    let json_file = ["--json", file.to_str().unwrap()];
    one.succeed(&[&["eval", "--run", &of, "--suite", "more"][..], &json_file].concat());
    let mut greedy = BTreeMap::new();
    let mut sampled: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for one in json(&file)["sets"][0]["conversations"].as_array().unwrap() {
        let (task, success) = (
            one["task"].as_str().unwrap(),
            one["figures"]["success"].as_f64().unwrap(),
        );
        match one.get("sample") {
            None => drop(greedy.insert(task.to_owned(), success)),
            Some(_) => sampled.entry(task.to_owned()).or_default().push(success),
        }
    }
    assert_eq!(greedy, found[0]["more/success"]);
    for (task, values) in &sampled {
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        assert_eq!(values.len(), 100);
        assert!((mean - found[0]["more/avg@100/success"][task]).abs() < 1e-12, "{task}");
    }
}

/// A crash in the middle of a suite leaves nothing of that evaluation: it is made again with the
/// same figures.
#[test]
fn an_evaluation_that_crashed_in_a_suite_is_made_again_whole() {
    let longer = || with_suite().set("eval.suites.more.samples", 800);
    let clean = program();
    let clean = evaluations(&run(&clean, &longer()));
    let killed = program();
    let mut running = killed.launch("run", &longer().save(&killed), &[]);
    let folder = killed.run_folder();
    // The evaluation after the second batch plays the suite.
    running.kill_when("two batches", PATIENCE, || batches(&folder, "a") >= 2);
    let before = evaluations(&folder);
    assert_eq!(before[..], clean[..before.len()]);
    assert_eq!(before.len(), 2, "it was killed in the third evaluation");
    let mut running = killed.start(&["run", "--resume", folder.to_str().unwrap()]);
    running.finish(PATIENCE);
    assert_eq!(evaluations(&folder), clean);
}
