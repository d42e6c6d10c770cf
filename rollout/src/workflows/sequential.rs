//! `sequential`: two agents answer one after the other, and the second sees the first's answer
//! (MinT's two clients).
//!
//! Each earns the grade of its own answer, as `correct`, and pays for the rest, as `wrong`: a right
//! answer is worth 1 and a wrong one -0.25, as in MinT's recipe.
//!
//! `team`, the second's grade, has weight 0 for the first unless the configuration gives one. It is
//! settled after the first's turn, so it may credit that turn. `gain`, the second's grade less the
//! first's, may go to the second, because the first's grade is settled before the second's turn.
//! The label is the known answer of both, for agents with a cross-entropy loss.

pub(crate) mod warm;

use std::collections::BTreeMap;

use broker::RoleName;
use broker::protocol::task::Task;
use broker::protocol::turn::Message;
use configs::{GraderConfig, Problem, WorkflowConfig};
use minijinja::context;
use serde_json::Value;

use crate::grade::Grader;
use crate::workflow::grading::{Grading, share};
use crate::workflow::params::{Params, check_roles, grader};
use crate::workflow::program::Program;
use crate::workflow::prompts::{Prompts, templates, with_preamble};
use crate::workflow::transcript::{Transcript, ask, reward, role};
use crate::workflow::{Event, Outcome, RoleSpec, SeatReward, Step, Workflow};

/// The reward of a wrong answer.
const WRONG: f64 = -0.25;

const FULL: [(&str, &str); 2] = templates!("sequential/full", "first", "second");
const SHORT: [(&str, &str); 2] = templates!("sequential/short", "first", "second");
const MINT: [(&str, &str); 2] = templates!("sequential/mint", "first", "second");

/// Checks the param `clients`, which says how agents play the two roles. `any`: as in
/// `[workflow.roles]`; `two`: two agents with adapters over one base; `auto`: two if memory allows,
/// else one agent that takes turns with itself.
pub(crate) const CLIENTS: [&str; 3] = ["any", "two", "auto"];

pub(crate) struct Sequential {
    first: RoleName,
    second: RoleName,
    grader: Grading,
    prompts: Prompts,
}

impl Sequential {
    pub(crate) fn new(config: &WorkflowConfig, graders: &BTreeMap<String, GraderConfig>) -> Result<Self, Vec<Problem>> {
        let (workflow, mut problems) = Self::built(config, graders)?;
        problems.extend(check_roles(config, &workflow.roles()));
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
        let (first, second) = (role("first")?, role("second")?);
        let templates = match params.choice("prompts", &["full", "short", "mint"]) {
            "short" => &SHORT,
            "mint" => &MINT,
            _ => &FULL,
        };
        // The start of a run reads it: whether two agents must play, or one may replace both.
        params.choice("clients", &CLIENTS);
        let workflow = Self {
            grader: grader(&mut params, graders).of_roles(&[&first, &second]),
            first,
            second,
            prompts: Prompts::new(templates, &mut params, &context! { prompt => "?", answer => "?" }),
        };
        Ok((workflow, params.finish()))
    }

    /// Returns the messages of the first answer.
    pub(crate) fn first_prompt(&self, task: &Task) -> Vec<Message> {
        let prompt = task.prompt.text();
        with_preamble(task, self.prompts.text("first", task, context! { prompt }))
    }

    /// Returns the messages of the second answer, after the first's.
    pub(crate) fn second_prompt(&self, task: &Task, answer: &str) -> Vec<Message> {
        let prompt = task.prompt.text();
        with_preamble(task, self.prompts.text("second", task, context! { prompt, answer }))
    }
}

