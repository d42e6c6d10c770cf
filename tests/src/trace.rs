//! The records of a run as numbers by which two runs are compared.

use std::path::{Path, PathBuf};

use agents::ledger::{Audit, Inspector};
use serde_json::Value;

use crate::program::{json_lines, metrics};

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
    let manifest = std::fs::read(checkpoint(run, agent).join("manifest.json")).unwrap_or_default();
    let manifest: Value = serde_json::from_slice(&manifest).unwrap_or_default();
    format!(
        "{} at step {}",
        manifest["digest"].as_str().unwrap_or("none"),
        manifest["step"]
    )
}

/// Returns the folder of an agent's newest checkpoint.
#[must_use]
pub fn checkpoint(run: &Path, agent: &str) -> PathBuf {
    let checkpoints = run.join("checkpoints").join(agent);
    let latest = std::fs::read_to_string(checkpoints.join("LATEST")).unwrap_or_default();
    checkpoints.join(latest.trim())
}

/// Returns the number of batches that an agent has trained so far.
#[must_use]
pub fn batches(run: &Path, agent: &str) -> usize {
    let lines = json_lines(&run.join("metrics").join(format!("{agent}.jsonl")));
    lines.iter().filter(|line| line["kind"] == "train").count()
}

/// Returns the metrics of each batch of an agent.
#[must_use]
pub fn train(run: &Path, agent: &str) -> Vec<Value> {
    let lines = metrics(run, "train").into_iter();
    lines.filter(|line| line["agent"] == agent).collect()
}

/// Removes times from metrics and transcripts, so that two runs are comparable.
#[must_use]
pub fn without_times(mut lines: Vec<Value>) -> Vec<Value> {
    for line in lines.iter_mut().filter_map(Value::as_object_mut) {
        line.retain(|key, _| !key.starts_with("time/"));
        let turns = line.get_mut("turns").and_then(Value::as_array_mut);
        for turn in turns.into_iter().flatten().filter_map(Value::as_object_mut) {
            turn.remove("time");
        }
    }
    lines
}

/// Returns the transcripts of a run.
#[must_use]
pub fn transcripts(run: &Path) -> Vec<Value> {
    let files = std::fs::read_dir(run.join("transcripts")).unwrap();
    let texts = files.map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap());
    let parsed =
        |text: String| -> Vec<Value> { text.lines().map(|line| serde_json::from_str(line).unwrap()).collect() };
    texts.flat_map(parsed).collect()
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
    let lines = train(run, agent);
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

/// Asserts that the agent trained and that nothing is lost or counted twice.
pub fn nothing_lost(run: &Path, agent: &str) {
    let audit = audit(run, agent);
    assert!(
        audit.counts.trained > 0 && audit.twice == 0 && audit.missing == 0,
        "{agent}: {audit:?}"
    );
}
