//! Selects conversations for the page: the same tasks at the beginning and at the end.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader};

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

/// Reads pairs of evaluation conversations, or, without evaluations, the first and the last ones of
/// training.
pub(crate) fn read(folder: &RunFolder) -> Result<Vec<Pair>, ReportError> {
    let mut evals: BTreeMap<String, Pair> = BTreeMap::new();
    let mut trained = Ends::default();
    for path in folder.files("transcripts")? {
        let io = |source| ReportError::Io {
            doing: "read",
            path: path.clone(),
            source,
        };
        for line in BufReader::new(File::open(&path).map_err(io)?).lines() {
            let Ok(transcript) = serde_json::from_str::<Transcript>(&line.map_err(io)?) else {
                continue;
            };
            if transcript.eval {
                put(&mut evals, transcript);
            } else {
                trained.put(transcript);
            }
        }
    }
    if evals.is_empty() {
        return Ok(trained.pairs());
    }
    Ok(evals.into_values().take(TASKS).collect())
}

/// The task without the evaluation that it was played in: `eval/40/o3` is `o3`.
fn bare_task(task: &str) -> &str {
    match task.strip_prefix("eval/").and_then(|rest| rest.split_once('/')) {
        Some((step, bare)) if step.bytes().all(|b| b.is_ascii_digit()) => bare,
        _ => task,
    }
}

fn put(pairs: &mut BTreeMap<String, Pair>, transcript: Transcript) {
    let task = bare_task(&transcript.task).to_owned();
    let Some(pair) = pairs.get_mut(&task) else {
        // Limits memory in evaluations over very many tasks; the page shows a few.
        if pairs.len() < 64 * TASKS {
            pairs.insert(
                task,
                Pair {
                    first: transcript,
                    last: None,
                },
            );
        }
        return;
    };
    if transcript.step < pair.first.step {
        let later = std::mem::replace(&mut pair.first, transcript);
        if pair.last.as_ref().is_none_or(|last| last.step < later.step) {
            pair.last = Some(later);
        }
    } else if pair.first.step < transcript.step && pair.last.as_ref().is_none_or(|last| last.step < transcript.step) {
        pair.last = Some(transcript);
    }
}

/// The first and the last few conversations of a stream.
#[derive(Default)]
struct Ends {
    first: Vec<Transcript>,
    last: std::collections::VecDeque<Transcript>,
}

impl Ends {
    fn put(&mut self, transcript: Transcript) {
        if self.first.len() < TASKS {
            self.first.push(transcript);
            return;
        }
        if self.last.len() == TASKS {
            self.last.pop_front();
        }
        self.last.push_back(transcript);
    }

    fn pairs(self) -> Vec<Pair> {
        let mut last = self.last.into_iter();
        self.first
            .into_iter()
            .map(|first| Pair {
                first,
                last: last.next(),
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn transcript(task: &str, step: u64) -> Transcript {
        Transcript {
            task: task.into(),
            step,
            ..Transcript::default()
        }
    }

    #[test]
    fn a_task_is_shown_with_its_first_and_last_conversation() {
        let mut pairs = BTreeMap::new();
        for step in [20, 0, 40, 20] {
            put(&mut pairs, transcript(&format!("eval/{step}/o3"), step));
            put(&mut pairs, transcript(&format!("eval/{step}/x/o4"), step));
        }
        assert_eq!(pairs.keys().collect::<Vec<_>>(), ["o3", "x/o4"]);
        let pair = &pairs["o3"];
        assert_eq!((pair.first.step, pair.last.as_ref().unwrap().step), (0, 40));
    }

    #[test]
    fn without_evaluations_first_and_last_training_is_shown() {
        let mut ends = Ends::default();
        (0..100).for_each(|i| ends.put(transcript(&i.to_string(), i)));
        let pairs = ends.pairs();
        assert_eq!(pairs.len(), TASKS);
        assert_eq!(
            (pairs[0].first.step, pairs[0].last.as_ref().unwrap().step),
            (0, 100 - TASKS as u64)
        );
    }
}
