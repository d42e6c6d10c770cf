//! `sequential`: two agents answer one after the other, and the second sees the first's answer (MinT's two clients).
//!
//! Each earns the grade of its own answer, as `correct`. `team`, the second's grade, weighs nothing for the first unless the
//! configuration says so: it is settled after the first's turn, so it may credit it. `gain`, the second's grade less the
//! first's, may go to the second for the same reason the other way round.

use std::collections::BTreeMap;

use broker::RoleName;
use broker::protocol::task::Task;
use configs::{GraderConfig, Problem, WorkflowConfig};
use minijinja::context;

use super::grading::Grading;
use super::params::{Params, check_roles, grader};
use super::program::Program;
use super::prompts::{Prompts, with_preamble};
use super::transcript::{Transcript, ask, role};
use super::{Event, Outcome, Part, RoleSpec, SeatReward, Step, Workflow};

const TEMPLATES: [(&str, &str); 2] = [
    ("first", include_str!("../../templates/sequential/first.jinja")),
    ("second", include_str!("../../templates/sequential/second.jinja")),
];

pub(super) struct Sequential {
    first: RoleName,
    second: RoleName,
    grader: Grading,
    prompts: Prompts,
}

impl Sequential {
    pub(super) fn new(config: &WorkflowConfig, graders: &BTreeMap<String, GraderConfig>) -> Result<Self, Vec<Problem>> {
        let mut params = Params::new(&config.params, "workflow.params");
        let named = |name| role(name).map_err(|problem| vec![problem]);
        let (first, second) = (named("first")?, named("second")?);
        let workflow = Self {
            grader: grader(&mut params, graders).of_roles(&[&first, &second]),
            first,
            second,
            prompts: Prompts::new(&TEMPLATES, &mut params, &context! { prompt => "?", answer => "?" }),
        };
        let mut problems = params.finish();
        problems.extend(check_roles(config, &workflow.roles()));
        if problems.is_empty() {
            Ok(workflow)
        } else {
            Err(problems)
        }
    }
}

impl Workflow for Sequential {
    fn kind(&self) -> &'static str {
        "sequential"
    }

    fn roles(&self) -> Vec<RoleSpec> {
        let spec = |name: &RoleName, parts| RoleSpec {
            name: name.clone(),
            parts,
        };
        vec![
            spec(&self.first, vec![("correct", 1.0), ("team", 0.0)]),
            spec(&self.second, vec![("correct", 1.0), ("gain", 0.0)]),
        ]
    }

    fn check_task(&self, task: &Task) -> Result<(), String> {
        self.grader.check_label(&task.label)
    }

    fn step(&self, task: &Task, _seed: u64, events: &[Event]) -> Step {
        let (events, prompt) = (Transcript(events), task.prompt.text());
        let Some(first) = events.first(&self.first, 0) else {
            let text = self.prompts.text("first", context! { prompt });
            return Step::Ask(vec![ask(&self.first, 0, with_preamble(task, text))]);
        };
        let Some(second) = events.first(&self.second, 0) else {
            let text = self.prompts.text("second", context! { prompt, answer => first.text });
            return Step::Ask(vec![ask(&self.second, 0, with_preamble(task, text))]);
        };
        let grades = self.grader.grades(task, events);
        let (s1, s2) = (grades.of(first), grades.of(second));
        let part = |name, value| Part { name, value };
        let seat = |role: &RoleName, parts| SeatReward {
            role: role.clone(),
            seat: 0,
            subkey: String::new(),
            parts,
        };
        let rewards = vec![
            seat(&self.first, vec![part("correct", s1), part("team", s2)]),
            seat(&self.second, vec![part("correct", s2), part("gain", s2 - s1)]),
        ];
        let agree = f64::from(u8::from(first.text.trim() == second.text.trim()));
        let metrics = vec![
            ("success", f64::from(s2)),
            ("first", f64::from(s1)),
            ("second", f64::from(s2)),
            ("agree", agree),
        ];
        grades.settle(Outcome { rewards, metrics })
    }

    fn programs(&self) -> Vec<Program> {
        self.grader.programs()
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{any_events, check_total, config, event, graders, problems, task};
    use super::*;
    use proptest::prelude::*;

    fn sequential() -> Sequential {
        Sequential::new(&config("sequential", &["first", "second"], ""), &graders("integer")).unwrap()
    }

    #[test]
    fn the_second_sees_the_first_and_each_earns_its_own() {
        let (workflow, task) = (sequential(), task("2+3=", 5.into()));
        let Step::Ask(asks) = workflow.step(&task, 0, &[]) else {
            panic!()
        };
        assert_eq!(
            (asks[0].role.as_str(), asks[0].messages[0].content.as_str()),
            ("first", "2+3=")
        );
        let first = event("first", 0, "I say 6");
        let Step::Ask(asks) = workflow.step(&task, 0, std::slice::from_ref(&first)) else {
            panic!()
        };
        assert!(asks[0].messages[0].content.contains("I say 6"));
        let Step::Done(outcome) = workflow.step(&task, 0, &[first, event("second", 0, "5")]) else {
            panic!()
        };
        let values: Vec<f32> = outcome
            .rewards
            .iter()
            .flat_map(|seat| seat.parts.iter().map(|p| p.value))
            .collect();
        assert_eq!(values, [0.0, 1.0, 1.0, 1.0]);
        assert_eq!(outcome.metrics[0], ("success", 1.0));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let found = problems(
            Sequential::new(&config("sequential", &["first"], "prompts = 1"), &graders("integer")).map(|_| ()),
        );
        assert_eq!(found, ["workflow.params.prompts", "workflow.roles.second"]);
    }

    proptest! {
        #[test]
        fn any_list_of_events_is_answered(events in any_events()) {
            check_total(&sequential(), &task("2+3=", 5.into()), &events)?;
        }
    }
}
