//! The shipped tiny recipes over RabbitMQ and Redis.

use std::path::{Path, PathBuf};

use tests::program::{Program, metrics};
use tests::trace::{audit, rewards, successes};

fn up(config: &str, steps: &str) -> (Program, PathBuf) {
    let program = Program::new(env!("CARGO_BIN_EXE_dyad-under-test"));
    let runs = program.runs();
    program.succeed(&["up", config, "--steps", steps, "--folder", runs.to_str().unwrap()]);
    let folder = program.run_folder();
    (program, folder)
}

/// Trained on, nothing lost, nothing counted twice.
pub(crate) fn nothing_lost(folder: &Path, agent: &str) {
    let audit = audit(folder, agent);
    assert!(
        audit.counts.trained > 0 && audit.twice == 0 && audit.missing == 0,
        "{agent}: {audit:?}"
    );
}

#[test]
fn asker_and_answerer_learn_to_find_the_number() {
    let (_program, folder) = up("configs/guess-number.toml", "75");
    for agent in ["a", "b"] {
        let (first, last) = rewards(&folder, agent, 5);
        assert!(last > first + 0.2, "{agent}: {first} -> {last}");
        nothing_lost(&folder, agent);
    }
    let found = successes(&folder);
    let (first, last) = (found.first().unwrap().1, found.last().unwrap().1);
    assert!(last > first + 0.3, "{found:?}");
}

/// The doctor learns to end with a diagnosis. That it learns to ask for what decides is not claimed of so few steps.
#[test]
fn doctor_and_patient_talk_to_the_end() {
    let (_program, folder) = up("configs/doctor-patient.toml", "50");
    let diagnosed: Vec<f64> = metrics(&folder, "eval")
        .iter()
        .filter_map(|line| line["diagnosed"].as_f64())
        .collect();
    assert!(diagnosed.first().is_some_and(|first| *first < 0.5), "{diagnosed:?}");
    assert!(diagnosed.last().is_some_and(|last| *last > 0.9), "{diagnosed:?}");
    nothing_lost(&folder, "doctor");
    nothing_lost(&folder, "patient");
}
