//! The records of a run as numbers by which two runs are compared.

use std::path::Path;

use agents::ledger::{Audit, Inspector};
use serde_json::Value;

use crate::program::metrics;

/// Returns the digests of all checkpoints as (agent, step, digest), each once.
#[must_use]
pub fn digests(run: &Path) -> Vec<(String, u64, String)> {
    let text = |line: &Value, key: &str| line[key].as_str().unwrap_or_default().to_owned();
    let mut list: Vec<_> = metrics(run, "checkpoint")
        .iter()
        .map(|line| {
            (
                text(line, "agent"),
                line["step"].as_u64().unwrap_or(0),
                text(line, "digest"),
            )
        })
        .collect();
    list.sort();
    list.dedup();
    list
}

/// Returns the digest of an agent's newest checkpoint: of weights, optimizer and trained samples.
#[must_use]
pub fn final_digest(run: &Path, agent: &str) -> String {
    let checkpoints = run.join("checkpoints").join(agent);
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let latest = read(checkpoints.join("LATEST"));
    let manifest = read(checkpoints.join(latest.trim()).join("manifest.json"));
    let manifest: Value = serde_json::from_str(&manifest).unwrap_or_default();
    format!(
        "{} at step {}",
        manifest["digest"].as_str().unwrap_or("none"),
        manifest["step"]
    )
}

/// Returns the success of the evaluations, by step.
#[must_use]
pub fn successes(run: &Path) -> Vec<(u64, f64)> {
    let evals = metrics(run, "eval");
    evals
        .iter()
        .map(|line| {
            (
                line["step"].as_u64().unwrap_or(0),
                line["success"].as_f64().unwrap_or(-1.0),
            )
        })
        .collect()
}

/// Returns the mean reward of an agent's first and last `n` batches.
#[must_use]
pub fn rewards(run: &Path, agent: &str, n: usize) -> (f64, f64) {
    let lines: Vec<Value> = metrics(run, "train")
        .into_iter()
        .filter(|line| line["agent"] == agent)
        .collect();
    let mean = |part: &[Value]| part.iter().filter_map(|l| l["reward/mean"].as_f64()).sum::<f64>() / part.len() as f64;
    (mean(&lines[..n]), mean(&lines[lines.len() - n..]))
}

/// Returns the audit of one agent's ledger, which must have no violations.
#[must_use]
pub fn audit(run: &Path, agent: &str) -> Audit {
    let audit = Inspector::open(&run.join("buffer").join(format!("{agent}.sqlite")))
        .unwrap()
        .audit()
        .unwrap();
    assert!(audit.violations().is_empty(), "{agent}: {:?}", audit.violations());
    audit
}
