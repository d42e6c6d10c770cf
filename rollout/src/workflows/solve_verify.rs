//! `solve-verify`: a solver answers, a verifier approves or rejects once, and after a rejection the
//! solver tries once more.
//!
//! Profile `dyad`: the retry sees its first solution and the critique. The verifier also earns
//! `gain`, the change by its rejection (`s2 - s1`; 0 if it approved). The solver's first attempt
//! never earns `gain`, because it comes before the verdict.
//!
//! Profile `astraflow`: the prompts' content, the parsing and the rewards of AstraFlow's
//! actor-verifier workflow (the retry sees only the verifier's output, the first tag counts, no
//! `gain`).

mod verdict;
mod verifier_check;
pub mod verifier_pool;
pub(crate) mod warm;

use std::collections::BTreeMap;

use broker::RoleName;
use broker::protocol::task::Task;
use broker::protocol::turn::Message;
use configs::{GraderConfig, Problem, WorkflowConfig};
use minijinja::context;

use crate::grade::Grader;
use crate::workflow::grading::{Grades, Grading, share};
use crate::workflow::params::{Params, check_roles, grader};
use crate::workflow::program::Program;
use crate::workflow::prompts::{Prompts, templates, with_preamble};
use crate::workflow::transcript::{Transcript, ask, reward, role};
use crate::workflow::{Event, Outcome, RoleSpec, SeatReward, Step, Workflow};
use verdict::{Pick, verdict};

const FULL: [(&str, &str); 3] = templates!("solve-verify/full", "solver", "verifier", "retry");
const SHORT: [(&str, &str); 3] = templates!("solve-verify/short", "solver", "verifier", "retry");
const ASTRAFLOW: [(&str, &str); 3] = templates!("solve-verify/astraflow", "solver", "verifier", "retry");

pub(crate) struct SolveVerify {
    solver: RoleName,
    verifier: RoleName,
    retry: RoleName,
    astraflow: bool,
    short: bool,
    grader: Grading,
    prompts: Prompts,
}

impl SolveVerify {
    pub(crate) fn new(config: &WorkflowConfig, graders: &BTreeMap<String, GraderConfig>) -> Result<Self, Vec<Problem>> {
        let (workflow, mut problems) = Self::built(config, graders)?;
        problems.extend(check_roles(config, &workflow.roles()));
        if problems.is_empty() {
            Ok(workflow)
        } else {
            Err(problems)
        }
    }

    /// Makes the workflow as [`SolveVerify::new`] does, for its prompts and its grader alone: roles
    /// without agents are no error.
    pub(crate) fn without_roles(
        config: &WorkflowConfig,
        graders: &BTreeMap<String, GraderConfig>,
    ) -> Result<Self, Vec<Problem>> {
        let (workflow, problems) = Self::built(config, graders)?;
        if problems.is_empty() {
            Ok(workflow)
        } else {
            Err(problems)
        }
    }

    fn built(
        config: &WorkflowConfig,
        graders: &BTreeMap<String, GraderConfig>,
    ) -> Result<(Self, Vec<Problem>), Vec<Problem>> {
        let mut params = Params::new(&config.params, "workflow.params");
        let astraflow = config.profile == "astraflow";
        let short = params.choice("prompts", &["full", "short"]) == "short";
        let templates = match (astraflow, short) {
            (true, _) => &ASTRAFLOW,
            (false, true) => &SHORT,
            (false, false) => &FULL,
        };
        let (solver, verifier, retry) = (role("solver")?, role("verifier")?, role("retry")?);
        let workflow = Self {
            astraflow,
            short: short && !astraflow,
            grader: grader(&mut params, graders).of_roles(&[&solver, &retry]),
            solver,
            verifier,
            retry,
            prompts: Prompts::new(
                templates,
                &mut params,
                &context! { prompt => "?", solution => "?", critique => "?" },
            ),
        };
        Ok((workflow, params.finish()))
    }

    pub(crate) fn verifier(&self) -> &RoleName {
        &self.verifier
    }

    /// Returns the messages of the solver's first attempt.
    pub(crate) fn solver_prompt(&self, task: &Task) -> Vec<Message> {
        self.messages(task, "solver", "", "")
    }

    /// Returns the messages of the verifier on this solution.
    pub(crate) fn verifier_prompt(&self, task: &Task, solution: &str) -> Vec<Message> {
        self.messages(task, "verifier", solution, "")
    }

    /// Returns the messages of the retry after this solution and its critique.
    pub(crate) fn retry_prompt(&self, task: &Task, solution: &str, critique: &str) -> Vec<Message> {
        self.messages(task, "retry", solution, critique)
    }

    fn messages(&self, task: &Task, template: &str, solution: &str, critique: &str) -> Vec<Message> {
        let problem = task.prompt.text();
        let problem = if self.astraflow {
            without_instruction(problem)
        } else {
            problem
        };
        let text = self
            .prompts
            .text(template, task, context! { prompt => problem, solution, critique });
        if self.astraflow {
            vec![Message::user(text)]
        } else {
            with_preamble(task, text)
        }
    }

    /// Returns `Some(approved)` from the verifier's text.
    pub(crate) fn verdict(&self, text: &str) -> Option<bool> {
        verdict(text, if self.astraflow { Pick::First } else { Pick::Last })
    }

    /// Returns the form in which a verifier writes its verdict under these prompts.
    pub(crate) fn verdict_text(&self, approve: bool) -> String {
        let word = if approve { "approve" } else { "reject" };
        if self.short {
            word.to_owned()
        } else {
            format!("<verify>{word}</verify>")
        }
    }

