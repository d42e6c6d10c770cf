//! Turns that continue earlier ones: an engine computes only the new tokens, and the run is
//! otherwise the same.

use tests::program::{Program, json_folder, metrics};
use tests::small::Small;

use crate::program;

/// Plays guess-number in whole sentences: the prompt of a later turn repeats some hundred tokens.
fn wordy(program: &Program, mode: &str) -> std::path::PathBuf {
    let config = Small::of("configs/guess-number.toml")
        .set("run.mode", mode)
        .set("workflow.group_size", 8)
        .set("workflow.params.prompts", "full")
        .set("workflow.params.cut", "heard")
        .set("defaults.agent.sampling.max_new_tokens", 12)
        .set("defaults.agent.model.random.max_context", 2048)
        .set("defaults.agent.model.random.tokenizer", "bytes")
        .set("defaults.agent.train.max_staleness", if mode == "sync" { 0 } else { 4 })
        .without("eval")
        .save(program);
    let runs = program.runs();
    let run = program
        .command(&["run", &config, "--steps", "2", "--folder", runs.to_str().unwrap()])
        .env("RUST_LOG", "debug")
        .output()
        .unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    program.run_folder()
}

/// Returns the tokens of all prompts, and those that the engine reused.
fn computed(run: &std::path::Path) -> (u64, u64) {
    let lines = json_folder(&run.join("logs"));
    let generated = lines.iter().filter(|line| line["message"] == "generated");
    let number = |line: &serde_json::Value, key: &str| line[key].as_u64().unwrap();
    generated.fold((0, 0), |(prompts, reused), line| {
        (prompts + number(line, "prompts"), reused + number(line, "reused"))
    })
}

#[test]
fn later_turns_reuse_earlier_tokens_and_the_trainer_agrees() {
    let program = program();
    let run = wordy(&program, "async");
    let (prompts, reused) = computed(&run);
    assert!(
        prompts > 0 && reused * 10 > prompts,
        "{reused} of {prompts} prompt tokens were reused"
    );
    let on_policy = metrics(&run, "train")
        .into_iter()
        .filter(|line| line["staleness/max"] == 0);
    let gaps: Vec<f64> = on_policy
        .map(|line| line["mismatch/on_policy_gap"].as_f64().unwrap())
        .collect();
    assert!(!gaps.is_empty(), "the first batch is of the weights that sampled it");
    assert!(
        gaps.iter().all(|gap| *gap <= 1e-4),
        "sampler and trainer agree: {gaps:?}"
    );
}

#[test]
fn a_synchronous_round_computes_every_prompt_whole() {
    let program = program();
    let (prompts, reused) = computed(&wordy(&program, "sync"));
    assert!(prompts > 0);
    assert_eq!(reused, 0);
}
