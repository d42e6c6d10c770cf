//! Transcripts: `transcripts/<process>.jsonl`, one line per conversation, with its turns and
//! rewards.

use std::collections::BTreeMap;
use std::io::{self, BufRead};
use std::path::Path;

use broker::protocol::turn::Message;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::numbers::{by_name, by_two_names, number};
use super::{Appender, Earned};

/// One conversation in readable form.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Transcript {
    /// `<group in hex>/<member>`
    pub conversation: String,
    pub task: String,
    /// The task's prompt: text, or a list of messages.
    #[serde(default)]
    pub prompt: Value,
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub label: Value,
    pub turns: Vec<TranscriptTurn>,
    /// By role (`role`, or `role/seat` where a role has several seats): the parts by name and their
    /// weighted sum as `total`.
    #[serde(default, deserialize_with = "by_two_names")]
    pub rewards: BTreeMap<String, BTreeMap<String, f64>>,
    /// By the same keys: the parts with their weights, the result of an operator of
    /// `[workflow.credit]`, and the advantage within the group.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub earned: BTreeMap<String, Earned>,
    /// The workflow's own metrics, for example `success`.
    #[serde(default, deserialize_with = "by_name", skip_serializing_if = "BTreeMap::is_empty")]
    pub metrics: BTreeMap<String, f64>,
    /// `completed`, `truncated` or `failed`.
    pub status: String,
    /// The lead agent's step when the conversation ended.
    #[serde(default)]
    pub step: u64,
    /// True for a conversation of an evaluation, which is never trained on.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub eval: bool,
}

/// One generation.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct TranscriptTurn {
    pub role: String,
    #[serde(default)]
    pub seat: u16,
    #[serde(default)]
    pub turn: u16,
    pub agent: String,
    /// The messages that its agent read since its last turn. From `dyad workflow test` without
    /// `--prompts` only rejected calls.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reads: Vec<Message>,
    pub text: String,
    #[serde(default)]
    pub tokens: u32,
    /// `lineage.step` of its newest weights; in `dyad workflow test` their name.
    #[serde(default)]
    pub version: String,
    /// The weights that sampled its tokens, in order, if they changed during the turn.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub versions: Vec<String>,
    /// `stop` or `length`.
    #[serde(default)]
    pub finish: String,
    #[serde(default, deserialize_with = "number")]
    pub mean_logprob: f64,
    /// The distribution of the log-probs: `sampled`, `truncated` (both those it was sampled from),
    /// `tempered`, `raw`, `unknown`, `absent`, or `scripted` in `dyad workflow test`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub logprobs_of: String,
    /// Differs between equal runs. Absent if the turn was committed by an earlier coordinator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<TurnTime>,
}

/// The times of a turn, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct TurnTime {
    /// Since the start of its group.
    pub asked: f64,
    /// The time that it waited at the engine. This and the next two are absent if the engine does
    /// not measure them, and for programs and tools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<f64>,
    /// The time in which the engine computed its prompt, to the first token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<f64>,
    /// The time in which the engine made the tokens after the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decode: Option<f64>,
    /// Since the start of its group: its answer reached the coordinator. Absent for programs and
    /// tools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answered: Option<f64>,
    /// Since the start of its group.
    pub committed: f64,
}

/// Writes transcripts, off the hot path.
#[derive(Debug, Clone)]
pub struct Transcripts(Appender);

impl Transcripts {
    pub fn open(path: &Path) -> io::Result<Self> {
        Appender::open(path).map(Self)
    }

    pub fn write(&self, transcript: &Transcript) {
        if let Ok(line) = serde_json::to_vec(transcript) {
            self.0.line(line);
        }
    }

    /// Writes all pending lines. Blocks the thread.
    pub fn flush(&self) {
        self.0.flush();
    }
}

/// Returns the conversations in `folder` (in its `*.jsonl` files) with an id that begins with
/// `wanted`.
pub fn find_conversation(folder: &Path, wanted: &str) -> io::Result<Vec<Transcript>> {
    select(folder, wanted, |transcript| transcript.conversation.starts_with(wanted))
}

/// Returns the conversations of a task in `folder`.
pub fn conversations_of(folder: &Path, task: &str) -> io::Result<Vec<Transcript>> {
    select(folder, task, |transcript| transcript.task == task)
}

