//! The evaluation under way: its stage, and what it has found so far.

use std::collections::BTreeMap;

use broker::AgentName;
use broker::ids::{TurnKey, WeightVersion};
use broker::protocol::task::Task;
use broker::protocol::turn::Generation;
use rollout::group::{MemberEnd, Rules};
use tokio::time::Instant;

use super::group::{EvalGroup, turns};
use super::program::Program;
use super::versions::{SeenVersions, Versions};
use crate::coordinator::play::Open;
use crate::coordinator::specs::GroupSpecs;
use crate::run_folder::logs::Transcript;
use crate::stats::figures;
use crate::stats::repeated;
use crate::stats::summary::Evaluation;

/// The role that gives the first answers from which the verifier's pool is chosen.
const SOLVER: &str = "solver";

/// The stages of an evaluation, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// Every task once, greedy.
    Conversations,
    /// Every task several times, sampled, for the answer of the majority.
    Votes,
    /// The verifier on its pool.
    Pool,
    /// Suites that are due, one chunk after another.
    Suites,
}

/// The evaluation under way.
pub(super) struct Current {
    found: Evaluation,
    begun: Instant,
    /// Transcripts that wait until no other coordinator can have begun the same evaluation.
    transcripts: Vec<Transcript>,
    versions: Versions,
    stage: Stage,
    /// Groups of the stage that have not ended.
    left: usize,
    failed: u64,
    /// The solver's answers by task, for a pool that is not chosen yet: independent of the order of
    /// arrival.
    solutions: BTreeMap<String, (Task, String)>,
    program: Program,
}

/// The findings of an evaluation, for its report.
pub(super) struct Found {
    pub found: Evaluation,
    pub transcripts: Vec<Transcript>,
    pub versions: Versions,
    pub failed: u64,
    pub program: Program,
}

impl Current {
    pub(super) fn new(
        step: u64,
        last: bool,
        held: BTreeMap<AgentName, WeightVersion>,
        groups: usize,
        program: Program,
    ) -> Self {
        Self {
            found: Evaluation {
                step,
                last,
                ..Evaluation::default()
            },
            begun: Instant::now(),
            transcripts: Vec::new(),
            versions: Versions::new(held),
            stage: Stage::Conversations,
            left: groups,
            failed: 0,
            solutions: BTreeMap::new(),
            program,
        }
    }

    pub(super) fn step(&self) -> u64 {
        self.found.step
    }

    pub(super) fn is_last(&self) -> bool {
        self.found.last
    }

    pub(super) fn begun(&self) -> Instant {
        self.begun
    }

    pub(super) fn stage(&self) -> Stage {
        self.stage
    }

    pub(super) fn is_stage_over(&self) -> bool {
        self.left == 0
    }

    /// Begins a stage of this many groups.
    pub(super) fn enter(&mut self, stage: Stage, groups: usize) {
        self.stage = stage;
        self.left = groups;
    }

    /// The groups of the next chunk of suites, empty when all are played.
    pub(super) fn next_suite_groups(&mut self, specs: &GroupSpecs) -> Vec<EvalGroup> {
        let groups = self.program.next_groups(self.found.step, specs);
        self.enter(Stage::Suites, groups.len());
        groups
    }

    /// Keeps transcripts. Returns those to write now: all of them if the evaluation `is_ours`.
    pub(super) fn keep_transcripts(&mut self, transcripts: Vec<Transcript>, is_ours: bool) -> Vec<Transcript> {
        if transcripts.is_empty() {
            return Vec::new();
        }
        self.transcripts.extend(transcripts);
        if is_ours {
            std::mem::take(&mut self.transcripts)
        } else {
            Vec::new()
        }
    }

    pub(super) fn add_versions(&mut self, seen: SeenVersions) {
        self.versions.add(seen);
    }

    pub(super) fn take_solutions(&mut self) -> Vec<(Task, String)> {
        std::mem::take(&mut self.solutions).into_values().collect()
    }

    pub(super) fn into_found(self) -> Found {
        Found {
            found: self.found,
            transcripts: self.transcripts,
            versions: self.versions,
            failed: self.failed,
            program: self.program,
        }
    }

