//! A trainer of several ranks, as processes of their own.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tests::program::{Program, Running, signal, wait_until};
use tests::trace::{audit, batches, digests};

use crate::program;

const PATIENCE: Duration = Duration::from_secs(240);
const STEPS: &str = "16";

/// Writes the signal game with two ranks of agent a. Each batch has several micro-batches, and the
/// ranks a short patience.
fn config(program: &Program, shard: &str) -> String {
    let text = std::fs::read_to_string(Program::root().join("configs/signal.toml")).unwrap();
    let agent = format!(
        "[agents.a]\ntrain.devices = [\"cpu\", \"cpu\"]\ntrain.shard = \"{shard}\"\n\
         train.micro_batch_tokens = 64\nengine.stuck_after = \"10s\"\n"
    );
    program.file("ranks.toml", &text.replace("[agents.a]\n", &agent))
}

/// Plays the run without faults, with one process for each rank above the first.
fn undisturbed(program: &Program, shard: &str) -> PathBuf {
    program.play("run", &config(program, shard), &["--seed", "5", "--steps", STEPS])
}

/// The processes of rank 1 of agent a's trainer, in the order of their starts.
fn ranks(running: &Running) -> Vec<u32> {
    let lines = running.supervised().into_iter();
    let started = lines.filter(|(label, text)| label == "a" && text.contains("started a rank of the trainer"));
    started
        .filter_map(|(_, text)| {
            let number: String = text
                .split("pid=")
                .nth(1)?
                .chars()
                .take_while(char::is_ascii_digit)
                .collect();
            number.parse().ok()
        })
        .collect()
}

fn trained_all(run: &Path) {
    let audit = audit(run, "a");
    assert_eq!((audit.twice, audit.missing), (0, 0), "{audit:?}");
    assert_eq!(audit.counts.trained, 16 * 256, "{audit:?}");
}

#[test]
fn ranks_train_the_same_with_and_without_shards() {
    let (whole, sharded) = (program(), program());
    let (whole, sharded) = (undisturbed(&whole, "none"), undisturbed(&sharded, "optimizer"));
    let digests_of = digests(&sharded);
    assert!(!digests_of.is_empty());
    assert_eq!(digests(&whole), digests_of);
    trained_all(&sharded);
}

/// Sends rank 1 a signal in the middle of a run, and compares with an undisturbed one.
fn disturbed_by(name: &str) {
    let (program, clean) = (program(), program());
    let (config, runs) = (config(&program, "optimizer"), program.runs());
    let folder = ["--folder", runs.to_str().unwrap()];
    let mut running = program.start(&[&["up", &config, "--seed", "5", "--steps", STEPS][..], &folder].concat());
    let run = program.run_folder();
    wait_until("agent a to train 5 batches", PATIENCE, || batches(&run, "a") >= 5);
    let rank = *ranks(&running).last().unwrap();
    signal(name, rank);
    running.finish(PATIENCE);
    let log = running.log();
    assert_eq!(running.pids("a").len(), 2, "the agent started again:\n{log}");
    assert_eq!(ranks(&running).len(), 2, "and so did its rank:\n{log}");
    assert!(log.contains("exit status: 70 before the run; starting again"), "{log}");
    assert!(!Path::new(&format!("/proc/{rank}")).exists(), "the lost rank is gone");
    trained_all(&run);
    assert_eq!(digests(&run), digests(&undisturbed(&clean, "optimizer")));
}

#[test]
fn killed_rank_restarts_with_its_agent_and_costs_no_bit() {
    disturbed_by("KILL");
}

#[test]
fn stopped_rank_restarts_with_its_agent_and_costs_no_bit() {
    disturbed_by("STOP");
}
