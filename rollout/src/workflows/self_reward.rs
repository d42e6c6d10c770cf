//! `self-reward`: an agent answers, and then the same agent judges its answer against each item of
//! the task's rubric (MrlX's SelfRewarding).
//!
//! The answer earns `rubric`: the points of the items it meets over the sum of the positive points.
//! It may be below 0, because items about a fault have negative points; `clip = true` cuts it to
//! 0..1. The judging turns are not trained.
//!
//! A judgement that cannot be read is asked for again, up to `tries` times. If one item stays
//! without judgement, the answer has no reward and no success, and leaves the statistics. The
//! reference counts the item as not met, which pays for confusing the judge on items about a fault.

use broker::RoleName;
use broker::protocol::task::Task;
use broker::protocol::turn::Message;
use configs::{Problem, WorkflowConfig};
use minijinja::context;
use serde_json::Value;

use crate::judge::{read, words};
use crate::workflow::params::{Params, check_roles};
use crate::workflow::prompts::{Prompts, templates, with_preamble};
use crate::workflow::transcript::{Transcript, ask, reward, role};
use crate::workflow::{Ask, Event, Outcome, RoleSpec, Step, UNGRADED, Workflow};

const FULL: [(&str, &str); 2] = templates!("self-reward/full", "answerer", "grader");
const SHORT: [(&str, &str); 2] = templates!("self-reward/short", "answerer", "grader");
/// The key of an item's judgement.
const MET: &str = "criteria_met";
/// The message to a judge after a text that could not be read.
const AGAIN: &str = "That was no JSON object with \"criteria_met\". Reply with the object only.";
/// The same message in one word, for models with a small vocabulary.
const AGAIN_SHORT: &str = "?";

/// The key of a task's metadata that has the rubric.
const RUBRIC: &str = "rubric";
/// The most items of a rubric; each costs a generation.
const ITEMS: usize = 256;

pub(super) struct SelfReward {
    answerer: RoleName,
    grader: RoleName,
    tries: u16,
    clip: bool,
    again: &'static str,
    prompts: Prompts,
}

/// An item of a rubric.
struct Item {
    criterion: String,
    points: f64,
}

impl SelfReward {
    pub(super) fn new(config: &WorkflowConfig) -> Result<Self, Vec<Problem>> {
        let mut params = Params::new(&config.params, "workflow.params");
        let short = params.choice("prompts", &["full", "short"]) == "short";
        let workflow = Self {
            answerer: role("answerer")?,
            grader: role("grader")?,
            tries: params.integer("tries", 3, 1..=100) as u16,
            clip: params.choice("clip", &["no", "yes"]) == "yes",
            again: if short { AGAIN_SHORT } else { AGAIN },
            prompts: Prompts::new(
                if short { &SHORT } else { &FULL },
                &mut params,
                &context! { prompt => "?", conversation => "?", answer => "?", criterion => "?" },
            ),
        };
        let mut problems = params.finish();
        problems.extend(check_roles(config, &workflow.roles()));
        if problems.is_empty() {
            Ok(workflow)
        } else {
            Err(problems)
        }
    }

    /// Returns the judgement of an item, or the ask for it; `Ok(None)` if its tries are spent.
    fn judged(&self, events: Transcript<'_>, seat: u16, prompt: impl Fn() -> String) -> Result<Option<bool>, Box<Ask>> {
        for turn in 0..self.tries {
            let Some(said) = events.turn(&self.grader, seat, turn) else {
                // The repeated message is short, because the judge still has the question.
                let text = if turn == 0 { prompt() } else { self.again.to_owned() };
                let mut ask = ask(&self.grader, seat, vec![Message::user(text)]);
                ask.turn = turn;
                return Err(Box::new(ask));
            };
            if let Some(met) = criteria_met(&said.text) {
                return Ok(Some(met));
            }
        }
        Ok(None)
    }

    fn outcome(&self, items: &[Item], judged: &[Option<bool>]) -> Outcome {
        let positive: f64 = items.iter().map(|item| item.points.max(0.0)).sum();
        let met: f64 = items
            .iter()
            .zip(judged)
            .filter(|(_, met)| **met == Some(true))
            .map(|(item, _)| item.points)
            .sum();
        let share = met / positive.max(f64::MIN_POSITIVE);
        let score = if self.clip { share.clamp(0.0, 1.0) } else { share };
        let unread = judged.iter().filter(|met| met.is_none()).count();
        if unread > 0 {
            // The share with this judgement is unknown.
            return Outcome {
                rewards: Vec::new(),
                metrics: vec![("items_unread", unread as f64), (UNGRADED, 1.0)],
            };
        }
        Outcome {
            rewards: vec![reward(&self.answerer, 0, &[("rubric", score as f32)])],
            metrics: vec![
                ("success", share.clamp(0.0, 1.0)),
                ("rubric_share", share),
                ("items_unread", 0.0),
                (UNGRADED, 0.0),
            ],
        }
    }
}

