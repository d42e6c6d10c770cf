//! A model as a grader: an agent of another run, a real engine behind dyad's own HTTP front, scores
//! answers.

use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::Value;
use tests::kit;
use tests::program::{Program, Running, metrics};
use tests::small::Small;
use tests::trace::{nothing_lost, transcripts, without_times};

use crate::program;

const TOKEN: &str = "0123456789abcdef-of-the-judge";

/// Starts a run with a frozen agent b that says digits and a few words, and returns the URL of its
/// front.
fn front(program: &Program) -> (Running, String) {
    let config = Small::of("configs/guess-number.toml")
        .set("run.mode", "async")
        .set("run.train_steps", 1_000_000)
        .set("defaults.agent.train.max_staleness", 1)
        .set("defaults.agent.train.checkpoint_every", 0)
        .set("agents.b.train.enabled", false)
        .set("agents.b.http.listen", "127.0.0.1:0")
        .without("eval")
        .save(program);
    let running = program.launch("run", &config, &[("DYAD_HTTP_TOKEN", TOKEN)]);
    let url = program.front("b");
    (running, url)
}

/// Returns `solo` with a judge. Its prompt is the answer alone, and its score is one word from 0 to
/// 7.
fn judged(folder: &Path, missing: &str, tries: i64) -> Small {
    let template = folder.join("judge.jinja");
    std::fs::write(&template, "{{ answer }}").unwrap();
    kit::solo()
        .set("run.transcripts", "all")
        .set("graders.correct.kind", "judge")
        .set("graders.correct.missing", missing)
        .set("graders.correct.judge.template", template.to_str().unwrap())
        .set(
            "graders.correct.judge.scale",
            toml::Value::Array(vec![0.into(), 7.into()]),
        )
        .set("graders.correct.judge.max_tokens", 1)
        .set("graders.correct.judge.temperature", 1.0)
        .set("graders.correct.judge.tries", tries)
}

/// Writes a configuration with the judge at this address.
fn configuration(folder: &Path, url: &str, missing: &str) -> PathBuf {
    judged(folder, missing, 12)
        .without("agents.verifier")
        .set("workflow.retries", 1)
        .set("graders.correct.timeout", "120s")
        .set("graders.correct.judge.url", url)
        .set("graders.correct.judge.model", "b")
        .write(&folder.join("judge.toml"))
}

