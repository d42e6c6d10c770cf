//! `solve-verify`: a solver answers, a verifier approves or rejects once, and on a rejection the solver tries once more.
//!
//! Profile `dyad`: the retry sees its first solution and the critique; the verifier also earns `gain`, what its rejection
//! changed (`s2 - s1`; 0 if it approved). The solver's first attempt never earns `gain`: it comes before the verdict.
//! Profile `astraflow`: the prompts' content, the parsing and the rewards of AstraFlow's actor-verifier workflow (the retry
//! sees the verifier's output only, the first tag counts, no `gain`).

use std::collections::BTreeMap;

use broker::RoleName;
use broker::protocol::task::Task;
use broker::protocol::turn::Message;
use configs::{GraderConfig, Problem, WorkflowConfig};
use minijinja::context;

use super::params::{Params, check_roles, grader};
use super::prompts::{Prompts, with_preamble};
use super::transcript::{Transcript, ask, role};
use super::verdict::{Pick, verdict};
use super::{Event, Outcome, Part, RoleSpec, SeatReward, Step, Workflow};
use crate::grade::Grader;

macro_rules! templates {
    ($set:literal) => {
        [
            (
                "solver",
                include_str!(concat!("../../templates/solve-verify/", $set, "/solver.jinja")),
            ),
            (
                "verifier",
                include_str!(concat!("../../templates/solve-verify/", $set, "/verifier.jinja")),
            ),
            (
                "retry",
                include_str!(concat!("../../templates/solve-verify/", $set, "/retry.jinja")),
            ),
        ]
    };
}

const FULL: [(&str, &str); 3] = templates!("full");
const SHORT: [(&str, &str); 3] = templates!("short");
const ASTRAFLOW: [(&str, &str); 3] = templates!("astraflow");

pub(crate) struct SolveVerify {
    solver: RoleName,
    verifier: RoleName,
    retry: RoleName,
    astraflow: bool,
    short: bool,
    grader: Grader,
    prompts: Prompts,
}

impl SolveVerify {
    pub(crate) fn new(config: &WorkflowConfig, graders: &BTreeMap<String, GraderConfig>) -> Result<Self, Vec<Problem>> {
        let mut params = Params::new(&config.params, "workflow.params");
        let astraflow = config.profile == "astraflow";
        let short = params.choice("prompts", &["full", "short"]) == "short";
        let templates = match (astraflow, short) {
            (true, _) => &ASTRAFLOW,
            (false, true) => &SHORT,
            (false, false) => &FULL,
        };
        let workflow = Self {
            solver: role("solver").map_err(|p| vec![p])?,
            verifier: role("verifier").map_err(|p| vec![p])?,
            retry: role("retry").map_err(|p| vec![p])?,
            astraflow,
            short: short && !astraflow,
            grader: grader(&mut params, graders),
            prompts: Prompts::new(
                templates,
                &mut params,
                &context! { prompt => "?", solution => "?", critique => "?" },
            ),
        };
        let mut problems = params.finish();
        if !astraflow && config.profile != "dyad" {
            let message = format!(
                "{:?} is no profile of solve-verify: use dyad or astraflow",
                config.profile
            );
            problems.push(Problem {
                path: "workflow.profile".into(),
                message,
            });
        }
        problems.extend(check_roles(config, &workflow.roles()));
        if problems.is_empty() {
            Ok(workflow)
        } else {
            Err(problems)
        }
    }

    /// The messages of the solver's first attempt.
    pub(crate) fn solver_prompt(&self, task: &Task) -> Vec<Message> {
        self.messages(task, "solver", "", "")
    }

    /// The messages of the verifier on this solution.
    pub(crate) fn verifier_prompt(&self, task: &Task, solution: &str) -> Vec<Message> {
        self.messages(task, "verifier", solution, "")
    }

