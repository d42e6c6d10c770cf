//! Runs with the moving average of the weights as reference policy and with recomputed activations.
//! Killed and resumed, they end with the weights of an undisturbed run.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tests::program::Program;
use tests::small::Small;
use tests::trace::{audit, batches, final_digest, train};

use crate::program;

const PATIENCE: Duration = Duration::from_secs(120);
const STEPS: u64 = 24;

fn whole() -> Small {
    Small::new()
        .set("run.train_steps", STEPS as i64)
        .set("workflow.group_size", 64)
        .set("defaults.agent.train.optimizer.lr", 0.01)
        .set("defaults.agent.train.ema.decay", 0.8)
        .set("defaults.agent.train.kl.coef", 0.1)
        .set("defaults.agent.train.kl.ref", "ema")
        .set("defaults.agent.train.checkpoint_activations", true)
}

/// Runs to the end without faults; the program keeps its folder.
fn undisturbed(config: &Small) -> (Program, PathBuf) {
    let program = program();
    let run = program.play("run", &config.save(&program), &[]);
    (program, run)
}

/// Kills a run with SIGKILL after each number of further batches, and resumes it.
fn killed(config: &Small, after: &[usize]) -> (Program, PathBuf) {
    let program = program();
    let mut running = program.launch("run", &config.save(&program), &[]);
    let run = program.run_folder();
    let mut before = 0;
    for more in after {
        running.kill_when("some batches", PATIENCE, || batches(&run, "a") >= before + *more);
        before = batches(&run, "a");
        running = program.start(&["run", "--resume", run.to_str().unwrap()]);
    }
    running.finish(PATIENCE);
    (program, run)
}

fn ends(run: &Path) -> [String; 2] {
    ["a", "b"].map(|agent| final_digest(run, agent))
}

/// Returns the KL to the reference of each batch of an agent.
fn divergence(run: &Path, agent: &str) -> Vec<f64> {
    let lines = train(run, agent).into_iter();
    lines.map(|line| line["loss/reference_kl"].as_f64().unwrap()).collect()
}

fn average_of(run: &Path, agent: &str, file: &str) -> Vec<u8> {
    let step = format!("step-{STEPS}");
    let path = run.join("checkpoints").join(agent).join(step).join("ema").join(file);
    std::fs::read(path).unwrap()
}

fn equals_an_undisturbed_run(config: impl Fn() -> Small, file: &str) {
    let (_clean, clean) = undisturbed(&config());
    let (_killed, broken) = killed(&config(), &[3, 6]);
    assert_eq!(ends(&broken), ends(&clean));
    for agent in ["a", "b"] {
        assert!(
            average_of(&broken, agent, file) == average_of(&clean, agent, file),
            "the average of {agent}"
        );
        let audit = audit(&broken, agent);
        assert_eq!(
            (audit.counts.trained, audit.twice),
            (STEPS * 2 * 64, 0),
            "{agent}: {audit:?}"
        );
        let kl = divergence(&clean, agent);
        assert!(
            kl.len() as u64 == STEPS && kl[0].abs() < 1e-9 && kl[2] > 1e-7,
            "weights leave their average: {kl:?}"
        );
    }
    // Another reference gives other weights, and the gradients equal those without recomputation.
    let initial = config().set("defaults.agent.train.kl.ref", "initial");
    assert_ne!(ends(&undisturbed(&initial).1), ends(&clean));
    let kept = config().set("defaults.agent.train.checkpoint_activations", false);
    assert_eq!(ends(&undisturbed(&kept).1), ends(&clean));
}

#[test]
#[ignore = "slow: `make test-long`; its neighbours show the same promise"]
fn a_killed_run_with_an_average_resumes_exactly() {
    equals_an_undisturbed_run(whole, "model.safetensors");
}

#[test]
fn a_killed_run_of_adapters_with_an_average_resumes_exactly() {
    let (_made, made) = undisturbed(&whole().set("run.train_steps", 1));
    let base = made.join("models/a");
    equals_an_undisturbed_run(|| whole().adapters(&base, 4), "adapter_model.safetensors");
}
