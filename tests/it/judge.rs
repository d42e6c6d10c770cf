//! A model as a grader: an agent of another run, a real engine behind dyad's own HTTP front, says what answers are worth.

use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::Duration;

use serde_json::Value;
use tests::program::{Program, Running, json_lines, wait_for};
use tests::small::Small;

const PATIENCE: Duration = Duration::from_secs(120);
const TOKEN: &str = "0123456789abcdef-of-the-judge";

fn program() -> Program {
    Program::new(env!("CARGO_BIN_EXE_dyad-under-test"))
}

/// A run whose agent b stands still, and says digits and a few words.
fn front(program: &Program) -> (Running, String) {
    let config = Small::of("configs/guess-number.toml")
        .set("run.mode", "async")
        .set("run.train_steps", 1_000_000)
        .set("defaults.agent.train.max_staleness", 1)
        .set("defaults.agent.train.checkpoint_every", 0)
        .set("agents.b.train.enabled", false)
        .set("agents.b.http.listen", "127.0.0.1:0")
        .without("eval")
        .write(&program.runs().with_extension("toml"));
    let runs = program.runs();
    let running = program.start_with(
        &["run", config.to_str().unwrap(), "--folder", runs.to_str().unwrap()],
        &[("DYAD_HTTP_TOKEN", TOKEN)],
    );
    let log = program.run_folder().join("logs/run.jsonl");
    let url = wait_for("an agent that listens", PATIENCE, || {
        let lines = json_lines(&log);
        let line = lines
            .iter()
            .find(|line| line["message"] == "the agent answers over HTTP")?;
        Some(format!("http://{}/v1", line["address"].as_str().unwrap()))
    });
    (running, url)
}

/// `solo` with this judge: its prompt is the answer alone, and one word from 0 to 7 is a score.
fn configuration(folder: &Path, url: &str, missing: &str) -> PathBuf {
    let template = folder.join("judge.jinja");
    std::fs::write(&template, "{{ answer }}").unwrap();
    Small::of("configs/programs.toml")
        .set("workflow.kind", "solo")
        .set("workflow.params.prompts", "short")
        .without("workflow.process")
        .without("workflow.roles.retry")
        .without("workflow.roles.verifier")
        .without("workflow.reward")
        .without("agents.verifier")
        .set("workflow.retries", 1)
        .set("graders.correct.kind", "judge")
        .set("graders.correct.timeout", "120s")
        .set("graders.correct.missing", missing)
        .set("graders.correct.judge.url", url)
        .set("graders.correct.judge.model", "b")
        .set("graders.correct.judge.template", template.to_str().unwrap())
        .set(
            "graders.correct.judge.scale",
            toml::Value::Array(vec![0.into(), 7.into()]),
        )
        .set("graders.correct.judge.max_tokens", 1)
        .set("graders.correct.judge.temperature", 1.0)
        .set("graders.correct.judge.tries", 12)
        .write(&folder.join("judge.toml"))
}

fn played(program: &Program, config: &Path, key: &str) -> (Vec<Value>, Output) {
    let args = [
        "workflow",
        "test",
        config.to_str().unwrap(),
        "--task",
        "configs/programs/task.json",
        "--members",
        "8",
        "--say",
        "solver=5",
        "--json",
    ];
    let output = program.command(&args).env("DYAD_JUDGE_KEY", key).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let transcripts = printed.lines().map(|line| serde_json::from_str(line).unwrap());
    (transcripts.collect(), output)
}

#[test]
fn an_agent_of_another_run_judges_and_a_judge_that_refuses_is_no_zero() {
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
    let told = [output.stdout, output.stderr].concat();
    assert!(!String::from_utf8_lossy(&told).contains(wrong), "the key is told");
    let buried = configuration(folder.path(), &url, "tombstone");
    let (buried, _) = played(&program, &buried, wrong);
    for transcript in &buried {
        assert_eq!(transcript["status"], "completed");
        assert!(
            transcript["rewards"].as_object().is_none_or(serde_json::Map::is_empty),
            "{transcript}"
        );
        assert_eq!(transcript["metrics"]["ungraded"], 1.0);
    }
}
