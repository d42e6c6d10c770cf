//! `solo`: one agent answers and a grader gives its reward. It is the baseline for teams.

use std::collections::BTreeMap;

use broker::RoleName;
use broker::protocol::task::Task;
use configs::{GraderConfig, Problem, WorkflowConfig};

use super::solve_verify::SolveVerify;
use crate::grade::Grader;
use crate::workflow::grading::share;
use crate::workflow::params::check_roles;
use crate::workflow::program::Program;
use crate::workflow::transcript::{Transcript, ask, reward, role};
use crate::workflow::{Event, Outcome, RoleSpec, Step, Workflow};

/// The solver of `solve-verify` without the verifier, in the same prompts (`workflow.params` are
/// those of `solve-verify`) and with the same grader.
pub(crate) struct Solo {
    solver: RoleName,
    prompts: SolveVerify,
}

impl Solo {
    pub(crate) fn new(config: &WorkflowConfig, graders: &BTreeMap<String, GraderConfig>) -> Result<Self, Vec<Problem>> {
        let solo = Self {
            solver: role("solver")?,
            prompts: SolveVerify::without_roles(config, graders)?,
        };
        let problems = check_roles(config, &solo.roles());
        if problems.is_empty() { Ok(solo) } else { Err(problems) }
    }
}

impl Workflow for Solo {
    fn kind(&self) -> &'static str {
        "solo"
    }

    fn roles(&self) -> Vec<RoleSpec> {
        let name = self.solver.clone();
        vec![RoleSpec {
            name,
            parts: vec![("correct", 1.0)],
        }]
    }

    fn check_task(&self, task: &Task) -> Result<(), String> {
        self.prompts.check_task(task)
    }

    fn shares_pictures(&self) -> bool {
        true
    }

    fn step(&self, task: &Task, _seed: u64, events: &[Event]) -> Step {
        let Some(said) = Transcript(events).first(&self.solver, 0) else {
            return Step::Ask(vec![ask(&self.solver, 0, self.prompts.solver_prompt(task))]);
        };
        let grades = self.prompts.grading().grades(task, Transcript(events));
        let value = grades.of(said);
        grades.settle(Outcome {
            rewards: vec![reward(&self.solver, 0, &[("correct", value)])],
            metrics: vec![("success", share(value)), ("solver_first", share(value))],
        })
    }

    fn answer(&self, _task: &Task, events: &[Event]) -> Option<(Grader, String)> {
        let said = Transcript(events).first(&self.solver, 0)?;
        Some((self.prompts.grading().rule()?, said.text.clone()))
    }

    fn programs(&self) -> Vec<Program> {
        self.prompts.grading().clone().of_roles(&[&self.solver]).programs()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workflow::testing::{any_events, check_total, config, event, graders, problems, task};
    use proptest::prelude::*;

    fn solo() -> Solo {
        Solo::new(&config("solo", &["solver"], "prompts = \"short\""), &graders("integer")).unwrap()
    }

    #[test]
    fn the_answer_is_graded_and_earns_what_it_is_worth() {
        let task = task("2+3=", 5.into());
        let Step::Ask(asks) = solo().step(&task, 0, &[]) else {
            panic!()
        };
        assert_eq!(asks[0].messages[0].content, "2+3=");
        for (answer, worth) in [("5", 1.0), ("6", 0.0)] {
            let Step::Done(outcome) = solo().step(&task, 0, &[event("solver", 0, answer)]) else {
                panic!()
            };
            assert_eq!((outcome.rewards.len(), outcome.rewards[0].parts[0].value), (1, worth));
            assert_eq!(outcome.metrics[0], ("success", f64::from(worth)));
        }
    }

    #[test]
    fn an_ungraded_answer_earns_nothing_and_no_zero() {
        let mut graders = graders("judge");
        let judge = serde_json::json!({"url": "http://h/v1", "model": "m"});
        graders.get_mut("correct").unwrap().judge = Some(serde_json::from_value(judge).unwrap());
        let solo = Solo::new(&config("solo", &["solver"], "prompts = \"short\""), &graders).unwrap();
        let task = task("2+3=", 5.into());
        let said = event("solver", 0, "5");
        let outcome = |grade: &str| match solo.step(&task, 0, &[said.clone(), event("grade-solver", 0, grade)]) {
            Step::Done(outcome) => outcome,
            other => panic!("{other:?}"),
        };
        assert_eq!(outcome(r#"{"reward":0.5}"#).rewards[0].parts[0].value, 0.5);
        let lost = outcome(crate::workflow::program::TOMBSTONE);
        assert!(lost.rewards.is_empty());
        assert_eq!(lost.metrics, [("ungraded", 1.0)]);
    }

    #[test]
    fn the_answer_is_what_was_said_and_its_grader_compares_it() {
        let (grader, text) = solo()
            .answer(&task("2+3=", 5.into()), &[event("solver", 0, "so 5")])
            .unwrap();
        assert_eq!(grader.same(&text, "5"), Some(true));
        assert!(solo().answer(&task("2+3=", 5.into()), &[]).is_none());
    }

    #[test]
    fn misspelled_grader_is_to_be_renamed() {
        let of = |name: &str| {
            let grader = graders("integer").remove("correct").unwrap();
            let graders = [(name.to_owned(), grader)].into_iter().collect();
            Solo::new(&config("solo", &["solver"], ""), &graders)
                .map(|_| ())
                .unwrap_err()
        };
        let near = of("corect");
        assert_eq!(near[0].path, "graders.correct");
        assert!(near[0].message.ends_with("rename [graders.corect]"), "{near:?}");
        let far = of("other");
        assert!(
            far[0].message.contains("judge, process:FILE and remote:NAME"),
            "{far:?}"
        );
    }

    #[test]
    fn what_is_wrong_is_named() {
        let found = |roles: &[&str], params| {
            problems(Solo::new(&config("solo", roles, params), &graders("integer")).map(|_| ()))
        };
        assert_eq!(found(&["solver", "verifier"], ""), ["workflow.roles.verifier"]);
        assert_eq!(found(&[], "prompt = 1"), ["workflow.params.prompt"]);
    }

    proptest! {
        #[test]
        fn any_list_of_events_is_answered(events in any_events()) {
            check_total(&solo(), &task("2+3=", 5.into()), &events)?;
        }
    }
}
