//! The shipped tiny recipes over RabbitMQ and Redis.

use std::path::PathBuf;

use tests::program::{Program, metrics};
use tests::trace::{nothing_lost, rewards, successes, transcripts};

use crate::program;

pub(crate) fn up(config: &str, steps: &str) -> (Program, PathBuf) {
    let program = program();
    let folder = program.play("up", config, &["--steps", steps]);
    (program, folder)
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

/// The baseline: the patient keeps the weights of its warm start.
#[test]
fn a_doctor_learns_with_a_frozen_patient() {
    let (_program, folder) = up("configs/doctor-patient-fixed.toml", "40");
    let (first, last) = rewards(&folder, "doctor", 5);
    assert!(last > first + 0.1, "{first} -> {last}");
    nothing_lost(&folder, "doctor");
    assert!(!folder.join("checkpoints/patient").exists(), "it is frozen");
    assert!(folder.join("initial/patient/model.safetensors").is_file());
    assert!(
        !folder.join("initial/patient.warm").exists(),
        "its trainer's files are removed"
    );
    // With its warm start it earns 5.5 (configs/recipes). Most of that is for facts, which random
    // weights do not name.
    let earned: Vec<f64> = transcripts(&folder)
        .iter()
        .filter_map(|line| line["rewards"]["patient"]["total"].as_f64())
        .collect();
    let mean = earned.iter().sum::<f64>() / earned.len() as f64;
    assert!(mean > 4.0, "{mean} over {}", earned.len());
}

/// The doctor learns to ask the deciding question and to use the answer. To solve unseen cases
/// takes more steps (configs/recipes).
#[test]
fn doctor_and_patient_learn_from_their_dialogue() {
    let (_program, folder) = up("configs/doctor-patient.toml", "50");
    for agent in ["doctor", "patient"] {
        let (first, last) = rewards(&folder, agent, 5);
        assert!(last > first, "{agent}: {first} -> {last}");
    }
    let lines = metrics(&folder, "conversations");
    assert!(!lines.is_empty());
    for line in lines {
        let figure = |name: &str| line[name].as_f64().unwrap_or_else(|| panic!("{name}: {line}"));
        let turns = figure("multi_agent/avg_turns");
        assert!((1.0..=3.0).contains(&turns), "{line}");
        // Three generations at most; two are missing when the doctor does not ask.
        let early = figure("multi_agent/early_termination_rate");
        assert!((turns - (3.0 - 2.0 * early)).abs() < 1e-9, "{line}");
        let split =
            figure("loss_mask/role_split/doctor") + line["loss_mask/role_split/patient"].as_f64().unwrap_or(0.0);
        assert!(
            (split - 1.0).abs() < 1e-9 && figure("loss_mask/role_split") <= 1.0,
            "{line}"
        );
        assert!(figure("multi_agent/conversation_token_count") >= turns, "{line}");
        assert!(
            line["reward/avg"].is_f64() && line["reward/avg/doctor"].is_f64(),
            "{line}"
        );
    }
    let boards = std::fs::read_dir(folder.join("tensorboard")).unwrap();
    let coordinator = |name: &str| name.starts_with("coordinator");
    let found = boards.filter(|entry| coordinator(&entry.as_ref().unwrap().file_name().to_string_lossy()));
    assert_eq!(found.count(), 1, "the board has the coordinator's figures");
    let train = metrics(&folder, "train");
    let right: Vec<f64> = train
        .iter()
        .filter_map(|line| line["part/doctor/diagnosis"].as_f64())
        .collect();
    let last = right[right.len() - 5..].iter().sum::<f64>() / 5.0;
    assert!(
        right[0] < 0.3 && last > 0.65,
        "a doctor that ignores the answer is right half of the time: {right:?}"
    );
    nothing_lost(&folder, "doctor");
    nothing_lost(&folder, "patient");
}
