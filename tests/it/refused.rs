//! Runs and processes that this machine cannot play: they end with 2 before anything starts.

use std::process::Output;

use tests::program::fail;
use tests::small::Small;

use crate::program;

fn said(output: &Output) -> String {
    let both = [&output.stdout, &output.stderr];
    both.map(|text| String::from_utf8_lossy(text).into_owned()).concat()
}

/// CUDA is not here, or has no such device.
#[test]
fn device_that_is_missing_is_named_before_anything_starts() {
    let program = program();
    let config = Small::of("configs/signal.toml")
        .set("run.folder", program.runs().to_str().unwrap())
        .set("agents.b.device", "cuda:97")
        .save(&program);
    for (command, code) in [("check", 0), ("doctor", 2), ("up", 2), ("run", 2)] {
        let output = program.output(&[command, &config]);
        let said = said(&output);
        assert_eq!(output.status.code(), Some(code), "{command}: {said}");
        assert!(said.contains("cuda:97") && said.contains('b'), "{command}: {said}");
    }
    assert!(!program.runs().exists(), "no run folder was made");
}

/// Docker starts a container again after every exit code but 0.
#[test]
fn refused_configuration_makes_no_folder_and_may_end_with_0() {
    let program = program();
    let config = Small::new().set("run.folder", program.runs().to_str().unwrap());
    let config = config.save(&program);
    let args = ["agent", "--name", "zzz", "--config", &config, "--run", "refused"];
    for (code, variable) in [(2, "UNUSED"), (0, "DYAD_USAGE_EXIT")] {
        let said = fail(code, program.command(&args).env(variable, "0"));
        assert!(said.contains("no agent zzz; it has a, b"), "{said}");
    }
    assert!(!program.runs().exists(), "no run was begun");
}

/// Asserts that neither command begins a run with this configuration, and that both say all parts.
fn begins_no_run(config: Small, parts: &[&str]) {
    let program = program();
    let config = config
        .set("run.folder", program.runs().to_str().unwrap())
        .save(&program);
    for command in ["run", "up"] {
        let said = program.fail(2, &[command, &config]);
        for part in parts {
            assert!(said.contains(part), "{command}: no {part:?} in\n{said}");
        }
    }
    assert!(!program.runs().exists(), "no run folder was made");
}

#[test]
fn memory_that_cannot_suffice_is_named_before_anything_starts() {
    let config = Small::of("configs/signal.toml")
        .set("agents.b.model.random.layers", 400)
        .set("agents.b.model.random.hidden", 16384)
        .set("agents.b.model.random.intermediate", 65536);
    begins_no_run(
        config,
        &["device cpu of", "cannot suffice", "need 5", "GiB, and it has"],
    );
}

#[test]
fn model_folder_that_is_missing_is_named_before_anything_starts() {
    let config = Small::of("configs/signal.toml")
        .without("defaults.agent.model.random")
        .set("defaults.agent.model.path", "/nowhere/model");
    begins_no_run(config, &["agents.a.model", "agents.b.model", "/nowhere/model"]);
}

/// Agent a computes on the CPU, and no GPU can be added behind it.
#[test]
fn eval_names_the_device_that_is_missing() {
    let program = program();
    let config = Small::of("configs/signal.toml")
        .set("agents.b.device", "cuda:97")
        .save(&program);
    let said = program.fail(2, &["eval", &config]);
    assert!(said.contains("agent b") && said.contains("cuda:97"), "{said}");
    assert!(!said.contains("cannot add one"), "{said}");
}

#[test]
fn engine_names_the_device_that_is_missing() {
    let program = program();
    let config = Small::of("configs/signal.toml")
        .set("agents.b.engine.kind", "dyad")
        .set("agents.b.engine.urls", vec!["http://127.0.0.1:8101"])
        .save(&program);
    let engine = ["engine", &config, "--agent", "b", "--listen", "127.0.0.1:0"];
    let token = "of-a-test-with-32-bytes-or-more-in-it";
    for device in [["--device", "cuda:97"], ["--set", "agents.b.device=\"cuda:97\""]] {
        let args = [&engine[..], &device].concat();
        let said = fail(2, program.command(&args).env("DYAD_ENGINE_TOKEN", token));
        assert!(said.contains("agent b") && said.contains("cuda:97"), "{said}");
    }
}
