//! Tokens of recorded turns: `tokens/<agent>.jsonl`, one line per turn, written by its agent.

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

/// Writes the records of one agent.
#[derive(Debug, Clone)]
pub struct TokenRecords(Appender);

impl TokenRecords {
    pub fn open(path: &Path) -> io::Result<Self> {
        Appender::rotated(path, LARGEST).map(Self)
    }

    pub fn write(&self, record: &TokenRecord) {
        if let Ok(line) = serde_json::to_vec(record) {
            self.0.line(line);
        }
    }
}

/// Returns the recorded turns of a conversation in `files`. If a turn was generated again after a
/// crash, only its last record counts.
pub fn tokens_of(files: &[PathBuf], conversation: &str) -> io::Result<Vec<TokenRecord>> {
    let begin = format!("{{\"conversation\":\"{conversation}\",");
    let mut found: Vec<TokenRecord> = Vec::new();
    for path in files {
        for line in io::BufReader::with_capacity(1 << 20, std::fs::File::open(path)?).split(b'\n') {
            let line = line?;
            if !line.starts_with(begin.as_bytes()) {
                continue;
            }
            let Ok(record) = serde_json::from_slice::<TokenRecord>(&line) else {
                continue;
            };
            let place = |one: &TokenRecord| (one.role.clone(), one.seat, one.turn);
            found.retain(|known| place(known) != place(&record));
            found.push(record);
        }
    }
    Ok(found)
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
        assert_eq!(found, [record(1, 1, "y"), record(1, 0, "again")]);
    }
}