    /// The messages of the retry after this solution and its critique.
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
            .text(template, context! { prompt => problem, solution, critique });
        if self.astraflow {
            vec![Message::user(text)]
        } else {
            with_preamble(task, text)
        }
    }

    /// `Some(approved)` as the verifier's text says.
    pub(crate) fn verdict(&self, text: &str) -> Option<bool> {
        verdict(text, if self.astraflow { Pick::First } else { Pick::Last })
    }

    /// How a verifier is to write its verdict under these prompts.
    pub(crate) fn verdict_text(&self, approve: bool) -> String {
        let word = if approve { "approve" } else { "reject" };
        if self.short {
            word.to_owned()
        } else {
            format!("<verify>{word}</verify>")
        }
    }

    /// How a solver is to write its answer under these prompts.
    pub(crate) fn answer_text(&self, answer: i64) -> String {
        if self.short {
            answer.to_string()
        } else {
            format!("\\boxed{{{answer}}}")
        }
    }

    pub(crate) fn grade(&self, text: &str, task: &Task) -> f32 {
        self.grader.grade(text, &task.label)
    }

    fn outcome(&self, task: &Task, first: &Event, check: &Event, second: Option<&Event>) -> Outcome {
        let said = self.verdict(&check.text);
        let approved = said.unwrap_or(true);
        let (s1, s2) = (
            self.grade(&first.text, task),
            second.map(|retry| self.grade(&retry.text, task)),
        );
        let right = said.is_some() && approved == (s1 > 0.5);
        let gain = s2.map_or(0.0, |s2| s2 - s1);
        let (right, flag) = (f32::from(u8::from(right)), |on: bool| f64::from(u8::from(on)));
        let mut rewards = vec![
            self.seat(&self.solver, vec![("correct", s1)]),
            self.seat(&self.verifier, vec![("verdict", right), ("gain", gain)]),
        ];
        rewards.extend(s2.map(|s2| self.seat(&self.retry, vec![("correct", s2), ("gain", gain)])));
        let mut metrics = vec![
            ("success", f64::from(s2.unwrap_or(s1))),
            ("solver_first", f64::from(s1)),
            ("verifier_right", f64::from(right)),
            ("approve_rate", flag(approved)),
            ("retry_rate", flag(s2.is_some())),
            ("verdict_unparsed", flag(said.is_none())),
        ];
        metrics.extend(s2.map(|s2| ("retry_success", f64::from(s2))));
        Outcome { rewards, metrics }
    }

    fn seat(&self, role: &RoleName, parts: Vec<(&'static str, f32)>) -> SeatReward {
        let known = parts.into_iter().filter(|(name, _)| !self.astraflow || *name != "gain");
        let parts = known.map(|(name, value)| Part { name, value }).collect();
        SeatReward {
            role: role.clone(),
            seat: 0,
            subkey: String::new(),
            parts,
        }
    }
}