/// Returns the wanted conversations among those that have `part` in their line.
fn select(folder: &Path, part: &str, wanted: impl Fn(&Transcript) -> bool) -> io::Result<Vec<Transcript>> {
    let entries = match std::fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    // JSON may escape characters of the text: only plain text is searched for in the lines.
    let plain = part.chars().all(|c| c.is_ascii_graphic() && !"\"\\".contains(c));
    let mut found = Vec::new();
    for entry in entries {
        let file = std::fs::File::open(entry?.path())?;
        for line in io::BufReader::new(file).lines() {
            let line = line?;
            // The cheap test comes first: most lines belong to other conversations.
            if plain && !line.contains(part) {
                continue;
            }
            if let Ok(transcript) = serde_json::from_str::<Transcript>(&line)
                && wanted(&transcript)
            {
                found.push(transcript);
            }
        }
    }
    found.sort_by(|a, b| a.conversation.cmp(&b.conversation));
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::super::{Compared, EarnedPart};
    use super::*;

    /// A grader that divides by zero must not hide the conversation that shows it.
    #[test]
    fn a_conversation_with_nan_metrics_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let transcripts = Transcripts::open(&folder.path().join("coordinator.jsonl")).unwrap();
        let earned = Earned {
            parts: vec![EarnedPart {
                name: "correct".into(),
                value: f64::NAN,
                weight: 1.0,
            }],
            total: f64::INFINITY,
            compared: Some(Compared {
                std: f64::NAN,
                ..Compared::default()
            }),
            ..Earned::default()
        };
        transcripts.write(&Transcript {
            conversation: "ab01/0".into(),
            turns: vec![TranscriptTurn {
                mean_logprob: f64::NEG_INFINITY,
                ..TranscriptTurn::default()
            }],
            rewards: [("solver".to_owned(), [("correct".to_owned(), f64::NAN)].into())].into(),
            earned: [("solver".to_owned(), earned)].into(),
            metrics: [("success".to_owned(), f64::NAN), ("tries".to_owned(), 2.0)].into(),
            ..Transcript::default()
        });
        transcripts.flush();
        let found = &find_conversation(folder.path(), "ab01").unwrap()[0];
        let earned = &found.earned["solver"];
        let lost = [
            found.turns[0].mean_logprob,
            found.rewards["solver"]["correct"],
            found.metrics["success"],
            earned.total,
            earned.parts[0].value,
            earned.compared.as_ref().unwrap().std,
        ];
        assert!(lost.iter().all(|figure| figure.is_nan()), "{lost:?}");
        assert_eq!((found.metrics["tries"], earned.parts[0].weight), (2.0, 1.0));
    }

    #[test]
    fn turn_of_one_version_is_written_and_read_without_versions() {
        let turn = |versions: &[&str]| TranscriptTurn {
            version: "1.2".into(),
            versions: versions.iter().map(|&version| version.to_owned()).collect(),
            ..TranscriptTurn::default()
        };
        let (one, two) = (turn(&[]), turn(&["1.1", "1.2"]));
        let line = |turn: &TranscriptTurn| serde_json::to_string(turn).unwrap();
        assert!(!line(&one).contains("versions"));
        assert!(line(&two).contains(r#""versions":["1.1","1.2"]"#));
        for turn in [one, two] {
            assert_eq!(serde_json::from_str::<TranscriptTurn>(&line(&turn)).unwrap(), turn);
        }
    }

    #[test]
    fn a_conversation_is_found_by_its_id_or_a_prefix() {
        let folder = tempfile::tempdir().unwrap();
        let transcripts = Transcripts::open(&folder.path().join("coordinator.jsonl")).unwrap();
        let transcript = |id: &str| Transcript {
            conversation: id.into(),
            turns: vec![TranscriptTurn {
                text: "ab01/0 is only mentioned here".into(),
                ..TranscriptTurn::default()
            }],
            ..Transcript::default()
        };
        ["ab01/0", "ab01/1", "cd02/0"]
            .iter()
            .for_each(|id| transcripts.write(&transcript(id)));
        transcripts.flush();
        let ids = |wanted: &str| -> Vec<String> {
            let found = find_conversation(folder.path(), wanted).unwrap();
            found.into_iter().map(|t| t.conversation).collect()
        };
        assert_eq!(ids("ab01"), ["ab01/0", "ab01/1"]);
        assert_eq!(ids("ab01/0"), ["ab01/0"]);
        assert!(ids("ff").is_empty());
    }
}
