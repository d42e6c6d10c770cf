use std::collections::BTreeMap;

use broker::protocol::turn::Message;
use serde_json::{Value, json};

use super::super::testing::{config, graders, task};
use super::super::{Part, RoleSpec, Transcript, ask};
use super::*;
use crate::workflows::build;

#[derive(Clone, Copy, PartialEq)]
enum Flaw {
    None,
    AsksTwice,
    AsksAgain,
    SaysNothing,
    Forgets,
    NeverEnds,
    Fails,
    StrangePart,
    NotANumber,
    Stranger,
    EarnsUnheard,
    EarnsTwice,
    NoSuccess,
    UnknownRole,
    Idle,
}

/// Two speakers, a and b, asked at once, who both earn; wrong in one way.
struct Flawed(Flaw);

fn named(role: &str) -> RoleName {
    RoleName::new(role).unwrap()
}

fn earned(role: &str, part: &'static str, value: f32) -> SeatReward {
    SeatReward {
        role: named(role),
        seat: 0,
        subkey: String::new(),
        target: None,
        parts: vec![Part { name: part, value }],
    }
}

impl Flawed {
    fn asks(&self, missing: &[&str]) -> Vec<Ask> {
        let one = |role: &&str| ask(&named(role), 0, vec![Message::user("go")]);
        let mut asks: Vec<Ask> = missing.iter().map(one).collect();
        match self.0 {
            Flaw::AsksTwice => asks.push(asks[0].clone()),
            Flaw::AsksAgain => asks = ["a", "b"].iter().map(one).collect(),
            Flaw::SaysNothing => asks[0].messages.clear(),
            Flaw::UnknownRole => asks.push(ask(&named("c"), 0, vec![Message::user("go")])),
            Flaw::Idle => asks.clear(),
            _ => {}
        }
        asks
    }

    fn outcome(&self) -> Outcome {
        let mut rewards = vec![earned("a", "said", 1.0), earned("b", "said", 0.0)];
        match self.0 {
            Flaw::StrangePart => rewards[0] = earned("a", "other", 1.0),
            Flaw::NotANumber => rewards[0] = earned("a", "said", f32::NAN),
            Flaw::Stranger => rewards.push(earned("c", "said", 1.0)),
            Flaw::EarnsUnheard => rewards[0].seat = 9,
            Flaw::EarnsTwice => rewards.push(earned("a", "said", 1.0)),
            _ => {}
        }
        let success = if self.0 == Flaw::NoSuccess { "luck" } else { "success" };
        Outcome {
            rewards,
            metrics: vec![(success, 1.0)],
        }
    }
}

impl Workflow for Flawed {
    fn kind(&self) -> &'static str {
        "flawed"
    }

    fn roles(&self) -> Vec<RoleSpec> {
        let spec = |role: &str| RoleSpec {
            name: named(role),
            parts: vec![("said", 1.0)],
        };
        vec![spec("a"), spec("b")]
    }

    fn check_task(&self, _: &Task) -> Result<(), String> {
        Ok(())
    }

    fn step(&self, _: &Task, _: u64, events: &[Event]) -> Step {
        let said = |role: &str| Transcript(events).first(&named(role), 0).is_some();
        let missing: Vec<&str> = ["a", "b"].into_iter().filter(|role| !said(role)).collect();
        match (self.0, &missing[..]) {
            (Flaw::NeverEnds, []) => {
                let next = (0..).find(|turn| Transcript(events).turn(&named("a"), 0, *turn).is_none());
                Step::Ask(vec![Ask {
                    turn: next.unwrap(),
                    ..ask(&named("a"), 0, vec![Message::user("go")])
                }])
            }
            (Flaw::Fails, []) => Step::Fail("no reason".into()),
            (_, []) => Step::Done(self.outcome()),
            (Flaw::Forgets, ["a", "b"]) if events.is_empty() => Step::Ask(self.asks(&["a", "b"])),
            (Flaw::Forgets, [first, ..]) => Step::Ask(self.asks(&[*first])),
            (_, missing) => Step::Ask(self.asks(missing)),
        }
    }
}

