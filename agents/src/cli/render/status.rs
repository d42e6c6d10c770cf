//! The state of a run as text.

use std::collections::BTreeMap;
use std::fmt::Write;

use broker::protocol::control::{Heartbeat, RunPhase};
use serde_json::Value;

use super::table::{Align, Table};
use crate::cli::status::listener::{LiveState, Status};

/// The meaning of the table's columns.
const LEGEND: &str = "\
step: batches trained, of the run's    weights: served version, lineage.step
reward, staleness (in steps): means of the last batch
ready: closed groups to train on    reserved: groups in play    capacity: room for more groups

";

/// Columns that only heartbeats fill.
const OF_BEATS: [&str; 4] = ["weights", "ready", "reserved", "capacity"];

/// The number of batches without anything to learn from which the page says so.
const IDLE: u64 = 3;

/// Formats the page; `steps` is the run's last step.
#[must_use]
pub fn render(status: &Status, steps: u64) -> String {
    let mut text = format!("{}\n", status.run);
    if let Some(over) = &status.over {
        let _ = writeln!(text, "{over}");
    } else if let Some(reason) = &status.offline {
        let _ = writeln!(text, "no live state: {reason}\nthe rest is from the run folder");
    }
    text.push_str(&agents(status, steps));
    if let Some(state) = &status.live {
        text.push_str(LEGEND);
        for (name, does) in &status.waits {
            let _ = writeln!(text, "{name}: {does}");
        }
        text.push('\n');
        text.push_str(&live(state));
    }
    let coordinated = status.live.as_ref().is_some_and(|live| !live.coordinators.is_empty());
    if let Some(stalled) = status.metrics.stalled.as_ref().filter(|_| !coordinated) {
        let reason = stalled.get("reason").and_then(Value::as_str).unwrap_or_default();
        let _ = writeln!(text, "STOPPED, because nothing can be learned: {reason}");
    }
    for (name, batches) in status.metrics.idle.iter().filter(|(_, batches)| **batches >= IDLE) {
        let _ = writeln!(
            text,
            "agent {name} learns nothing: in its last {batches} batches every group had equal rewards, or every sample \
             was discarded; `dyad conversations` shows the answers and their rewards"
        );
    }
    if let Some(eval) = &status.metrics.eval {
        let shown: Vec<String> = eval
            .iter()
            .filter(|(name, _)| !["kind", "step"].contains(&name.as_str()))
            .filter(|(name, _)| !name.starts_with("time/") && !name.starts_with("weights/"))
            .filter_map(|(name, value)| Some(format!("{name} {:.3}", value.as_f64()?)))
            .collect();
        let step = eval.get("step").and_then(Value::as_u64).unwrap_or(0);
        let _ = writeln!(text, "evaluated at step {step}: {}", shown.join("  "));
    }
    text
}

fn agents(status: &Status, steps: u64) -> String {
    let empty = BTreeMap::new();
    let beats = status.live.as_ref().map_or(&empty, |state| &state.agents);
    let mut names: Vec<&String> = beats.keys().chain(status.metrics.train.keys()).collect();
    names.sort();
    names.dedup();
    let mut table = Table::new(&[("agent", Align::Left)]);
    let is_live = status.live.is_some();
    if is_live {
        table.column("phase", Align::Left);
    }
    let columns = [
        "step",
        "weights",
        "reward",
        "staleness",
        "ready",
        "reserved",
        "capacity",
    ];
    for name in columns.into_iter().filter(|name| is_live || !OF_BEATS.contains(name)) {
        table.column(name, Align::Right);
    }
    for name in names {
        let metric = |key: &str| {
            status
                .metrics
                .train
                .get(name)
                .and_then(|line| line.get(key))
                .and_then(Value::as_f64)
        };
        let beat = beats.get(name);
        let shown = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.3}"));
        let step = beat
            .map(|beat| beat.step)
            .or(metric("step").map(|step| step as u64))
            .unwrap_or(0);
        let of_beat = |value: fn(&Heartbeat) -> String| beat.map_or_else(|| "-".to_owned(), value);
        let phase = match beat {
            Some(beat) if !beat.holding.is_empty() => "holding".into(),
            Some(beat) if beat.phase == RunPhase::Running && beat.run.phase == RunPhase::Paused => "paused".into(),
            Some(beat) => format!("{:?}", beat.phase).to_lowercase(),
            None => "silent".into(),
        };
        let step = format!("{step}/{steps}");
        let reward = shown(beat.and_then(|beat| beat.reward).or(metric("reward/mean")));
        let staleness = shown(metric("staleness/mean"));
        if !is_live {
            table.row(vec![name.clone(), step, reward, staleness]);
            continue;
        }
        table.row(vec![
            name.clone(),
            phase,
            step,
            of_beat(|beat| beat.version.to_string()),
            reward,
            staleness,
            of_beat(|beat| beat.ready.to_string()),
            of_beat(|beat| beat.reserved.to_string()),
            // A run that trains recorded batches again has more than it takes.
            of_beat(|beat| beat.capacity.max(0).to_string()),
        ]);
    }
    format!("\n{table}\n")
}

fn live(state: &LiveState) -> String {
    let mut text = String::new();
    for (name, beat) in &state.coordinators {
        let _ = writeln!(
            text,
            "coordinator {name}  {}  {} groups open, {} done, {} conversations, {} turns, {} tasks dead",
            format!("{:?}", beat.phase).to_lowercase(),
            beat.open_groups,
            beat.finished_groups,
            beat.finished_conversations,
            beat.turns,
            beat.dead_tasks
        );
    }
    for (name, why) in state
        .coordinators
        .iter()
        .filter_map(|(name, beat)| Some((name, beat.stalled.as_ref()?)))
    {
        let _ = writeln!(
            text,
            "PAUSED by {name}, because nothing can be learned: {why}; correct the cause, then `dyad resume`"
        );
    }
    if state.coordinators.is_empty() {
        text.push_str("no heartbeat from a coordinator\n");
    }
    if let (Some(turns), Some(conversations)) = (state.turns_per_s, state.conversations_per_s) {
        let _ = writeln!(text, "{turns:.0} turns/s, {conversations:.0} conversations/s");
    }
    let waiting: Vec<String> = state
        .queues
        .iter()
        .filter(|(_, depth)| **depth > 0)
        .map(|(queue, depth)| format!("{queue} {depth}"))
        .collect();
    let waiting = if waiting.is_empty() {
        "all empty".into()
    } else {
        waiting.join(", ")
    };
    let _ = writeln!(text, "queues: {waiting}");
    text
}
