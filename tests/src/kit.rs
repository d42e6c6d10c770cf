//! The contract kit: the same conversations with scripted answers for every implementation of a
//! workflow. It is a shipped Rust type, a type of a user's program, a process, or a participant
//! over RabbitMQ.

use std::path::Path;

use serde_json::Value;

use crate::program::Program;
use crate::small::Small;

/// Answers of roles: right and wrong ones, and verdicts that approve, reject or say neither.
const SAYS: [&str; 7] = [
    "solver=5",
    "solver=6",
    "verifier=approve",
    "verifier=reject",
    "verifier=hm",
    "retry=5",
    "retry=7",
];

/// Returns `configs/programs.toml` with a workflow of this kind. Time limits are long because a
/// busy machine is slow.
#[must_use]
pub fn configuration(kind: &str) -> Small {
    let config = Small::of("configs/programs.toml")
        .set("workflow.kind", kind)
        .set("workflow.process.timeout", "120s");
    match kind {
        "solve-verify" => config
            .set("workflow.params.prompts", "short")
            .set("graders.correct.kind", "integer"),
        "double-check" => config.set("graders.correct.kind", "last-number"),
        _ => config,
    }
}

/// Plays sixteen conversations of each of two tasks with scripted answers and returns the output of
/// `workflow test`.
#[must_use]
pub fn played(program: &Program, config: &Path, more: &[&str]) -> Vec<Value> {
    let tasks = config.with_extension("jsonl");
    let lines = "{\"id\": \"sum\", \"prompt\": \"2+3=\", \"label\": 5}\n{\"id\": \"other\", \"prompt\": \"3+4=\", \"label\": 7}\n";
    std::fs::write(&tasks, lines).unwrap();
    let (config, tasks) = (config.to_str().unwrap(), tasks.to_str().unwrap());
    let mut args = vec![
        "workflow",
        "test",
        config,
        "--task",
        tasks,
        "--members",
        "16",
        "--seed",
        "3",
        "--json",
    ];
    args.extend(SAYS.iter().flat_map(|say| ["--say", say]));
    args.extend(more);
    let output = program.output(&args);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let printed = String::from_utf8(output.stdout).unwrap();
    printed
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// Returns the agents' words and rewards, which every implementation must reproduce.
#[must_use]
pub fn essence(transcript: &Value) -> (Vec<(String, String)>, Value) {
    let turns = transcript["turns"].as_array().unwrap().iter();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let said = turns
        .filter(|turn| turn["agent"] != "program")
        .map(|turn| (text(&turn["role"]), text(&turn["text"])));
    (said.collect(), transcript["rewards"].clone())
}
