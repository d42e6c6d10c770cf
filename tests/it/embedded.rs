//! The whole run in one process.

use std::collections::BTreeSet;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use tests::program::{Program, json_folder, metrics, signal as signal_to, wait_until};
use tests::small::Small;
use tests::trace::{audit, final_digest, rewards, successes, without_times};

use crate::{DYAD, program};

/// Runs the signal game for a few steps and returns its metrics.
fn signal(program: &Program, seed: &str, steps: &str) -> Vec<Value> {
    let folder = program.play("run", "configs/signal.toml", &["--seed", seed, "--steps", steps]);
    let mut lines = metrics(&folder, "train");
    lines.extend(metrics(&folder, "eval"));
    lines.extend(metrics(&folder, "checkpoint"));
    without_times(lines)
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let (first, second) = (program(), program());
    let (one, two) = (signal(&first, "3", "12"), signal(&second, "3", "12"));
    assert!(
        one.iter().any(|line| line["kind"] == "checkpoint"),
        "digests are compared"
    );
    assert!(
        one.iter().filter(|line| line["kind"] == "train").count() == 24,
        "12 steps of two agents"
    );
    assert_eq!(one, two);
    let other = signal(&program(), "4", "12");
    assert_ne!(one, other, "another seed is another run");
}

#[test]
fn logs_have_starts_of_agents_and_ends_of_conversations() {
    let program = program();
    let folder = program.play("run", "configs/signal.toml", &["--steps", "1"]);
    for agent in ["a", "b"] {
        let log = std::fs::read_to_string(folder.join(format!("logs/{agent}.jsonl"))).unwrap();
        let begins = log.lines().find(|line| line.contains("\"message\":\"starting\""));
        assert!(
            begins.is_some_and(|line| line.contains("\"stage\":")),
            "{agent}:\n{log}"
        );
        assert!(!log.contains("holding"), "a detail for debugging:\n{log}");
        let batch = log
            .lines()
            .find(|line| line.contains("\"message\":\"trained a batch\""));
        let batch: Value = serde_json::from_str(batch.expect("one line for each batch")).unwrap();
        assert!(batch["step"].is_number(), "{batch}");
        let numbers = ["entropy", "tokens_per_s", "wait_s", "train_s"];
        assert!(numbers.iter().all(|name| batch[name].is_number()), "{batch}");
        let role = if agent == "a" { "speaker" } else { "listener" };
        assert!(batch["rewards"].as_str().unwrap().starts_with(role), "{batch}");
    }
    let transcripts = json_folder(&folder.join("transcripts"));
    let id = transcripts[0]["conversation"].as_str().unwrap();
    let runs = program.runs();
    let shown = |more: &[&str]| program.succeed(&[&["logs", "--runs", runs.to_str().unwrap()], more].concat());
    let found = shown(&["--conversation", id]);
    assert!(found.contains(id) && found.contains("a conversation ended"), "{found}");
    assert!(
        found.contains("listener ") && found.contains("status=completed"),
        "{found}"
    );
    assert!(!shown(&["coordinator"]).contains("a conversation ended"));
    let mut followed = program.start(&["logs", "a", "--follow", "--runs", runs.to_str().unwrap()]);
    followed.finish(Duration::from_secs(60));
    assert!(followed.log().contains(" ended at "), "{}", followed.log());
}

#[test]
fn every_sample_is_trained_once() {
    let program = program();
    let lines = signal(&program, "0", "6");
    for line in lines.iter().filter(|line| line["kind"] == "train") {
        assert_eq!(line["samples"], 256);
        assert_eq!(line["samples/truncated"], 0, "one token is a whole turn of this game");
        assert_eq!(
            line["staleness/max"], 0,
            "synchronous rounds train on their own weights"
        );
        let of_roles = line.as_object().unwrap().iter();
        let of_roles = of_roles.filter(|(key, _)| key.starts_with("role/") && key.ends_with("/staleness/samples/0"));
        let samples: u64 = of_roles.map(|(_, samples)| samples.as_u64().unwrap()).sum();
        assert_eq!(samples, 256, "each sample counts in its role: {line}");
        let gap = line["mismatch/on_policy_gap"].as_f64().unwrap();
        assert!(gap <= 1e-4, "sampler and trainer agree: {gap}");
    }
    for agent in ["a", "b"] {
        let audit = audit(&program.run_folder(), agent);
        assert_eq!(
            (audit.counts.trained, audit.twice, audit.missing),
            (6 * 256, 0, 0),
            "{audit:?}"
        );
    }
}

