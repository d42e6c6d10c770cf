//! The figures of a run, read by the programs that people watch theirs with.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;
use tests::program::{Program, metrics};

use crate::program;

/// Plays 20 steps of the signal game and returns its folder.
fn short_run(program: &Program) -> PathBuf {
    program.play("run", "configs/signal.toml", &["--steps", "20"])
}

/// A Python that has the packages of other projects.
fn python_of_the_field() -> PathBuf {
    std::env::var_os("DYAD_FIELD_PYTHON")
        .map_or_else(|| Program::root().join("tests/.venv-field/bin/python"), Into::into)
}

/// Prints the scalars of a run folder, as TensorBoard's own reader finds them.
const SCALARS: &str = "
import json, pathlib, sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
found = {}
for folder in {path.parent for path in pathlib.Path(sys.argv[1]).rglob('*tfevents*')}:
    events = EventAccumulator(str(folder), size_guidance={'scalars': 0}).Reload()
    found[folder.name] = {tag: [[one.step, one.value] for one in events.Scalars(tag)] for tag in events.Tags()['scalars']}
print(json.dumps(found))
";

#[test]
#[ignore = "slow: `make test-long`; TensorBoard is a large package"]
fn tensorboard_reads_the_figures_of_a_run() {
    let program = program();
    let run = short_run(&program);
    let output = Command::new(python_of_the_field())
        .args(["-c", SCALARS])
        .arg(&run)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    let lines = metrics(&run, "train");
    for agent in ["a", "b"] {
        let mut wanted: BTreeMap<&str, Vec<(u64, f32)>> = BTreeMap::new();
        for line in lines.iter().filter(|line| line["agent"] == agent) {
            let step = line["step"].as_u64().unwrap();
            let figures = line.as_object().unwrap().iter().filter(|(name, _)| *name != "step");
            for (name, value) in figures.filter_map(|(name, value)| Some((name, value.as_f64()?))) {
                wanted.entry(name).or_default().push((step, value as f32));
            }
        }
        assert!(wanted.len() > 30 && wanted["reward/mean"].len() == 20, "{wanted:?}");
        for (name, wanted) in wanted {
            let scalars = found[agent][name]
                .as_array()
                .unwrap_or_else(|| panic!("no {name}: {found}"));
            let read: Vec<(u64, f32)> = scalars
                .iter()
                .map(|one| (one[0].as_u64().unwrap(), one[1].as_f64().unwrap() as f32))
                .collect();
            assert_eq!(read, wanted, "{name} of {agent}");
        }
    }
}

/// The real client writes its own file, offline; the test looks for names and texts in it.
#[test]
#[ignore = "slow: `make test-long`; its client is a large package"]
fn a_run_becomes_one_of_weights_and_biases() {
    let program = program();
    let run = short_run(&program);
    let status = Command::new(python_of_the_field())
        .arg(Program::root().join("configs/converters/to_wandb.py"))
        .arg(&run)
        .current_dir(program.home())
        .envs([("WANDB_MODE", "offline"), ("WANDB_SILENT", "true")])
        .status()
        .unwrap();
    assert!(status.success());
    let folders = std::fs::read_dir(program.home().join("wandb")).unwrap().flatten();
    let folder = folders
        .map(|entry| entry.path())
        .find(|path| path.file_name().unwrap().to_string_lossy().starts_with("offline-run-"))
        .unwrap();
    let files = std::fs::read_dir(&folder).unwrap().flatten();
    let file = files
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|end| end == "wandb"));
    let bytes = std::fs::read(file.unwrap()).unwrap();
    let text = String::from_utf8_lossy(&bytes);
    for name in [
        "a/reward/mean",
        "b/reward/mean",
        "coordinator/success",
        "coordinator/eval/success",
        "train_steps",
    ] {
        assert!(text.contains(name), "{name}");
    }
    let tables = std::fs::read_dir(folder.join("files/media/table")).unwrap().flatten();
    let table = std::fs::read_to_string(tables.last().unwrap().path()).unwrap();
    assert!(table.contains("speaker (a): s"), "{table}");
}
