//! Tokens of recorded turns: `tokens/<agent>.jsonl`, written by their agent. It has a line for each
//! turn, and one for each optimizer step that had the turn.

use std::io::{self, BufRead};
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Appender;

/// The size in bytes at which a file is renamed to `<agent>.old.jsonl`, which replaces an older
/// one.
const LARGEST: u64 = 256 << 20;

/// The tokens of one turn, with their log-probs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TokenRecord {
    /// `<group in hex>/<member>`. This must stay the first field: readers parse only lines that
    /// begin with the conversation they look for.
    pub conversation: String,
    pub role: String,
    pub seat: u16,
    pub turn: u16,
    pub ids: Vec<u32>,
    /// The text of each token, control tokens included. A token that is a part of a character shows
    /// the replacement character.
    pub pieces: Vec<String>,
    /// One per token; null if it is not finite.
    pub logprobs: Vec<Option<f32>>,
    /// The distribution of the log-probs, as in transcripts.
    pub logprobs_of: String,
    /// The weights of each part of the turn.
    pub spans: Vec<TokenSpan>,
}

/// The tokens `start..end`, sampled by weights `version`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TokenSpan {
    /// `lineage.step`
    pub version: String,
    pub start: u32,
    pub end: u32,
}

/// The tokens of one turn in an optimizer step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TokenTraining {
    /// The same as in [`TokenRecord`], and the first field for the same reason.
    pub conversation: String,
    pub role: String,
    pub seat: u16,
    /// The number of the turn among those with tokens that this seat spoke, from 0.
    pub place: usize,
    pub ids: Vec<u32>,
    pub training: TurnTraining,
}

/// The outcome of an optimizer step for the tokens of a turn. Each list has one value per token,
/// null where the token is not trained or the value is not finite.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TurnTraining {
    /// The batch, as in the ledger's verdicts.
    pub step: u64,
    /// The optimizer step within the batch, from 1.
    pub update: u32,
    /// Log-probs under the weights before the step.
    pub logprobs: Vec<Option<f32>>,
    /// Ratios of these weights to those that the loss compares with.
    pub ratios: Vec<Option<f32>>,
    pub advantages: Vec<Option<f32>>,
    pub outcomes: Vec<TokenOutcome>,
}

/// Whether a token is trained, and if not, why.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TokenOutcome {
    Trained,
    /// The loss bounds its ratio, or masks it because of its ratio.
    Clipped,
    /// It is older than `train.max_staleness`.
    Stale,
    /// It is trained or clipped: the loss bounds tokens by their micro-batch (M2PO).
    Unknown,
}

/// A recorded turn, with every optimizer step that had it.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct RecordedTurn {
    #[serde(flatten)]
    pub record: TokenRecord,
    pub training: Vec<TurnTraining>,
}

/// Writes the records of one agent.
#[derive(Debug, Clone)]
pub struct TokenRecords(Appender);

impl TokenRecords {
    pub fn open(path: &Path) -> io::Result<Self> {
        Appender::rotated(path, LARGEST).map(Self)
    }

    pub fn write(&self, record: &TokenRecord) {
        self.line(record);
    }

    pub fn write_training(&self, record: &TokenTraining) {
        self.line(record);
    }

    fn line(&self, record: &impl Serialize) {
        if let Ok(line) = serde_json::to_vec(record) {
            self.0.line(line);
        }
    }
}

/// Returns the recorded turns of a conversation in `files`. If a turn was generated or trained
/// again after a crash, only its last record counts.
pub fn tokens_of(files: &[PathBuf], conversation: &str) -> io::Result<Vec<RecordedTurn>> {
    let begin = format!("{{\"conversation\":\"{conversation}\",");
    let mut found: Vec<TokenRecord> = Vec::new();
    let mut trained: Vec<TokenTraining> = Vec::new();
    for path in files {
        for line in io::BufReader::with_capacity(1 << 20, std::fs::File::open(path)?).split(b'\n') {
            let line = line?;
            if !line.starts_with(begin.as_bytes()) {
                continue;
            }
            if let Ok(record) = serde_json::from_slice::<TokenRecord>(&line) {
                let place = |one: &TokenRecord| (one.role.clone(), one.seat, one.turn);
                found.retain(|known| place(known) != place(&record));
                found.push(record);
            } else if let Ok(record) = serde_json::from_slice::<TokenTraining>(&line) {
                let step = |one: &TokenTraining| {
                    let training = &one.training;
                    (one.role.clone(), one.seat, one.place, training.step, training.update)
                };
                trained.retain(|known| step(known) != step(&record));
                trained.push(record);
            }
        }
    }
    Ok(joined(found, &trained))
}