/// Each agent's router divides its conversations between two engines in the same way each time.
#[test]
fn two_engines_of_an_agent_repeat_and_serve_the_newest_weights() {
    let run = || {
        let program = program();
        let config = Small::new()
            .set("workflow.group_size", 16)
            .set("defaults.agent.train.batch_groups", 4)
            .set("defaults.agent.engine.replicas", 2)
            .save(&program);
        let folder = program.play("run", &config, &["--steps", "6"]);
        let mut lines = metrics(&folder, "train");
        lines.extend(metrics(&folder, "checkpoint"));
        without_times(lines)
    };
    let (one, two) = (run(), run());
    assert_eq!(one, two);
    for line in one.iter().filter(|line| line["kind"] == "train") {
        let gap = line["mismatch/on_policy_gap"].as_f64().unwrap();
        assert!(
            line["staleness/max"] == 0 && gap <= 1e-4,
            "both engines serve the newest weights: {line}"
        );
    }
}

/// Two agents with random weights invent a language: after a few dozen rounds they are far above
/// chance (1/16).
#[test]
fn both_agents_get_better() {
    let program = program();
    signal(&program, "1", "60");
    let run = program.run_folder();
    for agent in ["a", "b"] {
        let (first, last) = rewards(&run, agent, 5);
        assert!(first < 0.3 && last > first + 0.25, "{agent}: {first} -> {last}");
    }
    let successes = successes(&run);
    assert!(
        successes.first().unwrap().1 < 0.3 && successes.last().unwrap().1 > 0.5,
        "{successes:?}"
    );
}

/// A synchronous batch is sampled from the weights at its start. Decoupled, every weight is
/// therefore 1 and the gradient the same, except that a cap of 0.5 halves it.
#[test]
fn a_decoupled_gradient_is_the_coupled_one_times_its_weight() {
    let gradients = |ratio: &str, cap: f64| -> Vec<f64> {
        let program = program();
        let config = Small::new()
            .set("workflow.group_size", 32)
            .set("defaults.agent.train.epochs", 2)
            .set("defaults.agent.train.entropy", 0.0)
            .set("defaults.agent.train.loss.ratio", ratio)
            .set("defaults.agent.train.loss.weight_cap", cap)
            .save(&program);
        let folder = program.play("run", &config, &["--steps", "1"]);
        let lines = metrics(&folder, "train");
        lines
            .iter()
            .map(|line| line["optim/grad_norm"].as_f64().unwrap())
            .collect()
    };
    let coupled = gradients("behaviour", 5.0);
    assert!(
        coupled.len() == 2 && coupled.iter().all(|norm| *norm > 1e-3),
        "{coupled:?}"
    );
    for (cap, share) in [(5.0, 1.0), (0.5, 0.5)] {
        for (decoupled, coupled) in gradients("decoupled", cap).iter().zip(&coupled) {
            let gap = (decoupled / coupled - share).abs();
            assert!(gap < 0.05 * share, "cap {cap}: {decoupled} against {coupled}");
        }
    }
}

/// The weights that sampled the batch are those that are trained. Each loss then has the plain
/// policy gradient, and its own gradient after a step.
#[test]
fn every_loss_begins_with_the_policy_gradient() {
    let run = |kind: &str, epochs: i64| -> (Vec<f64>, String) {
        let program = program();
        let small = match kind {
            "m2po" => Small::new().set("defaults.agent.train.loss.tau", 1e-4),
            "dro" => Small::new().set("defaults.agent.train.loss.beta", 1.0),
            _ => Small::new(),
        };
        let config = small
            .set("workflow.group_size", 32)
            .set("defaults.agent.train.epochs", epochs)
            .set("defaults.agent.train.entropy", 0.0)
            .without("defaults.agent.train.entropy_final")
            .set("defaults.agent.train.optimizer.lr", 0.02)
            .set("defaults.agent.train.loss.kind", kind)
            .save(&program);
        let folder = program.play("run", &config, &["--steps", "1"]);
        let lines = metrics(&folder, "train");
        let norms = lines.iter().map(|line| line["optim/grad_norm"].as_f64().unwrap());
        (norms.collect(), final_digest(&folder, "a"))
    };
    let kinds = ["grpo", "importance_sampling", "cispo", "dro", "m2po"];
    let (first, _) = run(kinds[0], 1);
    assert!(first.len() == 2 && first.iter().all(|norm| *norm > 1e-3), "{first:?}");
    for kind in &kinds[1..] {
        for (norm, first) in run(kind, 1).0.iter().zip(&first) {
            assert!((norm / first - 1.0).abs() < 1e-3, "{kind}: {norm} against {first}");
        }
    }
    let ends: BTreeSet<String> = kinds.iter().map(|kind| run(kind, 2).1).collect();
    assert_eq!(
        ends.len(),
        kinds.len(),
        "each loss ends with other weights after two steps: {ends:?}"
    );
    // An answer of one word has one ratio.
    let (gspo, grpo) = (run("gspo", 2).0, run("grpo", 2).0);
    for (norm, same) in gspo.iter().zip(&grpo) {
        assert!((norm / same - 1.0).abs() < 1e-4, "gspo: {norm} against {same}");
    }
}

