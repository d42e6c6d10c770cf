//! Agents with batches of different sizes: each steps when its own batch is full and trains every
//! sample once.

use std::path::{Path, PathBuf};

use agents::ledger::Audit;
use tests::program::Program;
use tests::small::Small;
use tests::trace::{audit, train};

use crate::program;

/// Samples of either agent in a group.
const SAMPLES: u64 = 128;

/// Plays a small run as three processes over servers. Batches of a have two groups, those of b
/// four.
fn played(config: Small, steps: u64) -> (Program, PathBuf) {
    let program = program();
    let config = config
        .set("run.train_steps", steps as i64)
        .set("agents.a.train.batch_groups", 2)
        .set("agents.b.train.batch_groups", 4)
        .save(&program);
    let folder = program.play("up", &config, &[]);
    (program, folder)
}

/// Asserts that every sample of the agent has one verdict, and returns the audit.
fn all_decided(run: &Path, agent: &str) -> Audit {
    let audit = audit(run, agent);
    let counts = &audit.counts;
    let decided = counts.trained + counts.discarded.values().sum::<u64>();
    assert_eq!(
        (decided, audit.decided),
        (audit.samples, audit.samples),
        "{agent}: {audit:?}"
    );
    let left = (counts.ready, counts.reserved, audit.twice, audit.missing, audit.partial);
    assert_eq!(left, (0, 0, 0, 0, 0), "{agent}: {audit:?}");
    audit
}

#[test]
#[ignore = "slow: `make test-long`; its neighbours show the same promise"]
fn two_steps_to_one_in_synchronous_rounds() {
    let config = Small::new().set("defaults.agent.train.optimizer.schedule", "linear");
    let (_program, run) = played(config, 8);
    for (agent, steps, last_lr) in [("a", 8, 1.25e-4), ("b", 4, 2.5e-4)] {
        let lines = train(&run, agent);
        assert_eq!(lines.len(), steps, "agent {agent}");
        let audit = all_decided(&run, agent);
        assert_eq!(audit.counts.trained, 16 * SAMPLES, "agent {agent}: {audit:?}");
        // Each agent's learning rate falls over its own steps: 1e-3 x (1 - 7/8) and 1e-3 x (1 -
        // 3/4).
        let lr = lines[steps - 1]["optim/lr"].as_f64().unwrap();
        assert!((lr - last_lr).abs() < 1e-9, "agent {agent}: {lr}");
    }
}

#[test]
fn two_steps_to_one_as_messages_arrive() {
    let (_program, run) = played(Small::scripted().set("run.last_batch", "train"), 20);
    assert_eq!(train(&run, "a").len(), 20, "the lead stops at its last step");
    all_decided(&run, "a");
    let groups = all_decided(&run, "b").samples / SAMPLES;
    // The lead's window is eight groups: (max_staleness + 1) x 2.
    assert!((40..=48).contains(&groups), "{groups}");
    let steps = train(&run, "b").len() as u64;
    assert_eq!(steps, groups.div_ceil(4), "whole batches, and the rest as a short one");
}

/// The slower agent leads; the faster one trains every group until then.
#[test]
#[ignore = "slow: `make test-long`; its neighbours show the same promise"]
fn the_agent_of_large_batches_may_lead() {
    let (_program, run) = played(Small::new().set("run.lead", "b"), 3);
    for (agent, steps) in [("a", 6), ("b", 3)] {
        assert_eq!(train(&run, agent).len(), steps, "agent {agent}");
        assert_eq!(all_decided(&run, agent).counts.trained, 12 * SAMPLES, "agent {agent}");
    }
}