/// Returns the value of the last JSON object with a boolean of that name, else the value on which
/// all mentions in words agree.
fn criteria_met(text: &str) -> Option<bool> {
    let objects = read::objects(text);
    let said = objects.iter().rev().find_map(|object| object.get(MET)?.as_bool());
    said.or_else(|| words::agreed(read::end_of(text), MET, &[MET], words::boolean))
}

/// Returns the items under `metadata.rubric`; an error says what is wrong with them.
fn rubric(task: &Task) -> Result<Vec<Item>, String> {
    let list = task.metadata.get(RUBRIC).and_then(Value::as_array);
    let list = list.ok_or("metadata.rubric is missing: a list of {\"criterion\": text, \"points\": number}")?;
    let item = |value: &Value| {
        let criterion = value.get("criterion").and_then(Value::as_str)?.to_owned();
        let points = value
            .get("points")
            .and_then(Value::as_f64)
            .filter(|points| points.is_finite())?;
        Some(Item { criterion, points })
    };
    let items: Option<Vec<Item>> = list.iter().map(item).collect();
    let items = items.ok_or("an item of metadata.rubric has no text \"criterion\" or a number \"points\"")?;
    if items.is_empty() || items.len() > ITEMS {
        return Err(format!(
            "metadata.rubric has {} items; 1 to {ITEMS} can be judged",
            items.len()
        ));
    }
    if items.iter().all(|item| item.points <= 0.0) {
        return Err("no item of metadata.rubric has positive points, so there is nothing to reach".into());
    }
    Ok(items)
}

