//! The newest lines of a run's metrics files.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Map, Value};

use crate::run_folder::RunFolder;
use crate::run_folder::logs::read_json_lines;

/// The newest lines of the metrics files.
#[derive(Debug, Clone, Default, Serialize)]
pub struct LastMetrics {
    pub train: BTreeMap<String, Map<String, Value>>,
    pub eval: Option<Map<String, Value>>,
    /// Why the run stopped, if it has trained nothing since.
    pub stalled: Option<Map<String, Value>>,
    /// Samples that were left at the run's end, of all agents.
    #[serde(skip)]
    pub left: u64,
    /// By coordinator.
    #[serde(skip)]
    pub rates: BTreeMap<String, CoordinatorRates>,
}

/// Turns and conversations per second over the newest lines of a coordinator.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CoordinatorRates {
    pub turns: f64,
    pub conversations: f64,
}

/// Lines of totals that a rate is over; a coordinator writes one each second.
const RATE_LINES: usize = 10;

/// Reads the newest `train` line of each agent, the newest `eval` line, and why the run stopped.
pub fn last_metrics(folder: &RunFolder) -> anyhow::Result<LastMetrics> {
    let step = |line: &Map<String, Value>| line.get("step").and_then(Value::as_u64);
    let mut last = LastMetrics::default();
    for path in folder.files("metrics")? {
        let mut totals = Vec::new();
        for line in read_json_lines::<Map<String, Value>>(&path)? {
            match line.get("kind").and_then(Value::as_str) {
                Some("train") => {
                    let agent = line.get("agent").and_then(Value::as_str).unwrap_or_default().to_owned();
                    last.train.insert(agent, line);
                }
                Some("eval") if last.eval.as_ref().is_none_or(|eval| step(eval) <= step(&line)) => {
                    last.eval = Some(line)
                }
                Some("stalled") if last.stalled.as_ref().is_none_or(|stalled| step(stalled) <= step(&line)) => {
                    last.stalled = Some(line);
                }
                Some("discarded") => last.left += line.get("discarded/run_ended").and_then(Value::as_u64).unwrap_or(0),
                Some("coordinator") => totals.push(line),
                _ => {}
            }
        }
        let process = path.file_stem().unwrap_or_default().to_string_lossy();
        let newest = &totals[totals.len().saturating_sub(RATE_LINES)..];
        if let Some((name, rates)) = process.strip_prefix("coordinator-").zip(rates(newest)) {
            last.rates.insert(name.to_owned(), rates);
        }
    }
    // A line of step N was trained from the weights of step N.
    let trained = last.train.values().filter_map(step).max().map(|step| step + 1);
    last.stalled = last.stalled.filter(|stalled| step(stalled) >= trained);
    Ok(last)
}

/// Returns the rates between the first and the last line.
fn rates(totals: &[Map<String, Value>]) -> Option<CoordinatorRates> {
    let (first, last) = (totals.first()?, totals.last()?);
    let grown = |name: &str| Some(last.get(name)?.as_f64()? - first.get(name)?.as_f64()?);
    let seconds = grown("time/elapsed_s").filter(|seconds| *seconds > 0.0)?;
    Some(CoordinatorRates {
        turns: grown("turns")? / seconds,
        conversations: grown("conversations")? / seconds,
    })
}