    /// Adds a group that has ended.
    pub(super) fn add(&mut self, specs: &GroupSpecs, open: &Open, members: Vec<MemberEnd>) {
        self.left = self.left.saturating_sub(1);
        if self.stage == Stage::Suites {
            return self.program.add(specs.suites(), self.found.step, open, members);
        }
        let prefix = format!("eval/{}/", self.found.step);
        let id = open.task_id.strip_prefix(&prefix).unwrap_or(&open.task_id).to_owned();
        if self.stage == Stage::Votes {
            return self.add_votes(&id, &members);
        }
        for end in &members {
            self.add_conversation(&id, open, end, specs.rules());
        }
    }

    fn add_votes(&mut self, id: &str, members: &[MemberEnd]) {
        if let Some(success) = majority(members) {
            self.put("majority", id, success);
        }
        let tokens: usize = members
            .iter()
            .flat_map(turns)
            .map(|(_, made)| made.output_ids.len())
            .sum();
        self.put("tokens/votes", id, tokens as f64);
    }

    fn add_conversation(&mut self, id: &str, open: &Open, end: &MemberEnd, rules: &Rules) {
        let MemberEnd::Ended { outcome, .. } = end else {
            self.failed += 1;
            return;
        };
        if self.stage != Stage::Conversations {
            for (name, value) in &outcome.metrics {
                self.put(name, id, *value);
            }
            return;
        }
        for (name, value) in figures::of(rules, outcome, turns(end)) {
            self.put(&name, id, value);
        }
        let first = |(key, _): &&(TurnKey, Generation)| key.role.as_str() == SOLVER && key.turn == 0;
        if let Some((_, made)) = turns(end).iter().rfind(first) {
            let solution = ((*open.task).clone(), made.text.clone());
            self.solutions.insert(id.to_owned(), solution);
        }
    }

    fn put(&mut self, metric: &str, task: &str, value: f64) {
        if !self.found.put(metric, task, value) {
            tracing::warn!(
                metric,
                task,
                value,
                "a figure that is no finite number is left out of the evaluation"
            );
        }
    }
}

/// The answer of a conversation of one role, and its success. Earlier turns called tools.
fn answer(end: &MemberEnd) -> Option<(&str, f64)> {
    let MemberEnd::Ended { outcome, .. } = end else {
        return None;
    };
    let (_, made) = turns(end).iter().rev().find(|(key, _)| key.role.as_str() == SOLVER)?;
    let (_, success) = outcome.metrics.iter().find(|(name, _)| *name == "success")?;
    Some((made.text.trim(), *success))
}

/// The success of the answer that the most members gave. The earliest answer wins a tie.
fn majority(members: &[MemberEnd]) -> Option<f64> {
    let answers: Vec<(&str, f64)> = members.iter().filter_map(answer).collect();
    let most = repeated::majority(&answers, |(a, _), (b, _)| a == b)?;
    answers.get(most).map(|(_, success)| *success)
}

#[cfg(test)]
mod tests {
    use broker::RoleName;
    use broker::protocol::turn::{Finish, LogProbs};
    use rollout::workflow::Outcome;

    use super::*;

    fn said(text: &str, success: f64) -> MemberEnd {
        let key = TurnKey {
            member: 0,
            role: RoleName::new("solver").unwrap(),
            seat: 0,
            turn: 0,
        };
        let made = Generation {
            kept: 0,
            prompt_ids: vec![1],
            output_ids: vec![2],
            logprobs: vec![0.0],
            logprobs_of: LogProbs::Sampled,
            spans: Vec::new(),
            oldest_kv: WeightVersion::default(),
            temperature: 1.0,
            finish: Finish::Stop,
            text: text.into(),
        };
        MemberEnd::Ended {
            outcome: Outcome {
                rewards: Vec::new(),
                metrics: vec![("success", success)],
            },
            turns: vec![(key, made)],
        }
    }

    #[test]
    fn the_answer_of_the_most_counts() {
        let lost = || MemberEnd::Failed {
            failure: broker::protocol::failure::Failure::other("engine"),
            turns: Vec::new(),
        };
        for (votes, success) in [
            (vec![said("5", 1.0), said("6", 0.0), said(" 6", 0.0)], Some(0.0)),
            (
                vec![said("6", 0.0), said("5", 1.0), said("7", 0.0), said("5", 1.0)],
                Some(1.0),
            ),
            (vec![said("6", 0.0), said("5", 1.0)], Some(0.0)),
            (vec![lost(), said("5", 1.0)], Some(1.0)),
            (vec![lost()], None),
        ] {
            assert_eq!(majority(&votes), success);
        }
    }
}
