//! What an evaluation has found so far.

use std::collections::{BTreeMap, BTreeSet};

use broker::AgentName;
use broker::ids::{TurnKey, WeightVersion};
use broker::protocol::task::Task;
use broker::protocol::turn::Generation;
use rollout::group::{MemberEnd, Rules};
use tokio::time::Instant;

use crate::coordinator::actor::Open;
use crate::coordinator::suites::Program;
use crate::coordinator::versions::Versions;
use crate::run_folder::logs::Transcript;
use crate::stats::figures;
use crate::stats::repeated;
use crate::stats::summary::Evaluation;

/// The role whose first answers the verifier's pool is chosen from.
const SOLVER: &str = "solver";

/// What an evaluation does, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::coordinator) enum Stage {
    /// Every task once, greedy.
    Conversations,
    /// Every task several times, sampled: what the most say.
    Votes,
    /// The verifier on its pool.
    Pool,
    /// Suites that are due, a chunk after the other.
    Suites,
}

pub(in crate::coordinator) struct Current {
    pub(in crate::coordinator) found: Evaluation,
    pub(in crate::coordinator) begun: Instant,
    /// What is written when it is surely ours.
    pub(in crate::coordinator) untold: Vec<Transcript>,
    pub(super) versions: Versions,
    pub(in crate::coordinator) stage: Stage,
    pub(in crate::coordinator) left: usize,
    pub(super) failed: u64,
    /// What the solver answered, by task, for a pool that is not chosen yet: in no order of arrival.
    pub(super) solutions: BTreeMap<String, (Task, String)>,
    pub(in crate::coordinator) program: Program,
}

impl Current {
    pub(super) fn add(&mut self, open: &Open, members: &[MemberEnd], rules: &Rules) {
        self.left = self.left.saturating_sub(1);
        let id = open
            .task_id
            .strip_prefix(&format!("eval/{}/", self.found.step))
            .unwrap_or(&open.task_id)
            .to_owned();
        if self.stage == Stage::Votes {
            if let Some(success) = majority(members) {
                self.put("majority", &id, success);
            }
            let tokens: usize = members
                .iter()
                .flat_map(turns)
                .map(|(_, made)| made.output_ids.len())
                .sum();
            return self.put("tokens/votes", &id, tokens as f64);
        }
        for end in members {
            let MemberEnd::Ended { outcome, .. } = end else {
                self.failed += 1;
                continue;
            };
            if self.stage != Stage::Conversations {
                for (name, value) in &outcome.metrics {
                    self.put(name, &id, *value);
                }
                continue;
            }
            for (name, value) in figures::of(rules, outcome, turns(end)) {
                self.put(&name, &id, value);
            }
            let first = |(key, _): &&(TurnKey, Generation)| key.role.as_str() == SOLVER && key.turn == 0;
            if let Some((_, made)) = turns(end).iter().rfind(first) {
                self.solutions
                    .insert(id.clone(), ((*open.task).clone(), made.text.clone()));
            }
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

pub(super) fn turns(end: &MemberEnd) -> &[(TurnKey, Generation)] {
    match end {
        MemberEnd::Ended { turns, .. } => turns,
        MemberEnd::Failed { .. } => &[],
    }
}

/// (metric, value, floor) of every figure that is below its floor. A figure that the evaluation does not have is none.
pub(super) fn below_floor<'a>(found: &Evaluation, floors: &'a BTreeMap<String, f64>) -> Vec<(&'a str, f64, f64)> {
    let low = |(metric, floor): (&'a String, &f64)| {
        let value = found.mean(metric).filter(|value| value < floor)?;
        Some((metric.as_str(), value, *floor))
    };
    floors.iter().filter_map(low).collect()
}

/// What a conversation of one role came to say, and its success. Turns before its last one called tools.
fn answer(end: &MemberEnd) -> Option<(&str, f64)> {
    let MemberEnd::Ended { outcome, .. } = end else {
        return None;
    };
    let (_, made) = turns(end).iter().rev().find(|(key, _)| key.role.as_str() == SOLVER)?;
    let (_, success) = outcome.metrics.iter().find(|(name, _)| *name == "success")?;
    Some((made.text.trim(), *success))
}

/// The success of the answer that the most members gave; of the earliest of those that tie.
fn majority(members: &[MemberEnd]) -> Option<f64> {
    let answers: Vec<(&str, f64)> = members.iter().filter_map(answer).collect();
    let most = repeated::majority(&answers, |(a, _), (b, _)| a == b)?;
    answers.get(most).map(|(_, success)| *success)
}

/// The weights that an evaluation is of, for people.
pub(super) fn told(found: &Evaluation) -> String {
    let of_agent = |(agent, versions): (&AgentName, &BTreeSet<WeightVersion>)| {
        let versions: Vec<String> = versions.iter().map(WeightVersion::to_string).collect();
        format!("{agent}: {}", versions.join(", "))
    };
    let agents: Vec<String> = found.versions.iter().map(of_agent).collect();
    agents.join("; ")
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
    fn figures_below_their_floor_are_found() {
        let values = |value: f64| BTreeMap::from([("t".to_owned(), value)]);
        let found = Evaluation {
            values: BTreeMap::from([
                ("win_fixed".to_owned(), values(0.25)),
                ("success".to_owned(), values(0.5)),
            ]),
            ..Evaluation::default()
        };
        let floors = |list: &[(&str, f64)]| list.iter().map(|(name, floor)| ((*name).to_owned(), *floor)).collect();
        let wanted = floors(&[("win_fixed", 0.3), ("success", 0.5), ("absent", 1.0)]);
        assert_eq!(below_floor(&found, &wanted), [("win_fixed", 0.25, 0.3)]);
        assert_eq!(below_floor(&found, &BTreeMap::new()), []);
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