fn played(program: &Program, config: &Path, key: &str) -> (Vec<Value>, Output) {
    let task = ["--task", "configs/programs/task.json", "--members", "8", "--say"];
    let config = config.to_str().unwrap();
    let args = [&["workflow", "test", config][..], &task, &["solver=5", "--json"]].concat();
    let output = program.command(&args).env("DYAD_JUDGE_KEY", key).output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let transcripts: Vec<Value> = printed
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let failed = transcripts
        .iter()
        .any(|one| one["status"].as_str().unwrap().starts_with("failed"));
    let code = output.status.code();
    assert_eq!(
        code,
        Some(i32::from(failed)),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    (transcripts, output)
}

#[test]
fn an_agent_of_another_run_judges_and_its_refusal_is_no_zero() {
    let program = program();
    let (_running, url) = front(&program);
    let folder = tempfile::tempdir().unwrap();
    let config = configuration(folder.path(), &url, "retry");
    let (graded, _) = played(&program, &config, TOKEN);
    assert_eq!(graded.len(), 8);
    for transcript in &graded {
        assert_eq!(transcript["status"], "completed", "{transcript}");
        let score = transcript["rewards"]["solver"]["correct"].as_f64().unwrap() * 7.0;
        assert!(
            (score - score.round()).abs() < 1e-5 && (0.0..=7.0).contains(&score),
            "{transcript}"
        );
    }
    let wrong = "not-the-key-of-the-judge";
    let (dropped, output) = played(&program, &config, wrong);
    for transcript in &dropped {
        let status = transcript["status"].as_str().unwrap();
        assert!(status.starts_with("failed: ") && status.contains("401"), "{status}");
        assert!(transcript["rewards"].as_object().is_none_or(serde_json::Map::is_empty));
    }
    let printed = [output.stdout, output.stderr].concat();
    assert!(!String::from_utf8_lossy(&printed).contains(wrong), "the key is printed");
    let config = configuration(folder.path(), &url, "tombstone");
    let (ungraded, _) = played(&program, &config, wrong);
    for transcript in &ungraded {
        assert_eq!(transcript["status"], "completed");
        assert!(
            transcript["rewards"].as_object().is_none_or(serde_json::Map::is_empty),
            "{transcript}"
        );
        assert_eq!(transcript["metrics"]["ungraded"], 1.0);
    }
}

/// Writes `solo` for a run of two agents: one answers and learns, the other scores the answers.
fn judged_by_an_agent(mode: &str, folder: &Path) -> PathBuf {
    let words = (0..8).map(|digit| toml::Value::from(digit.to_string())).collect();
    let tokenizer = toml::Table::from_iter([("words".to_owned(), toml::Value::Array(words))]);
    judged(folder, "tombstone", 2)
        .set("run.mode", mode)
        .set("defaults.agent.model.random.tokenizer", tokenizer)
        .set("agents.verifier.train.enabled", false)
        .set("graders.correct.judge.agent", "verifier")
        .write(&folder.join("judged.toml"))
}

/// Asserts that each transcript has the judge's prompt and words, and that the reward is its
/// number. Returns the number of graded answers.
fn check_grades(transcripts: &[Value]) -> usize {
    let mut graded = 0;
    for transcript in transcripts {
        let turns = transcript["turns"].as_array().unwrap().iter();
        let grades: Vec<&Value> = turns.filter(|turn| turn["role"] == "grade-solver").collect();
        assert!((1..=2).contains(&grades.len()), "{transcript}");
        assert!(
            grades
                .iter()
                .all(|turn| turn["agent"] == "verifier" && turn["tokens"] == 1)
        );
        let said = grades.last().unwrap()["text"].as_str().unwrap().trim();
        let earned = transcript["rewards"]["solver"]["correct"].as_f64();
        match said.parse::<f64>() {
            Ok(number) => {
                let earned = earned.unwrap_or_else(|| panic!("no reward: {transcript}"));
                assert!((earned * 7.0 - number).abs() < 1e-5, "{transcript}");
                graded += 1;
            }
            Err(_) => assert!(
                earned.is_none() && transcript["metrics"]["ungraded"] == 1.0,
                "{transcript}"
            ),
        }
    }
    graded
}

#[test]
fn an_agent_of_the_same_run_judges_and_a_seed_repeats_grades() {
    let played = || {
        let program = program();
        let config = judged_by_an_agent("sync", program.home());
        let folder = program.play("run", config.to_str().unwrap(), &["--steps", "3"]);
        let trained = |line: &Value| (line["agent"].clone(), line["loss"].clone(), line["reward/mean"].clone());
        let lines = metrics(&folder, "train");
        let mut said: Vec<String> = without_times(transcripts(&folder))
            .iter()
            .map(|one| format!("{} {} {}", one["task"], one["turns"], one["rewards"]))
            .collect();
        said.sort();
        let graded = check_grades(&transcripts(&folder));
        (lines.iter().map(trained).collect::<Vec<_>>(), said, graded)
    };
    let (one, two) = (played(), played());
    assert_eq!(one, two);
    let (lines, said, graded) = one;
    assert!(
        lines.len() == 3 && lines.iter().all(|(agent, _, _)| agent == "solver"),
        "{lines:?}"
    );
    assert!(graded > 5 && said.len() >= 48, "{graded} of {} were graded", said.len());
}

#[test]
fn an_agent_judges_over_rabbitmq_and_redis_too() {
    let program = program();
    let config = judged_by_an_agent("async", program.home());
    let folder = program.play("up", config.to_str().unwrap(), &["--steps", "2"]);
    assert!(check_grades(&transcripts(&folder)) > 5);
    nothing_lost(&folder, "solver");
}
