//! Agents that call tools and judge themselves, over RabbitMQ and Redis.

use std::process::Command;

use serde_json::Value;
use tests::program::{Program, metrics};
use tests::trace::{nothing_lost, train, transcripts, without_times};

use crate::program;
use crate::recipes::up;

/// Returns the turns of a role, in all conversations.
fn said<'a>(transcripts: &'a [Value], role: &str) -> Vec<&'a Value> {
    let turns = transcripts.iter().flat_map(|one| one["turns"].as_array().unwrap());
    turns.filter(|turn| turn["role"] == role).collect()
}

#[test]
fn main_calls_sub_which_searches_and_both_are_trained() {
    let (_program, folder) = up("configs/deep-research.toml", "6");
    for agent in ["main", "sub"] {
        nothing_lost(&folder, agent);
        let gaps: Vec<f64> = train(&folder, agent)
            .iter()
            .map(|line| line["mismatch/on_policy_gap"].as_f64().unwrap())
            .collect();
        assert!(
            !gaps.is_empty() && gaps.iter().all(|gap| *gap < 1e-4),
            "{agent}: {gaps:?}"
        );
    }
    let all = transcripts(&folder);
    let found = said(&all, "sub-search");
    let ranked = found
        .iter()
        .filter(|turn| turn["text"].as_str().unwrap().starts_with("1. ["));
    assert!(ranked.count() > 0, "{found:?}");
    assert!(found.iter().all(|turn| turn["agent"] == "tool" && turn["tokens"] == 0));
    assert!(!said(&all, "sub-visit").is_empty());
    assert!(
        said(&all, "sub")
            .iter()
            .any(|turn| turn["text"].as_str().unwrap().contains("<result>"))
    );
    let figure = |one: &Value, name: &str| one["metrics"][name].as_f64().unwrap_or_default();
    assert!(
        all.iter()
            .any(|one| figure(one, "research_calls") > 0.0 && figure(one, "success") == 1.0)
    );
    let paid = |one: &&Value| one["rewards"]["sub"]["found"] == 1.0;
    assert!(all.iter().filter(paid).count() > 0, "no call was successful");
}

#[test]
fn the_same_seed_gives_the_same_run_with_tools() {
    let play = || {
        let program = program();
        let folder = program.play("run", "configs/deep-research.toml", &["--steps", "4"]);
        without_times(metrics(&folder, "train"))
    };
    let (one, two) = (play(), play());
    assert_eq!((one.len(), &one), (8, &two), "4 steps of two agents");
}

#[test]
fn an_agent_answers_and_judges_its_answers_itself() {
    let (_program, folder) = up("configs/self-reward.toml", "6");
    nothing_lost(&folder, "a");
    let all = transcripts(&folder);
    let judged = said(&all, "grader");
    assert!(judged.iter().all(|turn| turn["agent"] == "a"));
    let read = judged
        .iter()
        .filter(|turn| turn["text"].as_str().unwrap().contains("criteria_met"));
    assert!(2 * read.count() > judged.len(), "{judged:?}");
    let shares = metrics(&folder, "eval");
    assert!(
        !shares.is_empty() && shares.iter().all(|line| line["rubric_share"].is_f64()),
        "{shares:?}"
    );
    // Judging earns nothing and is not trained: 6 tasks of 8 answers a step, each one sample.
    let lines = metrics(&folder, "train");
    assert!(
        lines.iter().all(|line| line["samples"].as_u64() <= Some(48)),
        "{lines:?}"
    );
}

#[test]
fn healthbench_questions_become_tasks_without_the_held_out() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let item = r#"{"criterion": "names rest", "points": 4, "tags": ["level:example"]}, {"criterion": "is rude", "points": -3}"#;
    let good = |id: &str| {
        format!(
            r#"{{"prompt_id": "{id}", "prompt": [{{"role": "system", "content": "Be kind."}}, {{"role": "user", "content": "Ache?"}}], "rubrics": [{item}], "canary": "x"}}"#
        )
    };
    let questions = write("questions.jsonl", &format!("{}\n\n{}\n", good("q1"), good("q2")));
    let hard = write("hard.jsonl", &good("q2"));
    let convert = |questions: &std::path::Path| {
        let mut python = Command::new("python3");
        python
            .arg("configs/converters/healthbench.py")
            .arg(questions)
            .arg("--leave-out")
            .arg(&hard);
        python.current_dir(Program::root()).output().unwrap()
    };
    let output = convert(&questions);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let tasks = String::from_utf8(output.stdout).unwrap();
    let task: Value = serde_json::from_str(tasks.trim()).unwrap();
    assert_eq!(
        (task["id"].as_str(), task["metadata"]["rubric"][1]["points"].as_i64()),
        (Some("q1"), Some(-3))
    );
    // The workflow accepts them: it plays one.
    let file = write("tasks.jsonl", &tasks);
    let program = program();
    let says = ["--say", "answerer=Rest.", "--say", "grader={\"criteria_met\": true}"];
    let config = "configs/self-reward-8b.toml";
    let test = ["workflow", "test", config, "--task", file.to_str().unwrap()];
    let played = program.succeed(&[&test[..], &says].concat());
    assert!(played.contains("rubric 0.250"), "{played}");

    let bad = write(
        "bad.jsonl",
        &format!(
            "{}\n{{\"prompt_id\": \"q3\", \"prompt\": \"?\", \"rubrics\": []}}\noops\n",
            good("q1")
        ),
    );
    let output = convert(&bad);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1));
    assert!(
        said.contains("line 2") && said.contains("0 items") && said.contains("line 3"),
        "{said}"
    );
    assert_eq!(String::from_utf8(output.stdout).unwrap().lines().count(), 1);
}
