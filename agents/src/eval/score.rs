//! Accuracy, avg@k, pass@k, maj@k and tokens of many conversations, with intervals over tasks.

use std::collections::{BTreeMap, BTreeSet};

use broker::ids::TurnKey;
use broker::protocol::turn::Generation;
use rollout::grade::Grader;
use rollout::group::{MemberEnd, Rules};
use rollout::workflow::{Event, Workflow};
use serde::Serialize;

use super::play::PlayedTask;
use crate::stats::figures::{self, SUCCESS};
use crate::stats::summary::Evaluation;
use crate::stats::{self, Interval, repeated};

/// The tokens that all roles generated in a conversation.
pub const TOKENS: &str = "tokens";

/// One conversation's figures.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Conversation {
    pub task: String,
    /// The index of the task's sample; `None` for the greedy conversation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sample: Option<usize>,
    /// The reason why it has no figures, if the machinery failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
    pub figures: BTreeMap<String, f64>,
    /// The answer of the whole conversation, if the workflow knows one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
    #[serde(skip)]
    grader: Option<Grader>,
}

#[cfg(test)]
impl Conversation {
    /// A conversation with these figures and nothing else.
    pub(crate) fn bare(task: &str, sample: Option<usize>, figures: BTreeMap<String, f64>) -> Self {
        Self {
            task: task.to_owned(),
            sample,
            failed: None,
            figures,
            answer: None,
            grader: None,
        }
    }
}

/// The conversations of a set, each with its figures.
#[must_use]
pub fn conversations(rules: &Rules, workflow: &dyn Workflow, played: &[PlayedTask], greedy: bool) -> Vec<Conversation> {
    let of_end = |one: &PlayedTask, member: usize, end: &MemberEnd| {
        let mut found = Conversation {
            task: one.task.clone(),
            sample: (!greedy).then_some(member),
            failed: None,
            figures: BTreeMap::new(),
            answer: None,
            grader: None,
        };
        match end {
            MemberEnd::Failed { failure, .. } => found.failed = Some(failure.to_string()),
            MemberEnd::Ended { outcome, turns } => {
                found.figures = figures::of(rules, outcome, turns);
                found.figures.insert(TOKENS.into(), figures::said(&found.figures));
                let answer = workflow.answer(&one.content, &events(turns));
                (found.grader, found.answer) = answer.unzip();
            }
        }
        found
    };
    let of_task = |one: &PlayedTask| -> Vec<Conversation> {
        let ends = one.ends.iter().enumerate();
        ends.map(|(member, end)| of_end(one, member, end)).collect()
    };
    played.iter().flat_map(of_task).collect()
}

fn events(turns: &[(TurnKey, Generation)]) -> Vec<Event> {
    turns.iter().map(|(key, made)| Event::of(key, made)).collect()
}

/// Converts greedy conversations into a run's evaluation: each figure's values by task.
#[must_use]
pub fn evaluation(greedy: &[Conversation]) -> Evaluation {
    let mut found = Evaluation::default();
    for one in greedy {
        for (name, value) in one.figures.iter().filter(|(name, _)| *name != TOKENS) {
            found.put(name, &one.task, *value);
        }
    }
    found
}

/// One figure over all tasks.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ScoreRow {
    pub figure: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub greedy: Option<Interval>,
    /// The mean over the samples of a task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub avg: Option<Interval>,
    /// Pass@k, by k. Only `success` has it, if it is 0 or 1 in each conversation.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub pass: BTreeMap<usize, Interval>,
    /// The success of the most frequent answer, if answers can be compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub maj: Option<Interval>,
}

/// The figures of a set of conversations.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Score {
    pub tasks: usize,
    pub samples: usize,
    /// Conversations that the machinery failed; they are in no figure.
    pub failed: usize,
    pub rows: Vec<ScoreRow>,
}

/// A task's conversations that ended.
type ByTask<'a> = BTreeMap<&'a str, Vec<&'a Conversation>>;

/// The greedy or the sampled conversations, each task's in the order of its samples.
fn ended(conversations: &[Conversation], greedy: bool) -> ByTask<'_> {
    let mut found = ByTask::new();
    let ended = conversations.iter().filter(|one| one.failed.is_none());
    for one in ended.filter(|one| one.sample.is_none() == greedy) {
        found.entry(one.task.as_str()).or_default().push(one);
    }
    found
}

/// Computes the figures; `samples` is the number of sampled conversations per task.
#[must_use]
pub fn score(conversations: &[Conversation], samples: usize) -> Score {
    let tasks: BTreeSet<&str> = conversations.iter().map(|one| one.task.as_str()).collect();
    let (greedy, sampled) = (ended(conversations, true), ended(conversations, false));
    let names: BTreeSet<&String> = conversations.iter().flat_map(|one| one.figures.keys()).collect();
    let mut rows: Vec<ScoreRow> = names
        .into_iter()
        .map(|name| row(name, &greedy, &sampled, samples))
        .collect();
    rows.sort_by_key(|row| (place(&row.figure), row.figure.clone()));
    Score {
        tasks: tasks.len(),
        samples,
        failed: conversations.iter().filter(|one| one.failed.is_some()).count(),
        rows,
    }
}

/// The order of figures: success, then rewards, then the workflow's measures, then tokens.
fn place(figure: &str) -> u8 {
    match figure {
        SUCCESS => 0,
        TOKENS => 3,
        _ if figure.starts_with("reward/") => 1,
        _ if figure.starts_with("tokens/") => 4,
        _ => 2,
    }
}

