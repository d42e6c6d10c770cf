//! A user's own programs as workflows and graders, in one process and over RabbitMQ and Redis.

use std::path::{Path, PathBuf};

use serde_json::Value;
use tests::program::{Program, metrics};
use tests::small::Small;
use tests::trace::{nothing_lost, transcripts, without_times};

use crate::program;

/// Returns `configs/programs.toml` with long time limits, because a busy machine starts Python
/// slowly.
fn configuration() -> Small {
    Small::of("configs/programs.toml")
        .set("run.transcripts", "all")
        .replace("workflow.process.timeout", "120s")
}

fn play(program: &Program, command: &str, config: &Small) -> PathBuf {
    program.play(command, &config.save(program), &["--steps", "3"])
}

fn trained(folder: &Path) -> Vec<Value> {
    without_times(metrics(folder, "train"))
}

fn spoke(transcript: &Value, role: &str) -> bool {
    transcript["turns"]
        .as_array()
        .unwrap()
        .iter()
        .any(|turn| turn["role"] == role)
}

/// Asserts that nothing is lost or counted twice.
fn check_audit(folder: &Path) {
    for agent in ["solver", "verifier"] {
        nothing_lost(folder, agent);
    }
}

#[test]
fn a_workflow_in_python_trains_and_a_seed_repeats_the_run() {
    let (first, second) = (program(), program());
    let one = play(&first, "run", &configuration());
    let two = play(&second, "run", &configuration());
    assert_eq!(trained(&one), trained(&two));
    assert_eq!(trained(&one).len(), 6, "3 steps of two agents");
    let all = transcripts(&one);
    assert!(all.len() >= 3 * 4 * 4, "{}", all.len());
    for transcript in &all {
        assert_eq!(
            transcript["status"].as_str().unwrap().split(':').next(),
            Some("truncated"),
            "{transcript}"
        );
        assert!(spoke(transcript, "workflow") && spoke(transcript, "solver"));
        assert!(transcript["rewards"]["solver"]["correct"].is_number());
    }
    check_audit(&one);
}

#[test]
fn a_grader_in_python_pays_over_rabbitmq_and_redis() {
    let program = program();
    let config = configuration()
        .replace("workflow.kind", "solve-verify")
        .set("workflow.params.prompts", "short")
        .set("graders.correct.kind", "process:configs/programs/reward.py")
        .set("graders.correct.timeout", "120s")
        .replace("run.mode", "async");
    let folder = play(&program, "up", &config);
    let all = transcripts(&folder);
    assert!(!all.is_empty() && all.iter().all(|transcript| spoke(transcript, "grade-solver")));
    check_audit(&folder);
}

/// The kit of Rust types: made-up conversations in which each question is asked twice.
#[test]
fn workflow_test_puts_a_program_through_the_contract() {
    let program = program();
    let test = |config: &Small| {
        let config = config.save(&program);
        program.output(&["workflow", "test", &config, "--task", "configs/programs/task.json"])
    };
    let kept = test(&configuration());
    let said = String::from_utf8_lossy(&kept.stderr);
    assert!(
        kept.status.success() && said.contains("solve_verify.py keeps its contract in 8 made-up conversations"),
        "{said}"
    );
    let shipped = std::fs::read_to_string(Program::root().join("configs/programs/solve_verify.py")).unwrap();
    let by_chance = [
        ("\"prompt\": prompt}", "\"prompt\": prompt + str(random.random())}"),
        ("\"verdict\": float(", "\"verdict\": random.random() + float("),
    ];
    for (from, to) in by_chance {
        let changed = shipped.replace(from, to);
        assert_ne!(shipped, changed);
        let changed = changed.replace("import json\n", "import json\nimport random\n");
        let kind = format!("process:{}", program.file("chance.py", &changed));
        let broken = test(&configuration().replace("workflow.kind", kind));
        let said = String::from_utf8_lossy(&broken.stderr);
        assert_eq!(broken.status.code(), Some(1), "{to}: {said}");
        for part in [
            "chance.py does not keep its contract: it gave two answers to the same question",
            "the question: {\"kind\":\"step\"",
            "the first answer: {",
            "the second answer: {",
        ] {
            assert!(said.contains(part), "{to}: {part} is not in {said}");
        }
        assert!(broken.stdout.is_empty(), "nothing is played");
    }
}

/// The environment of a program has none of the URLs and passwords in its coordinator's.
#[test]
fn a_program_receives_no_password() {
    let program = program();
    let spy = program.file("spy.sh", "env > \"$0.env\"\nexit 1\n");
    let config = configuration()
        .set("workflow.kind", format!("process:{spy}"))
        .save(&program);
    let url = "amqp://u:topsecret@h/v";
    let output = program
        .command(&["workflow", "test", &config, "--task", "configs/programs/task.json"])
        .envs([
            ("DYAD_BROKER", url),
            ("DYAD_STATE", url),
            ("DYAD_PASSWORD_OPERATOR", url),
            ("DYAD_HTTP_TOKEN", url),
            ("DYAD_ENGINE_TOKEN", url),
            ("DYAD_JUDGE_KEY_2", url),
            ("DYAD_HARMLESS", "yes"),
        ])
        .output()
        .unwrap();
    let environment = std::fs::read_to_string(format!("{spy}.env"));
    let environment =
        environment.unwrap_or_else(|_| panic!("not started: {}", String::from_utf8_lossy(&output.stderr)));
    assert!(environment.contains("DYAD_HARMLESS=yes"), "{environment}");
    assert!(!environment.contains("topsecret"), "{environment}");
}