/// REINFORCE++ needs one conversation of a task, and its KL lowers advantages. The KL is zero at
/// first, because the policy is its own reference, and then grows.
#[test]
fn reinforce_plus_plus_takes_the_kl_off_the_advantages() {
    let program = program();
    let config = Small::new()
        .set("workflow.group_size", 1)
        .set("defaults.agent.train.batch_groups", 64)
        .set("defaults.agent.train.advantage", "reinforce_plus_plus")
        .set("defaults.agent.train.kl.coef", 0.1)
        .set("defaults.agent.train.kl.kind", "k2")
        .set("defaults.agent.train.kl.place", "reward")
        .set("defaults.agent.train.optimizer.lr", 0.01)
        .save(&program);
    let lines = metrics(&program.play("run", &config, &["--steps", "3"]), "train");
    for agent in ["a", "b"] {
        let own = lines.iter().filter(|line| line["agent"] == agent);
        let kl: Vec<f64> = own.map(|line| line["advantage/kl"].as_f64().unwrap()).collect();
        assert!(kl.len() == 3 && kl[0].abs() < 1e-9 && kl[2] > 1e-6, "{agent}: {kl:?}");
    }
    let trained =
        |line: &Value| line["tokens/trained"].as_u64().unwrap() > 0 && line["optim/grad_norm"].as_f64() > Some(1e-4);
    assert!(lines.iter().all(trained), "each batch has a gradient");
}

#[test]
fn two_agents_train_adapters_of_one_base() {
    let first = program();
    signal(&first, "0", "1");
    let base = first.run_folder().join("models/a");
    let untouched = std::fs::read(base.join("model.safetensors")).unwrap();
    let second = program();
    let config = Small::of("configs/signal.toml").adapters(&base, 8).save(&second);
    let run = second.play("run", &config, &["--steps", "4"]);
    let trained = metrics(&run, "train");
    assert_eq!(trained.len(), 8, "4 steps of two agents");
    for line in &trained {
        let gap = line["mismatch/on_policy_gap"].as_f64().unwrap();
        assert!(gap <= 1e-4, "sampler and trainer agree: {gap}");
    }
    let logs = std::fs::read_dir(run.join("logs")).unwrap();
    let logs: String = logs
        .map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap())
        .collect();
    assert_eq!(logs.matches("sharing a base that is already loaded").count(), 1);
    let adapters = ["a", "b"].map(|agent| {
        let folder = run.join("checkpoints").join(agent).join("step-4");
        assert!(folder.join("adapter_config.json").is_file() && !folder.join("model.safetensors").exists());
        std::fs::read(folder.join("adapter_model.safetensors")).unwrap()
    });
    assert_ne!(adapters[0], adapters[1]);
    assert_eq!(std::fs::read(base.join("model.safetensors")).unwrap(), untouched);
}

/// The parts of a step's time, with the time since the step before.
#[test]
fn parts_of_steps_make_up_their_wall_time() {
    let program = program();
    let folder = program.play("run", "configs/signal.toml", &["--steps", "30"]);
    let lines = metrics(&folder, "train");
    let seconds = |line: &Value, part: &str| line[format!("time/{part}_s")].as_f64().unwrap();
    for agent in ["a", "b"] {
        let steps: Vec<&Value> = lines.iter().filter(|line| line["agent"] == agent).collect();
        assert_eq!(steps.len(), 30, "{agent}");
        let wall = seconds(steps[29], "elapsed") - seconds(steps[0], "elapsed");
        let parts = [
            "wait",
            "checkpoint",
            "ledger",
            "old_logprobs",
            "forward_backward",
            "optimizer",
            "publish",
        ];
        let spent: f64 = steps[1..]
            .iter()
            .flat_map(|line| parts.map(|part| seconds(line, part)))
            .sum();
        assert!(
            (0.95..1.05).contains(&(spent / wall)),
            "agent {agent}: {spent} of {wall} s"
        );
    }
}

/// Plays the arithmetic game on a terminal of its own, from `script`, until all parts were on it.
fn shown_on_a_terminal(command: &str, parts: &[&str]) {
    let program = program();
    let screen = program.home().join("screen");
    let runs = program.runs();
    let command = format!(
        "{DYAD} {command} configs/arithmetic.toml --steps 1 --folder {}",
        runs.display()
    );
    let mut script = Command::new("script")
        .args(["-qefc", &command, screen.to_str().unwrap()])
        .current_dir(Program::root())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    for part in parts {
        wait_until(part, Duration::from_secs(120), || {
            std::fs::read(&screen).is_ok_and(|text| String::from_utf8_lossy(&text).contains(part))
        });
    }
    signal_to("TERM", script.id());
    script.wait().unwrap();
}

#[test]
fn start_of_agents_is_shown_on_a_terminal() {
    let parts = ["step 0/1", "starting", "making a random model", "warm start: step "];
    shown_on_a_terminal("run", &parts);
}

/// Each process loads by itself, and the supervisor shows what it does.
#[test]
fn start_of_processes_is_shown_on_a_terminal() {
    let parts = [
        "starting  solver: ",
        "starting  verifier: ",
        "solver: warm start: step ",
    ];
    shown_on_a_terminal("up", &parts);
}