/// Returns the known answer as text: a text unchanged, a number in digits.
fn known_answer(label: &Value) -> Option<String> {
    match label {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
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
            spec(&self.first, vec![("correct", 1.0), ("wrong", WRONG), ("team", 0.0)]),
            spec(&self.second, vec![("correct", 1.0), ("wrong", WRONG), ("gain", 0.0)]),
        ]
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
        let Some(first) = events.first(&self.first, 0) else {
            return Step::Ask(vec![ask(&self.first, 0, self.first_prompt(task))]);
        };
        let Some(second) = events.first(&self.second, 0) else {
            return Step::Ask(vec![ask(&self.second, 0, self.second_prompt(task, &first.text))]);
        };
        let grades = self.grader.grades(task, events);
        let (s1, s2) = (grades.of(first), grades.of(second));
        let seat = |role: &RoleName, parts: &[(&'static str, f32)]| SeatReward {
            target: known_answer(&task.label),
            ..reward(role, 0, parts)
        };
        let rewards = vec![
            seat(&self.first, &[("correct", s1), ("wrong", 1.0 - s1), ("team", s2)]),
            seat(&self.second, &[("correct", s2), ("wrong", 1.0 - s2), ("gain", s2 - s1)]),
        ];
        let agree = f64::from(u8::from(first.text.trim() == second.text.trim()));
        let metrics = vec![
            ("success", share(s2)),
            ("first", share(s1)),
            ("second", share(s2)),
            ("agree", agree),
        ];
        grades.settle(Outcome { rewards, metrics })
    }

    fn answer(&self, _task: &Task, events: &[Event]) -> Option<(Grader, String)> {
        let said = Transcript(events).first(&self.second, 0)?;
        Some((self.grader.rule()?, said.text.clone()))
    }

    fn programs(&self) -> Vec<Program> {
        self.grader.programs()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::workflow::part_weights;
    use crate::workflow::testing::{any_events, check_total, config, event, graders, problems, task};
    use configs::RunConfig;
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
        assert_eq!(values, [0.0, 1.0, 1.0, 1.0, 0.0, 1.0]);
        assert_eq!(outcome.metrics[0], ("success", 1.0));
        assert!(outcome.rewards.iter().all(|seat| seat.target.as_deref() == Some("5")));
    }

    /// The recipe's numbers, where the configuration gives no weights, and in the shipped
    /// configuration.
    #[test]
    fn a_right_answer_is_worth_1_and_a_wrong_one_less_than_nothing() {
        let shipped = |text: &str| {
            let config = RunConfig::parse(text, Path::new("shipped.toml")).unwrap();
            (
                Sequential::new(&config.workflow, &config.graders).unwrap(),
                config.workflow,
            )
        };
        let played = [
            (sequential(), config("sequential", &["first", "second"], "")),
            shipped(include_str!("../../../configs/two-lora.toml")),
            shipped(include_str!("../../../configs/two-lora-qwen3-0.6b.toml")),
        ];
        for (workflow, config) in played {
            let weights = part_weights::given(&config, &workflow.roles());
            for (first, second, earned) in [
                ("5", "5", [1.0, 1.0]),
                ("6", "5", [-0.25, 1.0]),
                ("5", "no idea", [1.0, -0.25]),
            ] {
                let events = [event("first", 0, first), event("second", 0, second)];
                let Step::Done(outcome) = workflow.step(&task("2+3=", 5.into()), 0, &events) else {
                    panic!()
                };
                let totals: Vec<f64> = outcome
                    .rewards
                    .iter()
                    .map(|seat| part_weights::total(&weights, seat))
                    .collect();
                assert_eq!(totals, earned, "{first}, {second}");
            }
        }
    }

    #[test]
    fn the_shipped_recipe_reads_the_first_number() {
        for text in [
            include_str!("../../../configs/two-lora.toml"),
            include_str!("../../../configs/two-lora-qwen3-0.6b.toml"),
        ] {
            let config = RunConfig::parse(text, Path::new("shipped.toml")).unwrap();
            let workflow = Sequential::new(&config.workflow, &config.graders).unwrap();
            let events = [event("first", 0, "5 ... 10"), event("second", 0, "2 + 3 = 5")];
            let Step::Done(outcome) = workflow.step(&task("2+3=", 5.into()), 0, &events) else {
                panic!()
            };
            assert_eq!(outcome.metrics[1..3], [("first", 1.0), ("second", 0.0)]);
        }
    }

    #[test]
    fn the_prompts_are_those_of_the_page() {
        let params = "prompts = \"mint\"";
        let workflow =
            Sequential::new(&config("sequential", &["first", "second"], params), &graders("integer")).unwrap();
        let task = task("What is 2+3?", 5.into());
        assert_eq!(
            workflow.first_prompt(&task)[0].content,
            "Agent A: answer the math question with only the number. What is 2+3?\nAnswer:"
        );
        assert_eq!(
            workflow.second_prompt(&task, "6")[0].content,
            "Agent B: Agent A answered '6'. Now answer the same question with only the number. What is 2+3?\nAnswer:"
        );
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