/// A problem without the dataset's instruction on how to answer, which each role's prompt gives itself.
fn without_instruction(problem: &str) -> &str {
    let sentences = [
        "Please reason step by step",
        "Let's think step by step",
        "Please put your final answer within",
    ];
    let start = sentences.iter().filter_map(|sentence| problem.rfind(sentence)).min();
    // Only a suffix: a single line up to the end.
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

    fn check_task(&self, task: &Task) -> Result<(), String> {
        self.grader.check_label(&task.label)
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
            return Step::Done(self.outcome(task, first, check, None));
        }
        let Some(second) = events.first(&self.retry, 0) else {
            let messages = self.retry_prompt(task, &first.text, &check.text);
            return Step::Ask(vec![ask(&self.retry, 0, messages)]);
        };
        Step::Done(self.outcome(task, first, check, Some(second)))
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{any_events, check_total, config, event, graders, problems, task};
    use super::*;
    use proptest::prelude::*;

    fn workflow(profile: &str, params: &str) -> SolveVerify {
        let mut config = config("solve-verify", &["solver", "verifier", "retry"], params);
        config.profile = profile.into();
        SolveVerify::new(&config, &graders("integer")).unwrap()
    }

    type Parts = Vec<(String, Vec<(&'static str, f32)>)>;

    fn parts(outcome: &Outcome) -> Parts {
        let parts = |r: &SeatReward| r.parts.iter().map(|p| (p.name, p.value)).collect();
        outcome.rewards.iter().map(|r| (r.role.to_string(), parts(r))).collect()
    }

    fn done(workflow: &SolveVerify, texts: [Option<&str>; 3]) -> Outcome {
        let roles = ["solver", "verifier", "retry"];
        let events: Vec<Event> = roles
            .iter()
            .zip(texts)
            .filter_map(|(r, t)| Some(event(r, 0, t?)))
            .collect();
        match workflow.step(&task("2+3=", 5.into()), 0, &events) {
            Step::Done(outcome) => outcome,
            other => panic!("{other:?}"),
        }
    }

    /// (first, verdict, retry), then s1, s2, verdict right, gain.
    const BRANCHES: [(&str, &str, Option<&str>, [f32; 4]); 8] = [
        ("5", "approve", None, [1.0, 0.0, 1.0, 0.0]),
        ("4", "approve", None, [0.0, 0.0, 0.0, 0.0]),
        ("4", "reject", Some("5"), [0.0, 1.0, 1.0, 1.0]),
        ("4", "reject", Some("6"), [0.0, 0.0, 1.0, 0.0]),
        ("5", "reject", Some("5"), [1.0, 1.0, 0.0, 0.0]),
        ("5", "reject", Some("4"), [1.0, 0.0, 0.0, -1.0]),
        ("5", "well", None, [1.0, 0.0, 0.0, 0.0]),
        ("4", "approve, no, reject", None, [0.0, 0.0, 0.0, 0.0]),
    ];

    #[test]
    fn every_branch_earns_what_the_table_says() {
        for (first, check, retry, [s1, s2, right, gain]) in BRANCHES {
            let texts = [Some(first), Some(check), retry];
            let solver = ("solver".to_owned(), vec![("correct", s1)]);
            let mut dyad = vec![
                solver.clone(),
                ("verifier".into(), vec![("verdict", right), ("gain", gain)]),
            ];
            let mut astraflow = vec![solver, ("verifier".into(), vec![("verdict", right)])];
            if retry.is_some() {
                dyad.push(("retry".into(), vec![("correct", s2), ("gain", gain)]));
                astraflow.push(("retry".into(), vec![("correct", s2)]));
            }
            let outcome = done(&workflow("dyad", ""), texts);
            assert_eq!(parts(&outcome), dyad, "{texts:?}");
            assert_eq!(parts(&done(&workflow("astraflow", ""), texts)), astraflow, "{texts:?}");
            let metrics: BTreeMap<_, _> = outcome.metrics.into_iter().collect();
            let last = if retry.is_some() { s2 } else { s1 };
            let expected = [
                f64::from(last),
                s1.into(),
                right.into(),
                f64::from(u8::from(retry.is_some())),
            ];
            let found = ["success", "solver_first", "verifier_right", "retry_rate"].map(|name| metrics[name]);
            assert_eq!(found, expected, "{texts:?}");
            assert_eq!(metrics["approve_rate"], 1.0 - metrics["retry_rate"]);
        }
    }

    #[test]
    fn the_profiles_differ_in_which_tag_counts() {
        let texts = [
            Some("4"),
            Some("<verify>approve</verify> <verify>reject</verify>"),
            Some("5"),
        ];
        assert_eq!(done(&workflow("dyad", ""), texts).rewards.len(), 3);
        assert_eq!(done(&workflow("astraflow", ""), texts).rewards.len(), 2);
    }

    fn prompt(workflow: &SolveVerify, events: &[Event]) -> String {
        let problem = "2+3=\nPlease reason step by step, and put your final answer within \\boxed{}.";
        match workflow.step(&task(problem, 5.into()), 0, events) {
            Step::Ask(asks) => asks[0].messages.iter().map(|m| m.content.as_str()).collect(),
            Step::Done(_) => panic!(),
        }
    }

    #[test]
    fn each_role_sees_what_it_may() {
        let events = [event("solver", 0, "FIRST"), event("verifier", 0, "CRITIQUE reject")];
        for (profile, first_in_retry) in [("dyad", true), ("astraflow", false)] {
            let workflow = workflow(profile, "");
            let [solver, verifier, retry] = [0, 1, 2].map(|n| prompt(&workflow, &events[..n]));
            assert!([&solver, &verifier, &retry].iter().all(|p| p.contains("2+3=")));
            assert!(verifier.contains("FIRST") && retry.contains("CRITIQUE"));
            assert_eq!(retry.contains("FIRST"), first_in_retry);
            assert_eq!(solver.contains("Please reason"), profile == "dyad", "{solver}");
        }
        let short = workflow("dyad", "prompts = \"short\"");
        assert_eq!(short.verifier_prompt(&task("2+3=", 5.into()), "6")[0].content, "2+3=6?");
    }

    #[test]
    fn messages_before_the_problem_are_kept() {
        let mut task = task("", 5.into());
        let messages = vec![Message::system("be brief"), Message::user("2+3=")];
        task.prompt = broker::protocol::task::Prompt::Messages(messages);
        let prompt = workflow("dyad", "prompts = \"short\"").solver_prompt(&task);
        assert_eq!(prompt, [Message::system("be brief"), Message::user("2+3=")]);
        assert_eq!(workflow("astraflow", "").solver_prompt(&task).len(), 1);
    }

    #[test]
    fn what_is_wrong_is_named() {
        let mut config = config(
            "solve-verify",
            &["solver", "verifier"],
            "prompts = \"tiny\"\ngrader = \"strict\"",
        );
        config.profile = "astra".into();
        let found = problems(SolveVerify::new(&config, &graders("integer")).map(|_| ()));
        assert_eq!(
            found,
            [
                "graders.strict",
                "workflow.params.prompts",
                "workflow.profile",
                "workflow.roles.retry"
            ]
        );
        config.params = toml::Table::new();
        let found = problems(SolveVerify::new(&config, &graders("vibes")).map(|_| ()));
        assert_eq!(
            found,
            ["graders.correct.kind", "workflow.profile", "workflow.roles.retry"]
        );
        let label = workflow("dyad", "").check_task(&task("2+3=", "five".into()));
        assert!(label.unwrap_err().contains("whole number"));
    }

    proptest! {
        #[test]
        fn any_list_of_events_is_answered(events in any_events(), astraflow: bool) {
            let workflow = workflow(if astraflow { "astraflow" } else { "dyad" }, "");
            check_total(&workflow, &task("2+3=", 5.into()), &events)?;
        }
    }
}
