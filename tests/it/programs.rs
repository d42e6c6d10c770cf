//! A user's own programs as workflows and graders, in one process and over RabbitMQ and Redis.

use std::path::{Path, PathBuf};

use serde_json::Value;
use tests::program::{Program, json_lines, metrics};
use tests::trace::audit;

fn program() -> Program {
    Program::new(env!("CARGO_BIN_EXE_dyad-under-test"))
}

/// Writes `configs/programs.toml` with these changes. Time limits are long because a busy machine
/// takes long to start Python.
fn configuration(program: &Program, changes: &[(&str, &str)]) -> PathBuf {
    let text = std::fs::read_to_string(Program::root().join("configs/programs.toml")).unwrap();
    let patience = [("timeout = \"10s\"", "timeout = \"120s\"")];
    let text = patience.iter().chain(changes).fold(text, |text, (from, to)| {
        assert!(text.contains(from), "configs/programs.toml no longer has {from:?}");
        text.replace(from, to)
    });
    let path = program.runs().parent().unwrap().join("programs.toml");
    std::fs::write(&path, text).unwrap();
    path
}

fn play(program: &Program, command: &str, config: &Path) -> PathBuf {
    let (config, runs) = (config.to_str().unwrap(), program.runs());
    program.succeed(&[command, config, "--steps", "3", "--folder", runs.to_str().unwrap()]);
    program.run_folder()
}

fn trained(folder: &Path) -> Vec<Value> {
    let mut lines = metrics(folder, "train");
    for line in lines.iter_mut().filter_map(Value::as_object_mut) {
        line.retain(|key, _| !key.starts_with("time/"));
    }
    lines
}

fn transcripts(folder: &Path) -> Vec<Value> {
    let files = std::fs::read_dir(folder.join("transcripts")).unwrap();
    files.flat_map(|file| json_lines(&file.unwrap().path())).collect()
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
        let audit = audit(folder, agent);
        assert!(
            audit.counts.trained > 0 && audit.twice == 0 && audit.missing == 0,
            "{agent}: {audit:?}"
        );
    }
}

#[test]
fn a_workflow_in_python_trains_and_the_same_seed_gives_the_same_run() {
    let (first, second) = (program(), program());
    let one = play(&first, "run", &configuration(&first, &[]));
    let two = play(&second, "run", &configuration(&second, &[]));
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
    let config = configuration(
        &program,
        &[
            (
                "kind = \"process:configs/programs/solve_verify.py\"",
                "kind = \"solve-verify\"\nparams = { prompts = \"short\" }",
            ),
            (
                "[defaults.agent]\n",
                "[graders.correct]\nkind = \"process:configs/programs/reward.py\"\ntimeout = \"120s\"\n\n[defaults.agent]\n",
            ),
            ("mode = \"sync\"", "mode = \"async\""),
        ],
    );
    let folder = play(&program, "up", &config);
    let all = transcripts(&folder);
    assert!(!all.is_empty() && all.iter().all(|transcript| spoke(transcript, "grade-solver")));
    check_audit(&folder);
}

/// The kit of Rust types: made-up conversations in which each question is asked twice.
#[test]
fn workflow_test_puts_a_program_through_the_contract() {
    let program = program();
    let test = |config: &Path| {
        let config = config.to_str().unwrap();
        program.output(&["workflow", "test", config, "--task", "configs/programs/task.json"])
    };
    let kept = test(&configuration(&program, &[]));
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
        let file = program.runs().parent().unwrap().join("chance.py");
        std::fs::write(&file, changed.replace("import json\n", "import json\nimport random\n")).unwrap();
        let kind = format!("process:{}", file.display());
        let config = configuration(&program, &[("process:configs/programs/solve_verify.py", &kind)]);
        let broken = test(&config);
        let said = String::from_utf8_lossy(&broken.stderr);
        assert_eq!(broken.status.code(), Some(1), "{to}: {said}");
        for part in [
            "chance.py does not keep its contract: asked the same question twice",
            "the question: {\"kind\":\"step\"",
            "the first answer: {",
            "the second answer: {",
        ] {
            assert!(said.contains(part), "{to}: {part} is not in {said}");
        }
        assert!(broken.stdout.is_empty(), "nothing of it is played");
    }
}

/// The environment of a program has none of the URLs and passwords in its coordinator's.
#[test]
fn a_program_is_told_no_password() {
    let program = program();
    let spy = program.runs().parent().unwrap().join("spy.sh");
    std::fs::write(&spy, "env > \"$0.env\"\nexit 1\n").unwrap();
    let kind = format!("kind = \"process:{}\"", spy.display());
    let config = configuration(
        &program,
        &[("kind = \"process:configs/programs/solve_verify.py\"", &kind)],
    );
    let config = config.to_str().unwrap();
    let url = "amqp://u:topsecret@h/v";
    let told = program
        .command(&["workflow", "test", config, "--task", "configs/programs/task.json"])
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
    let environment = std::fs::read_to_string(spy.with_extension("sh.env"));
    let environment = environment.unwrap_or_else(|_| panic!("not started: {}", String::from_utf8_lossy(&told.stderr)));
    assert!(environment.contains("DYAD_HARMLESS=yes"), "{environment}");
    assert!(!environment.contains("topsecret"), "{environment}");
}
