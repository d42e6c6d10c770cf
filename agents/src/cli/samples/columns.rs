//! The columns of exported samples: those of TRL's `log_completions`, then ours.

use std::collections::{BTreeMap, BTreeSet};

use parquet::data_type::ByteArray;
use serde_json::Value;

use super::fates::Fates;
use super::table::Column;
use crate::run_folder::logs::{Transcript, TranscriptTurn};

/// One turn of an agent.
pub(super) struct Row<'a> {
    transcript: &'a Transcript,
    turn: &'a TranscriptTurn,
    /// The task's, shared by the rows of a conversation.
    prompt: Option<ByteArray>,
    label: Option<ByteArray>,
    /// The parts of the seat's reward, and their `total`.
    rewards: Option<&'a BTreeMap<String, f64>>,
    advantage: Option<f64>,
    verdict: Option<String>,
}

/// Returns the turns of agents, in order. Programs and tools take turns too; these are left out.
pub(super) fn rows<'a>(transcripts: &'a [Transcript], is_agent: &dyn Fn(&str) -> bool, fates: &Fates) -> Vec<Row<'a>> {
    let mut rows = Vec::new();
    for transcript in transcripts {
        let (prompt, label) = (json_or_text(&transcript.prompt), json_or_text(&transcript.label));
        for turn in transcript.turns.iter().filter(|turn| is_agent(&turn.agent)) {
            let earned = of_seat(&transcript.earned, transcript, turn);
            rows.push(Row {
                transcript,
                turn,
                prompt: prompt.clone(),
                label: label.clone(),
                rewards: of_seat(&transcript.rewards, transcript, turn),
                advantage: earned.and_then(|earned| Some(earned.compared.as_ref()?.advantage)),
                verdict: fates.verdict(transcript, turn),
            });
        }
    }
    rows
}

/// Returns the value of a turn's seat. The key of a role's only value has no seat: if several seats
/// of the role spoke, its seat is unknown.
fn of_seat<'a, T>(values: &'a BTreeMap<String, T>, transcript: &Transcript, turn: &TranscriptTurn) -> Option<&'a T> {
    let is_other = |other: &TranscriptTurn| other.role == turn.role && other.seat != turn.seat;
    values.get(&format!("{}/{}", turn.role, turn.seat)).or_else(|| {
        let only = values.get(&turn.role)?;
        (!transcript.turns.iter().any(is_other)).then_some(only)
    })
}

/// Returns the columns of these rows. `parts` are the parts of rewards in the whole file.
pub(super) fn columns(rows: &[Row<'_>], parts: &BTreeSet<String>) -> Vec<Column> {
    let mut columns = vec![
        Column::integers("step", rows, |row| row.transcript.step),
        Column::texts("prompt", rows, |row| row.prompt.clone()),
        Column::texts("completion", rows, |row| text(&row.turn.text)),
        Column::numbers("reward", rows, |row| row.reward("total")),
    ];
    for part in parts {
        columns.push(Column::numbers(&format!("reward/{part}"), rows, |row| row.reward(part)));
    }
    columns.extend([
        Column::numbers("advantage", rows, |row| row.advantage),
        Column::texts("agent", rows, |row| text(&row.turn.agent)),
        Column::texts("role", rows, |row| text(&row.turn.role)),
        Column::integers("seat", rows, |row| row.turn.seat.into()),
        Column::integers("turn", rows, |row| row.turn.turn.into()),
        Column::texts("conversation", rows, |row| text(&row.transcript.conversation)),
        Column::texts("group", rows, |row| text(row.group())),
        Column::texts("task", rows, |row| text(&row.transcript.task)),
        Column::texts("label", rows, |row| row.label.clone()),
        Column::texts("version", rows, |row| text(&row.turn.version)),
        Column::integers("tokens", rows, |row| row.turn.tokens.into()),
        Column::numbers("mean_logprob", rows, Row::mean_logprob),
        Column::texts("finish", rows, |row| text(&row.turn.finish)),
        Column::texts("status", rows, |row| text(&row.transcript.status)),
        Column::flags("eval", rows, |row| row.transcript.eval),
        Column::texts("verdict", rows, |row| row.verdict.as_deref().and_then(text)),
    ]);
    columns
}

impl Row<'_> {
    fn reward(&self, part: &str) -> Option<f64> {
        self.rewards?.get(part).copied()
    }

    fn group(&self) -> &str {
        let id = self.transcript.conversation.as_str();
        id.split_once('/').map_or(id, |(group, _)| group)
    }

    /// Returns `None` for a turn without log-probs, which a transcript shows as 0.
    fn mean_logprob(&self) -> Option<f64> {
        let has_logprobs = self.turn.tokens > 0 && self.turn.logprobs_of != "absent";
        has_logprobs.then_some(self.turn.mean_logprob)
    }
}

fn text(text: &str) -> Option<ByteArray> {
    Some(ByteArray::from(text))
}

/// Returns a text as it is, and every other value as JSON.
fn json_or_text(value: &Value) -> Option<ByteArray> {
    match value {
        Value::Null => None,
        Value::String(plain) => text(plain),
        other => text(&other.to_string()),
    }
}
