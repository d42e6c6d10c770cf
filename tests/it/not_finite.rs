//! Weights that cannot be sampled from: the run ends in seconds with a reason and loses nothing.

use std::path::{Path, PathBuf};
use std::time::Duration;

use configs::{ModelConfig, RunConfig};
use rollout::text::TextCodec;
use rollout::text::make::write_tokenizer;
use serde_json::Value;
use tests::program::{Program, Running};
use tests::small::Small;
use tests::trace::audit;
use trainer::model::{Init, ModelShape, Weights};

use crate::program;

const PATIENCE: Duration = Duration::from_secs(120);

/// Writes the model of `configs/signal.toml` to a folder.
fn model(folder: &Path) {
    let config = RunConfig::load(&Program::root().join("configs/signal.toml")).unwrap();
    let settings = config.agents.into_values().next().unwrap();
    let ModelConfig::Random(random) = settings.model else {
        panic!("its model is random");
    };
    std::fs::create_dir_all(folder).unwrap();
    write_tokenizer(folder, &random.tokenizer).unwrap();
    let text = TextCodec::open(folder).unwrap();
    let shape = ModelShape::from_random(&random, text.vocab_size(), &text.stop_ids()).unwrap();
    let weights = Weights::random(&shape, Init::from(&random), 1).unwrap();
    weights.save(&shape, folder).unwrap();
}

/// Overwrites the first `numbers` numbers of one tensor with `value`.
fn overwrite(folder: &Path, tensor: &str, value: f32, numbers: usize) {
    let file = folder.join("model.safetensors");
    let mut bytes = std::fs::read(&file).unwrap();
    let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let header: Value = serde_json::from_slice(&bytes[8..8 + length]).unwrap();
    assert_eq!(header[tensor]["dtype"], "F32");
    let begins = 8 + length + header[tensor]["data_offsets"][0].as_u64().unwrap() as usize;
    for number in bytes[begins..].chunks_exact_mut(4).take(numbers) {
        number.copy_from_slice(&value.to_le_bytes());
    }
    std::fs::write(file, bytes).unwrap();
}

/// Writes a model with finite values and overflowing logits: the last norm multiplies the output
/// matrix.
fn overflowing(folder: &Path) {
    model(folder);
    overwrite(folder, "model.norm.weight", 3e38, 64);
}

/// Returns the signal game with the model of this folder.
fn small(folder: &Path) -> Small {
    Small::new()
        .without("defaults.agent.model.random")
        .set("defaults.agent.model.path", folder.to_str().unwrap())
}

/// Waits for an end with this exit code and returns the output.
fn ends_with(code: i32, mut running: Running) -> String {
    let ended = running.end(PATIENCE);
    let said = running.log();
    assert_eq!(ended.and_then(|status| status.code()), Some(code), "{said}");
    said
}

/// Runs it to its end with an error; returns its output and its run folder.
fn ends_with_an_error(folder: &Path) -> (String, Program, PathBuf) {
    let program = program();
    let said = ends_with(2, program.launch("run", &small(folder).save(&program), &[]));
    let run = program.run_folder();
    (said, program, run)
}

#[test]
fn a_damaged_weight_file_is_named_with_its_tensor_at_the_start() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("damaged");
    model(&folder);
    overwrite(&folder, "lm_head.weight", f32::NAN, 1);
    let (said, ..) = ends_with_an_error(&folder);
    for part in ["lm_head.weight", "model.safetensors", "not finite", "starting agent"] {
        assert!(said.contains(part), "{part}: {said}");
    }
}

/// The engine detects it when the first wave is sampled.
#[test]
fn weights_with_overflowing_logits_end_the_run_and_use_no_task() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("large");
    overflowing(&folder);
    let (said, _program, run) = ends_with_an_error(&folder);
    for part in [
        "agent a",
        "weights 1.0 were not finite",
        "sampling.temperature",
        "dyad export a",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    for agent in ["a", "b"] {
        let counts = audit(&run, agent).counts;
        assert!(counts.reserved > 0, "{agent}: {counts:?}");
        assert_eq!((counts.closed, counts.dead), (0, 0), "{agent}: {counts:?}");
    }
}

/// Its figures would count conversations that were not played.
#[test]
fn weights_with_overflowing_logits_are_evaluated_to_an_error() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("large");
    overflowing(&folder);
    let program = program();
    let one = small(&folder)
        .set("eval.source", "generator:signal")
        .set("eval.tasks", 1);
    for config in [small(&folder), one] {
        let said = program.fail(2, &["eval", &config.save(&program)]);
        for part in ["agent a", "were not finite", "sampling.temperature"] {
            assert!(said.contains(part), "{part}: {said}");
        }
    }
}

/// A frozen policy would keep these weights for good, and the next start would report a damaged
/// file.
#[test]
fn a_diverging_warm_start_ends_the_run_and_names_its_rate() {
    // One step beyond the largest number, or one to finite weights with overflowing logits.
    for (is_trained, lr, steps) in [(true, 1e39, 1), (false, 1e39, 1), (false, 1e15, 1), (true, 1e15, 3)] {
        let program = program();
        let config = Small::of("configs/arithmetic.toml")
            .without("eval")
            .set("run.lead", "verifier")
            .set("agents.solver.train.enabled", is_trained)
            .set("agents.solver.train.warm_start.steps", steps)
            .set("agents.solver.train.warm_start.lr", lr)
            .set("agents.verifier.train.warm_start.steps", 1)
            .save(&program);
        let said = ends_with(2, program.launch("run", &config, &[]));
        for part in ["agent solver", "warm start", "agents.solver.train.warm_start.lr"] {
            assert!(said.contains(part), "{part}: {said}");
        }
        let kept = program.run_folder().join("initial/solver");
        assert!(!kept.exists(), "{said}");
    }
}