impl Workflow for SelfReward {
    fn kind(&self) -> &'static str {
        "self-reward"
    }

    fn roles(&self) -> Vec<RoleSpec> {
        vec![
            RoleSpec {
                name: self.answerer.clone(),
                parts: vec![("rubric", 1.0)],
            },
            RoleSpec {
                name: self.grader.clone(),
                parts: Vec::new(),
            },
        ]
    }

    fn check_task(&self, task: &Task) -> Result<(), String> {
        self.prompts.check(task)?;
        rubric(task).map(|_| ())
    }

    fn shares_pictures(&self) -> bool {
        true
    }

    fn step(&self, task: &Task, _seed: u64, events: &[Event]) -> Step {
        let (events, prompt) = (Transcript(events), task.prompt.text());
        let Some(answer) = events.first(&self.answerer, 0) else {
            let text = self.prompts.text("answerer", task, context! { prompt });
            return Step::Ask(vec![ask(&self.answerer, 0, with_preamble(task, text))]);
        };
        // A task without a rubric was rejected before; there is nothing to judge.
        let items = rubric(task).unwrap_or_default();
        let (mut judged, mut asks) = (Vec::with_capacity(items.len()), Vec::new());
        for (seat, item) in items.iter().enumerate() {
            let text = || {
                let (answer, criterion) = (answer.text.as_str(), item.criterion.as_str());
                let conversation = task.prompt.conversation();
                self.prompts
                    .text("grader", task, context! { prompt, conversation, answer, criterion })
            };
            match self.judged(events, seat as u16, text) {
                Ok(met) => judged.push(met),
                Err(ask) => asks.push(*ask),
            }
        }
        if asks.is_empty() {
            Step::Done(self.outcome(&items, &judged))
        } else {
            Step::Ask(asks)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workflow::testing::{any_events, check_total, config, event, problems, several, task};
    use proptest::prelude::*;
    use serde_json::json;

    fn workflow(params: &str) -> SelfReward {
        SelfReward::new(&config("self-reward", &["answerer", "grader"], params)).unwrap()
    }

    fn question() -> Task {
        let mut task = task("What helps?", Value::Null);
        let rubric = json!([{"criterion": "names rest", "points": 4}, {"criterion": "names water", "points": 1},
                            {"criterion": "is rude", "points": -10}]);
        task.metadata.insert(RUBRIC.into(), rubric);
        task
    }

    fn said(seat: u16, turn: u16, text: &str) -> Event {
        Event {
            turn,
            ..event("grader", seat, text)
        }
    }

    const YES: &str = "{\"explanation\": \"x\", \"criteria_met\": true}";
    const NO: &str = "{\"criteria_met\": false}";

    fn done(workflow: &SelfReward, judged: [&str; 3]) -> Outcome {
        let mut events = vec![event("answerer", 0, "Rest.")];
        events.extend(judged.iter().enumerate().map(|(seat, text)| said(seat as u16, 0, text)));
        match workflow.step(&question(), 0, &events) {
            Step::Done(outcome) => outcome,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_answer_earns_its_share_of_the_points() {
        let share = |judged, params| done(&workflow(params), judged).rewards[0].parts[0].value;
        assert_eq!(share([YES, NO, NO], ""), 0.8);
        assert_eq!(share([YES, YES, NO], ""), 1.0);
        assert_eq!(share([YES, YES, YES], ""), -1.0);
        assert_eq!(share([YES, YES, YES], "clip = \"yes\""), 0.0);
    }

    #[test]
    fn items_are_judged_at_once_and_again_if_unreadable() {
        let workflow = workflow("tries = 2");
        let asks = |events: &[Event]| match workflow.step(&question(), 0, events) {
            Step::Ask(asks) => asks,
            other => panic!("{other:?}"),
        };
        let mut events = vec![event("answerer", 0, "Rest.")];
        let first = asks(&events);
        assert_eq!(first.len(), 3);
        assert!(first[2].messages[0].content.contains("is rude") && first[0].messages[0].content.contains("Rest."));
        events.extend([said(0, 0, YES), said(1, 0, "yes"), said(2, 0, NO)]);
        let again = asks(&events);
        assert_eq!((again.len(), again[0].seat, again[0].turn), (1, 1, 1));
        events.push(said(1, 1, "surely"));
        let Step::Done(outcome) = workflow.step(&question(), 0, &events) else {
            panic!()
        };
        assert!(
            outcome.rewards.is_empty(),
            "without a judgement there is no reward, and not a 0"
        );
        assert_eq!(
            outcome.metrics,
            [("items_unread", 1.0), (UNGRADED, 1.0)],
            "nor is there a success that counts it as not met"
        );
        assert!(outcome.is_ungraded());
        let read = done(&workflow, [YES, NO, NO]);
        assert!(read.metrics.contains(&("success", 0.8)) && read.metrics.contains(&(UNGRADED, 0.0)));
    }

    #[test]
    fn the_grader_reads_all_that_was_said_before_the_answer() {
        let (mut talk, workflow) = (question(), workflow(""));
        talk.prompt = several();
        let asks = |task: &Task| match workflow.step(task, 0, &[event("answerer", 0, "Rest.")]) {
            Step::Ask(asks) => asks[0].messages[0].content.clone(),
            other => panic!("{other:?}"),
        };
        let asked = asks(&talk);
        let all = "user: My child is three and has a fever.\n\nassistant: Since when?\n\nuser: Two days. What helps?\n";
        assert!(asked.contains(all), "{asked}");
        assert!(
            asks(&question()).contains(":\nWhat helps?\n"),
            "one message is its text"
        );
    }

    #[test]
    fn judgements_are_read_from_what_meant_to_be_json() {
        for (text, met) in [
            (YES, Some(true)),
            (NO, Some(false)),
            ("```json\n{\"criteria_met\":true,}\n```", Some(true)),
            ("'criteria_met': False", Some(false)),
            ("criteria_met", None),
            (
                "{\"criteria_met\": false, \"explanation\": \"criteria_met: true would need a dose\"}",
                Some(false),
            ),
            (
                "{\"criteria_met\": true, \"explanation\": \"the answer meets criteria_met.\"}",
                Some(true),
            ),
            (
                "{\"criteria_met\": false, \"explanation\": \"it would need a dose",
                Some(false),
            ),
            // A text that was cut is no object, and its words do not agree.
            (
                "{\"criteria_met\": false, \"explanation\": \"criteria_met: true would need",
                None,
            ),
            ("criteria_met: true\nIn short: \"criteria_met\": false", None),
            ("criteria_met: true\nSo criteria_met = True.", Some(true)),
            ("The first item's criteria_met: true", None),
            ("criteria_met: true, for it has a \"dose\"", Some(true)),
            (
                "{\"criteria_met\": true, \"explanation\": \"\\sqrt{2} is \"right\"\"}",
                Some(true),
            ),
            ("{\"criteria_met\": true} no: {\"criteria_met\": false}", Some(false)),
            ("{\"criteria_met\": \"yes\"}", None),
            ("true", None),
            ("", None),
        ] {
            assert_eq!(criteria_met(text), met, "{text}");
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        let found = problems(SelfReward::new(&config("self-reward", &["answerer"], "clip = true")).map(|_| ()));
        assert_eq!(found, ["workflow.params.clip", "workflow.roles.grader"]);
        let mut task = question();
        for (rubric, why) in [
            (json!(null), "missing"),
            (json!([]), "0 items"),
            (json!([{"criterion": "x"}]), "has no text"),
            (json!([{"criterion": "x", "points": -1}]), "positive"),
        ] {
            task.metadata.insert(RUBRIC.into(), rubric);
            assert!(workflow("").check_task(&task).unwrap_err().contains(why));
        }
    }

    proptest! {
        #[test]
        fn any_list_of_events_is_answered(events in any_events()) {
            check_total(&workflow(""), &question(), &events)?;
        }
    }
}
