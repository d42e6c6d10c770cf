//! Lengths and credit over any workflow: parts added to the workflow's own.
//!
//! | part | roles | weight |
//! |---|---|---|
//! | `overlong`, `length` | roles of `[workflow.shaping]` | 1 |
//! | `own` | roles of `[workflow.credit]`: the sum of the workflow's own parts | 0 |
//! | `credit` | the same roles: the operator's result, which replaces the own parts | 1 |
//!
//! Operators act on the workflow's own parts, so no role pays for the length of a partner's answer.
//! `length_penalty` compares a group, so it is added where the group is assembled.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use broker::RoleName;
use broker::protocol::task::Task;
use configs::{CreditConfig, Problem, ShapingConfig, WorkflowConfig};

use super::part_weights::{self, PartWeights};
use super::program::{Program, Question};
use super::tools::ToolProgram;
use super::{Event, Need, Outcome, Part, RoleSpec, SeatReward, Step, Workflow};
use crate::grade::Grader;
use crate::{credit_operator, shaping};

const OVERLONG: &str = "overlong";
const LENGTH: &str = "length";
/// The sum of the workflow's own parts, where an operator replaces it.
pub const OWN: &str = "own";
/// The result of the operator.
pub const CREDIT: &str = "credit";
/// The part for whether a seat's own answer is right.
pub(crate) const CORRECT: &str = "correct";
/// The part from a comparison within the group.
pub(crate) const LENGTH_PENALTY: &str = "length_penalty";

struct Shaped {
    inner: Arc<dyn Workflow>,
    shaping: BTreeMap<RoleName, ShapingConfig>,
    /// The operators, without `own`, which changes nothing.
    credit: BTreeMap<RoleName, CreditConfig>,
    /// The weights of the workflow's own parts.
    weights: PartWeights,
}

/// Returns `workflow` with the configured shaping and credit, or `workflow` itself if there is
/// none.
pub(crate) fn over(workflow: Arc<dyn Workflow>, config: &WorkflowConfig) -> Result<Arc<dyn Workflow>, Vec<Problem>> {
    if config.shaping.is_empty() && config.credit.is_empty() {
        return Ok(workflow);
    }
    let specs = workflow.roles();
    let shaped = Shaped {
        weights: part_weights::given(config, &specs),
        shaping: config.shaping.clone(),
        credit: operators(config)
            .map(|(role, operator)| (role.clone(), operator.clone()))
            .collect(),
        inner: workflow,
    };
    let mut problems = shaped.clashes(&specs);
    problems.extend(shaped.unfair(config, &specs));
    if problems.is_empty() {
        Ok(Arc::new(shaped))
    } else {
        Err(problems)
    }
}

/// Returns the operators that change something.
fn operators(config: &WorkflowConfig) -> impl Iterator<Item = (&RoleName, &CreditConfig)> {
    config
        .credit
        .iter()
        .filter(|(_, operator)| **operator != CreditConfig::Own)
}

/// Returns the weights that a run uses. Where a role has an operator, its own parts count only
/// through the operator.
pub(crate) fn counted(config: &WorkflowConfig, specs: &[RoleSpec]) -> PartWeights {
    let mut counted = part_weights::given(config, specs);
    for (role, _) in operators(config) {
        let shaping = config.shaping.get(role);
        let stays = |name: &str| match name {
            CREDIT => true,
            OVERLONG => shaping.is_some_and(|shaping| shaping.overlong.is_some()),
            LENGTH => shaping.is_some_and(|shaping| shaping.length.is_some()),
            _ => false,
        };
        for (name, weight) in counted.entry(role.clone()).or_default() {
            if !stays(name) {
                *weight = 0.0;
            }
        }
    }
    for (role, shaping) in &config.shaping {
        if let Some(weight) = shaping.length_penalty {
            counted
                .entry(role.clone())
                .or_default()
                .insert(LENGTH_PENALTY.into(), weight);
        }
    }
    counted
}

fn problem(path: String, message: String) -> Problem {
    Problem { path, message }
}

