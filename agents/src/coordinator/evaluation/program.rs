//! The suites of one evaluation, a chunk of tasks at a time: played as `dyad eval` plays them,
//! under the same seeds.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use rollout::group::{MemberEnd, RunSpec};

use super::group::EvalGroup;
use crate::coordinator::play::Open;
use crate::coordinator::specs::{GroupSpecs, Purpose, Suite};
use crate::eval::play::{self, PlayedTask};
use crate::eval::score::{self, Conversation};
use crate::stats::summary::Evaluation;

/// A chunk of a suite, played together.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Part {
    suite: usize,
    greedy: bool,
    tasks: Range<usize>,
}

/// The suites of one evaluation: the chunks still to be played, and what was played.
#[derive(Default)]
pub(super) struct Program {
    parts: VecDeque<Part>,
    played: BTreeMap<usize, Vec<Conversation>>,
}

impl Program {
    /// The program of the `this`-th evaluation, where `before` is the number of the last one made.
    pub(super) fn of(suites: &[Suite], this: u64, before: Option<u64>, last: bool) -> Self {
        let due = |(_, suite): &(usize, &Suite)| suite.is_due(this, before, last);
        let parts = suites.iter().enumerate().filter(due).flat_map(|(at, suite)| {
            let (tasks, samples) = (suite.tasks().len(), suite.samples());
            let sampled = if samples > 0 {
                parts(at, false, tasks, samples)
            } else {
                Vec::new()
            };
            parts(at, true, tasks, 1).into_iter().chain(sampled)
        });
        Self {
            parts: parts.collect(),
            played: BTreeMap::new(),
        }
    }

    /// The groups of the next chunk, empty when all are played.
    pub(super) fn next_groups(&mut self, step: u64, specs: &GroupSpecs) -> Vec<EvalGroup> {
        let Some(Part {
            suite: at,
            greedy,
            tasks,
        }) = self.parts.pop_front()
        else {
            return Vec::new();
        };
        let Some(suite) = specs.suites().get(at) else {
            return Vec::new();
        };
        let samples = if greedy { 1 } else { suite.samples() };
        let tasks = suite.tasks().iter().skip(tasks.start).take(tasks.len());
        let group = |(index, (id, task)): (usize, &(String, _))| EvalGroup {
            spec: RunSpec {
                workflow: suite.workflow().clone(),
                min_valid: 1,
                ..specs.run_spec(task, &play::task_id(greedy, step, Some(suite.name()), id), samples)
            },
            purpose: Purpose::Suite { at, greedy },
            index,
        };
        tasks.enumerate().map(group).collect()
    }

    /// Adds the conversations of a suite's task.
    pub(super) fn add(&mut self, suites: &[Suite], step: u64, open: &Open, members: Vec<MemberEnd>) {
        let Purpose::Suite { at, greedy } = open.purpose else {
            return;
        };
        let Some(suite) = suites.get(at) else { return };
        let before = play::task_id(greedy, step, Some(suite.name()), "");
        let id = open.task_id.strip_prefix(&before).unwrap_or(&open.task_id);
        let played = PlayedTask {
            task: id.to_owned(),
            content: open.task.clone(),
            ends: members,
        };
        let found = score::conversations(suite.rules(), &**suite.workflow(), &[played], greedy);
        self.played.entry(at).or_default().extend(found);
    }

    /// Adds the figures of all suites to those of the evaluation. Returns the number of failed
    /// conversations.
    pub(super) fn report(self, suites: &[Suite], found: &mut Evaluation) -> u64 {
        let mut failed = 0;
        for (at, conversations) in self.played {
            let Some(suite) = suites.get(at) else { continue };
            failed += conversations.iter().filter(|one| one.failed.is_some()).count() as u64;
            for (figure, values) in score::by_task(&conversations, usize::from(suite.samples())) {
                found.values.insert(format!("{}/{figure}", suite.name()), values);
            }
        }
        failed
    }
}

/// Cuts all tasks of a suite into chunks. The samples of a task stay together.
fn parts(suite: usize, greedy: bool, tasks: usize, samples: u16) -> Vec<Part> {
    let size = play::chunk(samples);
    let part = |from: usize| Part {
        suite,
        greedy,
        tasks: from..(from + size).min(tasks),
    };
    (0..tasks).step_by(size).map(part).collect()
}

#[cfg(test)]
mod tests;
