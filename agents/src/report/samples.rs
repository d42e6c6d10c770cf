//! Selects conversations for the page: the same tasks at the beginning and at the end.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::{BufRead, BufReader};

use serde::Deserialize;

use super::error::ReportError;
use crate::run_folder::RunFolder;
use crate::run_folder::logs::Transcript;

/// The most tasks that are shown.
const TASKS: usize = 6;

/// The first and the last conversation of one task.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Pair {
    pub(crate) first: Transcript,
    /// `None` if the task came once.
    pub(crate) last: Option<Transcript>,
}

/// The line of a conversation, with what selects it. Most lines are not shown, so only these keys
/// are parsed.
#[derive(Debug, Clone, PartialEq, Deserialize)]
struct Line {
    task: String,
    #[serde(default)]
    step: u64,
    #[serde(default)]
    eval: bool,
    #[serde(skip)]
    text: Vec<u8>,
}

impl Line {
    /// Returns `None` for a line that is no transcript.
    fn parse(text: Vec<u8>) -> Option<Self> {
        let line: Self = serde_json::from_slice(&text).ok()?;
        Some(Self { text, ..line })
    }

    fn transcript(&self) -> Option<Transcript> {
        serde_json::from_slice(&self.text).ok()
    }
}

/// The first and the last line of one task.
#[derive(Debug, Clone, PartialEq)]
struct Lines {
    first: Line,
    last: Option<Line>,
}

impl Lines {
    fn pair(self) -> Option<Pair> {
        Some(Pair {
            first: self.first.transcript()?,
            last: self.last.and_then(|last| last.transcript()),
        })
    }
}

/// Reads pairs of evaluation conversations, or, without evaluations, the first and the last ones of
/// training.
pub(crate) fn read(folder: &RunFolder) -> Result<Vec<Pair>, ReportError> {
    let mut evals: BTreeMap<String, Lines> = BTreeMap::new();
    let mut trained = Ends::default();
    for path in folder.files("transcripts")? {
        let io = |source| ReportError::Io {
            doing: "read",
            path: path.clone(),
            source,
        };
        for text in BufReader::new(File::open(&path).map_err(io)?).split(b'\n') {
            let Some(line) = Line::parse(text.map_err(io)?) else {
                continue;
            };
            if line.eval {
                put(&mut evals, line);
            } else {
                trained.put(line);
            }
        }
    }
    let lines = if evals.is_empty() {
        trained.lines()
    } else {
        evals.into_values().take(TASKS).collect()
    };
    Ok(lines.into_iter().filter_map(Lines::pair).collect())
}

/// The task without the evaluation that it was played in: `eval/40/o3` is `o3`.
fn bare_task(task: &str) -> &str {
    match task.strip_prefix("eval/").and_then(|rest| rest.split_once('/')) {
        Some((step, bare)) if step.bytes().all(|b| b.is_ascii_digit()) => bare,
        _ => task,
    }
}

fn put(tasks: &mut BTreeMap<String, Lines>, line: Line) {
    let task = bare_task(&line.task).to_owned();
    let Some(known) = tasks.get_mut(&task) else {
        // Limits memory in evaluations over very many tasks; the page shows a few.
        if tasks.len() < 64 * TASKS {
            tasks.insert(
                task,
                Lines {
                    first: line,
                    last: None,
                },
            );
        }
        return;
    };
    if line.step < known.first.step {
        let later = std::mem::replace(&mut known.first, line);
        if known.last.as_ref().is_none_or(|last| last.step < later.step) {
            known.last = Some(later);
        }
    } else if known.first.step < line.step && known.last.as_ref().is_none_or(|last| last.step < line.step) {
        known.last = Some(line);
    }
}

/// The first and the last few conversations of a stream.
#[derive(Default)]
struct Ends {
    first: Vec<Line>,
    last: VecDeque<Line>,
}

impl Ends {
    fn put(&mut self, line: Line) {
        if self.first.len() < TASKS {
            self.first.push(line);
            return;
        }
        if self.last.len() == TASKS {
            self.last.pop_front();
        }
        self.last.push_back(line);
    }

    fn lines(self) -> Vec<Lines> {
        let mut last = self.last.into_iter();
        let first = self.first.into_iter();
        first
            .map(|first| Lines {
                first,
                last: last.next(),
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run_folder::logs::Transcripts;
    use crate::run_folder::tests::config_in;

    fn transcript(task: &str, step: u64) -> Transcript {
        Transcript {
            task: task.into(),
            step,
            eval: task.starts_with("eval/"),
            ..Transcript::default()
        }
    }

    /// Returns the tasks that are shown with the steps of their conversations.
    fn shown(transcripts: &[Transcript]) -> Vec<(String, u64, Option<u64>)> {
        let base = tempfile::tempdir().unwrap();
        let folder = RunFolder::create(base.path(), &config_in(base.path()), None).unwrap();
        let written = Transcripts::open(&folder.transcripts("coordinator-x")).unwrap();
        transcripts.iter().for_each(|one| written.write(one));
        written.flush();
        let pairs = read(&folder).unwrap().into_iter();
        let steps = |pair: Pair| (pair.first.task, pair.first.step, pair.last.map(|last| last.step));
        pairs.map(steps).collect()
    }

    #[test]
    fn a_task_is_shown_with_its_first_and_last_conversation() {
        let tasks = |step| ["o3", "x/o4"].map(|task| transcript(&format!("eval/{step}/{task}"), step));
        let mut written: Vec<_> = [20, 0, 40, 20].into_iter().flat_map(tasks).collect();
        written.insert(3, transcript("of training", 7));
        let wanted = ["eval/0/o3", "eval/0/x/o4"].map(|task| (task.to_owned(), 0, Some(40)));
        assert_eq!(shown(&written), wanted);
    }

    #[test]
    fn without_evaluations_first_and_last_training_is_shown() {
        let written: Vec<_> = (0..100).map(|i| transcript(&i.to_string(), i)).collect();
        let found = shown(&written);
        assert_eq!(found.len(), TASKS);
        assert_eq!(found[0], ("0".to_owned(), 0, Some(100 - TASKS as u64)));
    }
}