#[test]
fn every_broken_promise_is_found_and_said() {
    let task = task("go", 5.into());
    assert_eq!(check(&Flawed(Flaw::None), &task), Ok(()));
    for (flaw, words) in [
        (Flaw::AsksTwice, "is asked for twice"),
        (Flaw::AsksAgain, "was answered"),
        (Flaw::SaysNothing, "without a message"),
        (Flaw::Forgets, "is forgotten"),
        (Flaw::NeverEnds, "has no end"),
        (Flaw::Fails, "it fails: no reason"),
        (Flaw::StrangePart, "earns the parts [\"other\"]"),
        (Flaw::NotANumber, "part said of a/0 is NaN"),
        (Flaw::Stranger, "c/0 earns, and never spoke"),
        (Flaw::EarnsUnheard, "a/9 earns, and never spoke"),
        (Flaw::EarnsTwice, "a/0 earns twice"),
        (Flaw::NoSuccess, "no finite `success`"),
        (Flaw::UnknownRole, "c, which is none of its roles"),
        (Flaw::Idle, "asks for nothing"),
    ] {
        let broken = check(&Flawed(flaw), &task).expect_err(words);
        assert!(broken.contains(words), "{words}: {broken}");
    }
}

#[test]
fn shipped_workflows_keep_it() {
    let config = config("solve-verify", &["solver", "verifier", "retry"], "prompts = \"short\"");
    let workflow = build(&config, &graders("integer"), &BTreeMap::new()).unwrap();
    assert_eq!(check(&*workflow, &task("2+3=", 5.into())), Ok(()));
    let refused = check(&*workflow, &task("2+3=", "five".into())).unwrap_err();
    assert!(refused.starts_with("it does not take the task"), "{refused}");
}

#[test]
fn of_a_workflow_with_programs_the_asks_are_checked() {
    let config = config("solve-verify", &["solver", "verifier", "retry"], "prompts = \"short\"");
    let program = concat!("process:", env!("CARGO_MANIFEST_DIR"), "/../configs/programs/reward.py");
    let workflow = build(&config, &graders(program), &BTreeMap::new()).unwrap();
    assert_eq!(check(&*workflow, &task("2+3=", 5.into())), Ok(()));
}

/// Plays all conversations of a workflow in which this program decides.
fn decided(mut program: impl FnMut(&Value) -> Value) -> Result<(), String> {
    let file = concat!(
        "process:",
        env!("CARGO_MANIFEST_DIR"),
        "/../configs/programs/solve_verify.py"
    );
    let workflow = build(&config(file, &["a", "b"], ""), &BTreeMap::new(), &BTreeMap::new()).unwrap();
    let task = task("go", 5.into());
    for number in 0..PLAYED {
        let mut played = Played::new(&*workflow, &task, number);
        loop {
            let wanted = played.wanted()?;
            if wanted.is_empty() {
                break;
            }
            for ask in &wanted {
                let question: Value = serde_json::from_str(&ask.messages[0].content).unwrap();
                played.says(ask, &program(&question).to_string());
            }
        }
    }
    Ok(())
}

/// Asks a and b at once, and pays a this value.
fn pays(question: &Value, reward: f64) -> Value {
    if question["events"] == json!([]) {
        return json!({"ask": [{"role": "a", "prompt": "go"}, {"role": "b", "prompt": "go"}]});
    }
    let earned = |role: &str, value: f64| json!({"role": role, "parts": {"reward": value}});
    json!({"done": {"rewards": [earned("a", reward), earned("b", 0.0)], "metrics": {"success": 1.0}}})
}

#[test]
fn conversations_that_a_program_decides_are_played_to_their_end() {
    let mut said = Vec::new();
    let kept = decided(|question| {
        let texts = question["events"].as_array().unwrap().iter();
        said.extend(texts.map(|event| event["text"].as_str().unwrap().to_owned()));
        pays(question, 1.0)
    });
    assert_eq!((kept, said.len()), (Ok(()), 2 * PLAYED as usize));
    said.sort();
    said.dedup();
    assert!(said.len() > 4, "{said:?}");

    // In f32 it is infinite.
    let broken = decided(|question| pays(question, 1e300)).unwrap_err();
    assert!(
        broken.contains("part \"reward\" of a/0 is Some(1e300)")
            && broken.contains("after the events [turn 0 of workflow/0"),
        "{broken}"
    );
    let broken = decided(|_| json!({"ask": [{"role": "a", "prompt": "go"}]})).unwrap_err();
    assert!(broken.contains("has no end after 256 decisions"), "{broken}");
}