impl Shaped {
    /// Returns the names and weights of a role's parts that are added to the workflow's own, in
    /// their order.
    fn added(&self, role: &RoleName) -> Vec<(&'static str, f64)> {
        let shaping = self.shaping.get(role);
        let has = |on: bool, name, weight| on.then_some((name, weight));
        let credit = self.credit.contains_key(role);
        [
            has(shaping.is_some_and(|shaping| shaping.overlong.is_some()), OVERLONG, 1.0),
            has(shaping.is_some_and(|shaping| shaping.length.is_some()), LENGTH, 1.0),
            has(credit, OWN, 0.0),
            has(credit, CREDIT, 1.0),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    /// Reports roles that the workflow does not have or that earn nothing, and names of parts that
    /// the workflow already has.
    fn clashes(&self, specs: &[RoleSpec]) -> Vec<Problem> {
        let mut problems = Vec::new();
        let shaped = self.shaping.keys().map(|role| ("shaping", role));
        for (table, role) in shaped.chain(self.credit.keys().map(|role| ("credit", role))) {
            let path = format!("workflow.{table}.{role}");
            let spec = specs.iter().find(|spec| spec.name == *role);
            let Some(spec) = spec.filter(|spec| !spec.parts.is_empty()) else {
                problems.push(problem(
                    path,
                    "this role earns nothing in this workflow: leave it out".into(),
                ));
                continue;
            };
            let penalty = self.shaping.get(role).and_then(|shaping| shaping.length_penalty);
            let mut names: Vec<&str> = self.added(role).into_iter().map(|(name, _)| name).collect();
            names.extend(penalty.map(|_| LENGTH_PENALTY));
            let judged = self.inner.kind() != "adversarial" || spec.parts.iter().any(|(name, _)| *name == CORRECT);
            if penalty.is_some() && !judged {
                let message = format!(
                    "compares the lengths of right answers, and {role} has none: `success` is its opponent's; leave it out"
                );
                problems.push(problem(format!("{path}.length_penalty"), message));
            }
            if let Some((name, _)) = spec.parts.iter().find(|(name, _)| names.contains(name)) {
                let message =
                    format!("{role} earns a part {name} already: give that one a weight under workflow.reward");
                problems.push(problem(path, message));
            }
        }
        problems
    }

    fn unfair(&self, config: &WorkflowConfig, specs: &[RoleSpec]) -> Vec<Problem> {
        let of = |name: &str| self.weights.iter().find(|(role, _)| role.as_str() == name);
        let weight = |name: &str, part: &str| of(name).and_then(|(_, parts)| parts.get(part)).copied().unwrap_or(0.0);
        let mut problems = Vec::new();
        for (role, operator) in &self.credit {
            let path = format!("workflow.credit.{role}");
            if let CreditConfig::Difference(other) = operator
                && (other == role || !specs.iter().any(|spec| spec.name == *other && !spec.parts.is_empty()))
            {
                let message = format!("{other} is no other role that earns something in this workflow");
                problems.push(problem(path, message));
            } else if let Some(why) = credit_operator::refusal(config, role, operator, weight) {
                problems.push(problem(path, why));
            }
        }
        problems
    }

    /// Returns the mean total of each role that earned something.
    fn totals(&self, seats: &[SeatReward]) -> BTreeMap<RoleName, f64> {
        let mut sums: BTreeMap<RoleName, (f64, f64)> = BTreeMap::new();
        for seat in seats.iter().filter(|seat| !seat.parts.is_empty()) {
            let (sum, count) = sums.entry(seat.role.clone()).or_default();
            *sum += part_weights::total(&self.weights, seat);
            *count += 1.0;
        }
        sums.into_iter()
            .map(|(role, (sum, count))| (role, sum / count))
            .collect()
    }

    fn shape(&self, mut outcome: Outcome, events: &[Event]) -> Outcome {
        let totals = self.totals(&outcome.rewards);
        // A seat without any part has no reward, and gets none.
        for seat in outcome.rewards.iter_mut().filter(|seat| !seat.parts.is_empty()) {
            let own = part_weights::total(&self.weights, seat);
            let mut more: Vec<(&'static str, f64)> = Vec::new();
            if let Some(rules) = self.shaping.get(&seat.role) {
                let tokens = sampled(events, &seat.role, seat.seat);
                more.extend(rules.overlong.map(|rule| (OVERLONG, shaping::overlong(tokens, &rule))));
                more.extend(rules.length.map(|rule| (LENGTH, shaping::length(tokens, &rule))));
            }
            if let Some(operator) = self.credit.get(&seat.role) {
                let credit = credit_operator::credited(operator, &seat.role, own, &totals);
                more.extend([(OWN, own), (CREDIT, credit)]);
            }
            let part = |(name, value): (&'static str, f64)| Part {
                name,
                value: value as f32,
            };
            seat.parts.extend(more.into_iter().map(part));
        }
        outcome
    }
}

/// Returns the tokens that a seat sampled, over all its turns. The first event of a turn counts.
fn sampled(events: &[Event], role: &RoleName, seat: u16) -> u64 {
    let mut turns = BTreeSet::new();
    events
        .iter()
        .filter(|event| event.role == *role && event.seat == seat)
        .filter(|event| turns.insert(event.turn))
        .map(|event| u64::from(event.tokens))
        .sum()
}

impl Workflow for Shaped {
    fn kind(&self) -> &'static str {
        self.inner.kind()
    }

    fn roles(&self) -> Vec<RoleSpec> {
        let mut specs = self.inner.roles();
        for spec in &mut specs {
            let added = self.added(&spec.name);
            spec.parts.extend(added);
        }
        specs
    }

    fn check_task(&self, task: &Task) -> Result<(), String> {
        self.inner.check_task(task)
    }

    fn needs(&self, task: &Task) -> Vec<Need> {
        self.inner.needs(task)
    }

    fn check_tools(&self, task: &Task) -> Result<(), String> {
        self.inner.check_tools(task)
    }

    fn whole_turn(&self, role: &RoleName) -> Option<u32> {
        self.inner.whole_turn(role)
    }

    fn shares_pictures(&self) -> bool {
        self.inner.shares_pictures()
    }

    fn step(&self, task: &Task, seed: u64, events: &[Event]) -> Step {
        match self.inner.step(task, seed, events) {
            Step::Done(outcome) => Step::Done(self.shape(outcome, events)),
            other => other,
        }
    }

    fn most_turns(&self) -> Option<usize> {
        self.inner.most_turns()
    }

    fn answer(&self, task: &Task, events: &[Event]) -> Option<(Grader, String)> {
        self.inner.answer(task, events)
    }

    fn goes_on_without(&self, role: &RoleName) -> bool {
        self.inner.goes_on_without(role)
    }

    fn programs(&self) -> Vec<Program> {
        self.inner.programs()
    }

    fn tools(&self) -> Vec<ToolProgram> {
        self.inner.tools()
    }

    fn check_answer(&self, question: &Question, answer: &str) -> Result<(), String> {
        self.inner.check_answer(question, answer)
    }
}

#[cfg(test)]
mod tests;