/// Gives each turn the optimizer steps that had it.
fn joined(records: Vec<TokenRecord>, trained: &[TokenTraining]) -> Vec<RecordedTurn> {
    let spoken = |one: &TokenRecord| {
        let before = |other: &&TokenRecord| {
            (&other.role, other.seat) == (&one.role, one.seat) && other.turn < one.turn && !other.ids.is_empty()
        };
        records.iter().filter(before).count()
    };
    let places: Vec<usize> = records.iter().map(spoken).collect();
    let turn = |(record, place): (TokenRecord, usize)| {
        let is_of_turn = |one: &&TokenTraining| {
            (&one.role, one.seat, one.place) == (&record.role, record.seat, place) && one.ids == record.ids
        };
        let mut training: Vec<TurnTraining> = trained
            .iter()
            .filter(is_of_turn)
            .map(|one| one.training.clone())
            .collect();
        training.sort_by_key(|one| (one.step, one.update));
        RecordedTurn { training, record }
    };
    records.into_iter().zip(places).map(turn).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(member: u16, turn: u16, text: &str) -> TokenRecord {
        TokenRecord {
            conversation: format!("ab/{member}"),
            role: "speaker".into(),
            seat: 0,
            turn,
            ids: vec![7],
            pieces: vec![text.into()],
            logprobs: vec![Some(-0.5)],
            logprobs_of: "sampled".into(),
            spans: Vec::new(),
        }
    }

    #[test]
    fn turn_that_was_generated_again_has_its_last_record() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens/a.jsonl");
        let records = TokenRecords::open(&path).unwrap();
        for one in [
            record(1, 0, "x"),
            record(1, 1, "y"),
            record(11, 0, "z"),
            record(1, 0, "again"),
        ] {
            records.write(&one);
        }
        drop(records);
        let found = tokens_of(&[path], "ab/1").unwrap();
        let found: Vec<TokenRecord> = found.into_iter().map(|turn| turn.record).collect();
        assert_eq!(found, [record(1, 1, "y"), record(1, 0, "again")]);
    }

    #[test]
    fn turn_has_the_optimizer_steps_of_its_own_tokens() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens/a.jsonl");
        let records = TokenRecords::open(&path).unwrap();
        // Turn 1 has no tokens, so the trainer knows only two turns.
        let mut silent = record(1, 1, "");
        (silent.ids, silent.pieces, silent.logprobs) = (Vec::new(), Vec::new(), Vec::new());
        for one in [record(1, 0, "x"), silent, record(1, 2, "y")] {
            records.write(&one);
        }
        let step = |place: usize, step: u64, ids: &[u32], ratio: f32| TokenTraining {
            conversation: "ab/1".into(),
            role: "speaker".into(),
            seat: 0,
            place,
            ids: ids.to_vec(),
            training: TurnTraining {
                step,
                update: 1,
                logprobs: vec![Some(-0.5)],
                ratios: vec![Some(ratio)],
                advantages: vec![Some(1.0)],
                outcomes: vec![TokenOutcome::Trained],
            },
        };
        for one in [
            step(0, 4, &[7], 1.0),
            step(1, 5, &[7], 1.5),
            step(1, 4, &[7], 1.0),
            // The same step once more after a crash, and another text that was never spoken here.
            step(1, 5, &[7], 1.25),
            step(0, 5, &[8], 1.0),
        ] {
            records.write_training(&one);
        }
        drop(records);
        let found = tokens_of(&[path], "ab/1").unwrap();
        let steps = |turn: &RecordedTurn| -> Vec<(u64, Option<f32>)> {
            turn.training.iter().map(|one| (one.step, one.ratios[0])).collect()
        };
        let found: Vec<(u16, Vec<_>)> = found.iter().map(|turn| (turn.record.turn, steps(turn))).collect();
        assert_eq!(
            found,
            [
                (0, vec![(4, Some(1.0))]),
                (1, vec![]),
                (2, vec![(4, Some(1.0)), (5, Some(1.25))])
            ]
        );
    }
}