    /// Returns the form in which a solver writes its answer under these prompts.
    pub(crate) fn answer_text(&self, answer: i64) -> String {
        if self.short {
            answer.to_string()
        } else {
            format!("\\boxed{{{answer}}}")
        }
    }

    /// Returns the grade of an answer by a shipped grader; 0 if a program grades.
    pub(crate) fn grade(&self, text: &str, task: &Task) -> f32 {
        self.grader.rule().map_or(0.0, |grader| grader.grade(text, &task.label))
    }

    pub(crate) fn grading(&self) -> &Grading {
        &self.grader
    }

    fn done(&self, task: &Task, events: Transcript<'_>, said: (&Event, &Event, Option<&Event>)) -> Step {
        let grades = self.grader.grades(task, events);
        let outcome = self.outcome(&grades, said);
        grades.settle(outcome)
    }

    fn outcome(&self, grades: &Grades<'_>, (first, check, second): (&Event, &Event, Option<&Event>)) -> Outcome {
        let said = self.verdict(&check.text);
        let approved = said.unwrap_or(true);
        let (s1, s2) = (grades.of(first), second.map(|retry| grades.of(retry)));
        let right = said.is_some() && approved == (s1 > 0.5);
        let gain = s2.map_or(0.0, |s2| s2 - s1);
        let (right, flag) = (f32::from(u8::from(right)), |on: bool| f64::from(u8::from(on)));
        let mut rewards = vec![
            self.seat(&self.solver, vec![("correct", s1)]),
            self.seat(&self.verifier, vec![("verdict", right), ("gain", gain)]),
        ];
        rewards.extend(s2.map(|s2| self.seat(&self.retry, vec![("correct", s2), ("gain", gain)])));
        let mut metrics = vec![
            ("success", share(s2.unwrap_or(s1))),
            ("solver_first", share(s1)),
            ("verifier_right", f64::from(right)),
            ("approve_rate", flag(approved)),
            ("retry_rate", flag(s2.is_some())),
            ("verdict_unparsed", flag(said.is_none())),
        ];
        metrics.extend(s2.map(|s2| ("retry_success", share(s2))));
        Outcome { rewards, metrics }
    }

    fn seat(&self, role: &RoleName, parts: Vec<(&'static str, f32)>) -> SeatReward {
        let known = parts.into_iter().filter(|(name, _)| !self.astraflow || *name != "gain");
        reward(role, 0, &known.collect::<Vec<_>>())
    }
}

/// Returns a problem without the data set's instruction on how to answer, because each role's
/// prompt has one.
fn without_instruction(problem: &str) -> &str {
    let sentences = [
        "Please reason step by step",
        "Let's think step by step",
        "Please put your final answer within",
    ];
    let start = sentences.iter().filter_map(|sentence| problem.rfind(sentence)).min();
    // Removes only a suffix: a single line up to the end.
    match start {
        Some(at) if at > 0 && !problem[at..].trim_end().contains('\n') => problem[..at].trim_end(),
        _ => problem,
    }
}

impl Workflow for SolveVerify {
    fn kind(&self) -> &'static str {
        "solve-verify"
    }

    fn roles(&self) -> Vec<RoleSpec> {
        let spec = |name: &RoleName, parts: &[(&'static str, f64)]| {
            let parts = parts
                .iter()
                .filter(|(name, _)| !self.astraflow || *name != "gain")
                .copied()
                .collect();
            RoleSpec {
                name: name.clone(),
                parts,
            }
        };
        vec![
            spec(&self.solver, &[("correct", 1.0)]),
            spec(&self.verifier, &[("verdict", 1.0), ("gain", 0.5)]),
            spec(&self.retry, &[("correct", 1.0), ("gain", 0.0)]),
        ]
    }

    fn most_turns(&self) -> Option<usize> {
        Some(3)
    }

    fn check_task(&self, task: &Task) -> Result<(), String> {
        self.prompts.check(task)?;
        self.grader.check_label(&task.label)
    }

    fn shares_pictures(&self) -> bool {
        true
    }

    fn step(&self, task: &Task, _seed: u64, events: &[Event]) -> Step {
        let events = Transcript(events);
        let Some(first) = events.first(&self.solver, 0) else {
            return Step::Ask(vec![ask(&self.solver, 0, self.solver_prompt(task))]);
        };
        let Some(check) = events.first(&self.verifier, 0) else {
            return Step::Ask(vec![ask(&self.verifier, 0, self.verifier_prompt(task, &first.text))]);
        };
        if self.verdict(&check.text) != Some(false) {
            return self.done(task, events, (first, check, None));
        }
        let Some(second) = events.first(&self.retry, 0) else {
            let messages = self.retry_prompt(task, &first.text, &check.text);
            return Step::Ask(vec![ask(&self.retry, 0, messages)]);
        };
        self.done(task, events, (first, check, Some(second)))
    }

    /// Returns the retry's answer if there was one, else the first.
    fn answer(&self, _task: &Task, events: &[Event]) -> Option<(Grader, String)> {
        let events = Transcript(events);
        let said = events.first(&self.retry, 0).or(events.first(&self.solver, 0))?;
        Some((self.grader.rule()?, said.text.clone()))
    }

    fn programs(&self) -> Vec<Program> {
        self.grader.programs()
    }
}

#[cfg(test)]
mod tests;
