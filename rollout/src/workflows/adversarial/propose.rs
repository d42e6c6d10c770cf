//! `propose`: a proposer writes a problem, and a solver tries it `tries` times in parallel.
//!
//! With s the share of the tries that are right:
//!
//! | proposal | proposer `broken` | proposer `valid` | each try `correct` |
//! |---|---|---|---|
//! | cannot be read, or is out of bounds | 0 | 0 | - |
//! | valid | 1 - s | 1 | its grade |
//!
//! A problem is valid when its answer can be computed, so the proposer never earns for an
//! unsolvable problem. A try is compared only with the other tries at the same problem (the
//! subkey); the difficulty of other problems plays no part.

use std::collections::BTreeMap;

use broker::RoleName;
use broker::protocol::task::Task;
use broker::protocol::turn::Message;
use configs::{GraderConfig, Problem};
use minijinja::context;
use serde_json::Value;

use super::opponents::Opponents;
use super::problem::Problems;
use super::seats::seat;
use crate::grade::Grader;
use crate::workflow::params::{Params, grader};
use crate::workflow::prompts::{Prompts, templates, with_preamble};
use crate::workflow::transcript::{Transcript, ask, role};
use crate::workflow::{Event, Outcome, RoleSpec, Step, Workflow};
use crate::workflows::arithmetic::ArithmeticProblem;

const FULL: [(&str, &str); 2] = templates!("adversarial/full", "proposer", "solver");
const SHORT: [(&str, &str); 2] = templates!("adversarial/short", "proposer", "solver");

pub(super) struct Propose {
    proposer: RoleName,
    solver: RoleName,
    opponents: Opponents,
    problems: Problems,
    tries: u16,
    grader: Grader,
    prompts: Prompts,
}

impl Propose {
    pub(super) fn new(
        mut params: Params<'_>,
        graders: &BTreeMap<String, GraderConfig>,
    ) -> Result<(Self, Vec<Problem>), Vec<Problem>> {
        let (proposer, solver) = (role("proposer")?, role("solver")?);
        let short = params.choice("prompts", &["full", "short"]) == "short";
        let rule = grader(&mut params, graders).rule();
        // The label of a proposed problem is its value.
        let message = match rule {
            None => Some("is a program; answers to proposed problems are compared by a shipped grader".to_owned()),
            Some(Grader::Format) => Some(
                "is of kind \"format\", which reads no answer: name one that compares numbers, such as \"integer\""
                    .into(),
            ),
            Some(rule) => rule.check_label(&Value::from(1)).err().map(|why| {
                format!("cannot compare with a number ({why}): name one that does, such as of kind \"integer\"")
            }),
        };
        if let Some(message) = message {
            params.problem("grader", message);
        }
        let sample = context! { prompt => "?", problem => "?", left => 1, sign => "+", right => 1, least => 0, most => 1, signs => "+" };
        let game = Self {
            opponents: Opponents::take(&mut params, &[&proposer, &solver], &[&proposer, &solver]),
            proposer,
            solver,
            problems: Problems::take(&mut params),
            tries: tries(&mut params),
            grader: rule.unwrap_or(Grader::Exact),
            prompts: Prompts::new(if short { &SHORT } else { &FULL }, &mut params, &sample),
        };
        Ok((game, params.finish()))
    }

    fn proposer_prompt(&self, task: &Task) -> Vec<Message> {
        let Problems { least, most, signs } = &self.problems;
        let signs: Vec<String> = signs.iter().map(char::to_string).collect();
        let context = context! { prompt => task.prompt.text(), least, most, signs => signs.join(" ") };
        with_preamble(task, self.prompts.text("proposer", task, context))
    }

    fn solver_prompt(&self, task: &Task, problem: ArithmeticProblem) -> Vec<Message> {
        let ArithmeticProblem { left, op, right } = problem;
        let context = context! { problem => problem.text(), left, sign => op.to_string(), right };
        vec![Message::user(self.prompts.text("solver", task, context))]
    }