fn row(name: &str, greedy: &ByTask<'_>, sampled: &ByTask<'_>, samples: usize) -> ScoreRow {
    let over = |tasks: &ByTask<'_>| {
        let means: Vec<f64> = tasks.values().filter_map(|list| mean_of(name, list)).collect();
        // Tokens are counts, even where each task has 0 or 1.
        if is_tokens(name) {
            stats::t(&means)
        } else {
            stats::over_tasks_of(name, &means)
        }
    };
    ScoreRow {
        figure: name.to_owned(),
        greedy: over(greedy),
        avg: over(sampled),
        pass: if name == SUCCESS {
            passes(sampled, samples)
        } else {
            BTreeMap::new()
        },
        maj: if name == SUCCESS { majorities(sampled) } else { None },
    }
}

fn is_tokens(figure: &str) -> bool {
    figure == TOKENS || figure.starts_with("tokens/")
}

/// The mean over the conversations that have the figure. A silent role counts as 0 tokens.
fn mean_of(name: &str, conversations: &[&Conversation]) -> Option<f64> {
    let silent = is_tokens(name).then_some(0.0);
    let value = |one: &&Conversation| one.figures.get(name).copied().or(silent);
    let values: Vec<f64> = conversations.iter().filter_map(value).collect();
    (!values.is_empty()).then(|| stats::mean(&values))
}

/// Returns the number of successes among each task's samples. Empty unless every success is 0 or 1.
/// Only tasks with all of their samples count, so that every k uses the same tasks.
fn tries<'a>(sampled: &ByTask<'a>, samples: usize) -> Vec<(&'a str, usize)> {
    let is_missing = |one: &&Conversation| !one.figures.contains_key(SUCCESS);
    if sampled.values().flatten().any(is_missing) {
        return Vec::new();
    }
    let mut found = Vec::new();
    for (task, list) in sampled {
        let values: Vec<f64> = list
            .iter()
            .filter_map(|one| one.figures.get(SUCCESS))
            .copied()
            .collect();
        if values.len() != samples {
            continue;
        }
        if !values.iter().all(|value| *value == 0.0 || *value == 1.0) {
            return Vec::new();
        }
        found.push((*task, values.iter().filter(|value| **value == 1.0).count()));
    }
    found
}

fn passes(sampled: &ByTask<'_>, samples: usize) -> BTreeMap<usize, Interval> {
    let right = tries(sampled, samples);
    let pass = |k: usize| {
        let found = right
            .iter()
            .filter_map(|(_, right)| repeated::pass_at_k(samples, *right, k));
        Some((k, stats::over_tasks_of(SUCCESS, &found.collect::<Vec<f64>>())?))
    };
    repeated::steps(samples).into_iter().filter_map(pass).collect()
}

fn majorities(sampled: &ByTask<'_>) -> Option<Interval> {
    let found: Vec<f64> = elected(sampled)?.into_iter().map(|(_, success)| success).collect();
    stats::over_tasks_of(SUCCESS, &found)
}

/// The success of each task's most frequent answer; `None` if some answer cannot be compared with
/// the others.
fn elected<'a>(sampled: &ByTask<'a>) -> Option<Vec<(&'a str, f64)>> {
    let mut found = Vec::new();
    for (task, list) in sampled {
        let answers: Option<Vec<(Grader, &str)>> = list
            .iter()
            .map(|one| Some((one.grader?, one.answer.as_deref()?)))
            .collect();
        let answers =
            answers.filter(|answers| answers.iter().all(|(grader, text)| grader.same(text, text).is_some()))?;
        // An unreadable answer does not vote.
        let read = |at: &usize| {
            answers
                .get(*at)
                .is_some_and(|(grader, text)| grader.same(text, text) == Some(true))
        };
        let voters: Vec<usize> = (0..answers.len()).filter(read).collect();
        let votes: Vec<_> = voters.iter().filter_map(|at| answers.get(*at)).collect();
        let most = repeated::majority(&votes, |(grader, a), (_, b)| grader.same(a, b) == Some(true));
        let elected = most.and_then(|at| voters.get(at).copied()).unwrap_or(0);
        found.push((*task, *list.get(elected)?.figures.get(SUCCESS)?));
    }
    Some(found)
}

/// The figures of a suite by task, in the form of a run's evaluations: `FIGURE` of the greedy
/// conversations, `avg@K/FIGURE` of the samples, `pass@k/success` (estimated for each task) and
/// `maj@K/success`.
#[must_use]
pub fn by_task(conversations: &[Conversation], samples: usize) -> BTreeMap<String, BTreeMap<String, f64>> {
    let (greedy, sampled) = (ended(conversations, true), ended(conversations, false));
    let mut found: BTreeMap<String, BTreeMap<String, f64>> = BTreeMap::new();
    let mut put = |name: String, task: &str, value: f64| {
        found.entry(name).or_default().insert(task.to_owned(), value);
    };
    let names: BTreeSet<&String> = conversations.iter().flat_map(|one| one.figures.keys()).collect();
    for name in names {
        for (tasks, figure) in [(&greedy, name.clone()), (&sampled, format!("avg@{samples}/{name}"))] {
            for (task, list) in tasks {
                if let Some(value) = mean_of(name, list) {
                    put(figure.clone(), task, value);
                }
            }
        }
    }
    for (task, right) in tries(&sampled, samples) {
        for k in repeated::steps(samples) {
            if let Some(value) = repeated::pass_at_k(samples, right, k) {
                put(format!("pass@{k}/{SUCCESS}"), task, value);
            }
        }
    }
    for (task, value) in elected(&sampled).unwrap_or_default() {
        put(format!("maj@{samples}/{SUCCESS}"), task, value);
    }
    found
}

#[cfg(test)]
mod tests;