    /// Returns the role that solves this proposer's problems.
    fn drawn_solver<'a>(&'a self, proposer: &RoleName, task: &Task) -> &'a RoleName {
        // Two stand-ins would train no agent.
        if proposer == &self.proposer {
            self.opponents.drawn(&self.solver, task)
        } else {
            &self.solver
        }
    }

    /// Returns the metrics of a side against an opponent that does not train: `broken` is the
    /// proposer's part, `rate` the solver's. Where both sides have stand-ins, the two figures
    /// measure different things and have separate names.
    fn fixed(&self, proposer: &RoleName, solver: &RoleName, broken: f64, rate: f64) -> Option<(&'static str, f64)> {
        let both = self.opponents.stands_in(&self.proposer) && self.opponents.stands_in(&self.solver);
        let name = |stand_in, own: usize| self.opponents.won(stand_in)[if both { own } else { 0 }];
        match (proposer == &self.proposer, solver == &self.solver) {
            (true, false) => Some((name(solver, 1), broken)),
            (false, true) => Some((name(proposer, 2), rate)),
            _ => None,
        }
    }

    fn invalid(&self, proposer: &RoleName, solver: &RoleName) -> Outcome {
        let mut metrics = vec![("success", 0.0), ("valid", 0.0)];
        // A solver that was not asked has no result against its opponent, good or bad.
        if proposer == &self.proposer {
            metrics.extend(self.fixed(proposer, solver, 0.0, 0.0));
        }
        Outcome {
            rewards: vec![seat(proposer, 0, "", &[("broken", 0.0), ("valid", 0.0)])],
            metrics,
        }
    }
}

/// Tries at a problem are compared only with each other.
fn tries(params: &mut Params<'_>) -> u16 {
    let found = params.problems.len();
    let tries = params.integer("tries", 4, 2..=64) as u16;
    if let Some(problem) = params.problems.get_mut(found) {
        problem
            .message
            .push_str(": a single try has no comparison, so it trains nothing");
    }
    tries
}

impl Workflow for Propose {
    fn kind(&self) -> &'static str {
        "adversarial"
    }

    fn roles(&self) -> Vec<RoleSpec> {
        let mut roles = self.opponents.specs(&self.proposer, &[("broken", 1.0), ("valid", 0.0)]);
        roles.extend(self.opponents.specs(&self.solver, &[("correct", 1.0)]));
        roles
    }

    /// An invalid proposal is not tried.
    fn most_turns(&self) -> Option<usize> {
        Some(1 + usize::from(self.tries))
    }

    fn check_task(&self, task: &Task) -> Result<(), String> {
        self.prompts.check(task)
    }

    fn shares_pictures(&self) -> bool {
        true
    }

    fn step(&self, task: &Task, _seed: u64, events: &[Event]) -> Step {
        let events = Transcript(events);
        let proposer = self.opponents.drawn(&self.proposer, task);
        let Some(proposal) = events.first(proposer, 0) else {
            return Step::Ask(vec![ask(proposer, 0, self.proposer_prompt(task))]);
        };
        let solver = self.drawn_solver(proposer, task);
        let Some(problem) = self.problems.read(&proposal.text) else {
            return Step::Done(self.invalid(proposer, solver));
        };
        let tries = match events.stage(solver, self.tries, || self.solver_prompt(task, problem)) {
            Ok(tries) => tries,
            Err(missing) => return Step::Ask(missing),
        };
        let label = Value::from(problem.answer());
        let grades: Vec<f32> = tries.iter().map(|said| self.grader.grade(&said.text, &label)).collect();
        let rate = grades.iter().sum::<f32>() / grades.len().max(1) as f32;
        let mut rewards = vec![seat(proposer, 0, "", &[("broken", 1.0 - rate), ("valid", 1.0)])];
        let one = |(said, grade): (&&Event, &f32)| seat(solver, said.seat, &problem.text(), &[("correct", *grade)]);
        rewards.extend(tries.iter().zip(&grades).map(one));
        let rate = f64::from(rate);
        let mut metrics = vec![("success", rate), ("valid", 1.0), ("broken", 1.0 - rate)];
        metrics.extend(self.fixed(proposer, solver, 1.0 - rate, rate));
        Step::Done(Outcome { rewards, metrics })
    }
}
