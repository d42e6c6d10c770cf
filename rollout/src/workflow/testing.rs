//! Helpers of the workflows' tests: small configurations, events, and the properties that hold for every workflow.

use std::collections::BTreeMap;

use broker::protocol::task::{Prompt, Task};
use broker::protocol::turn::Finish;
use broker::{AgentName, RoleName};
use configs::{GraderConfig, Problem, WorkflowConfig};
use proptest::prelude::*;

use super::{Event, Step, Workflow};

pub(crate) fn config(kind: &str, roles: &[&str], params: &str) -> WorkflowConfig {
    let agent = AgentName::new("a").unwrap();
    WorkflowConfig {
        kind: kind.into(),
        profile: "dyad".into(),
        group_size: 4,
        min_group: 0.75,
        dominance: 0.9,
        roles: roles
            .iter()
            .map(|r| (RoleName::new(r).unwrap(), agent.clone()))
            .collect(),
        reward: BTreeMap::new(),
        shaping: BTreeMap::new(),
        credit: BTreeMap::new(),
        sampling: BTreeMap::new(),
        retries: 3,
        params: params.parse().unwrap(),
        process: Default::default(),
        tools: BTreeMap::new(),
        tool_limits: Default::default(),
    }
}

pub(crate) fn graders(kind: &str) -> BTreeMap<String, GraderConfig> {
    let config = GraderConfig {
        kind: kind.into(),
        ..GraderConfig::default()
    };
    BTreeMap::from([("correct".to_owned(), config)])
}

/// The sorted key paths of what was found.
pub(crate) fn problems(result: Result<(), Vec<Problem>>) -> Vec<String> {
    let mut paths: Vec<String> = result.unwrap_err().into_iter().map(|p| p.path).collect();
    paths.sort();
    paths
}

pub(crate) fn task(prompt: &str, label: serde_json::Value) -> Task {
    let prompt = Prompt::Text(prompt.into());
    Task {
        id: None,
        workflow: None,
        prompt,
        label,
        metadata: serde_json::Map::new(),
        tools: None,
    }
}

pub(crate) fn event(role: &str, seat: u16, text: &str) -> Event {
    let role = RoleName::new(role).unwrap();
    Event {
        role,
        seat,
        turn: 0,
        text: text.into(),
        finish: Finish::Stop,
        tokens: 7,
        prompt: 5,
    }
}

/// Events of known and unknown roles and seats, repeats and odd texts among them.
pub(crate) fn any_events() -> impl Strategy<Value = Vec<Event>> {
    let role = prop::sample::select(vec![
        "speaker",
        "listener",
        "asker",
        "answerer",
        "doctor",
        "patient",
        "first",
        "second",
        "grader",
        "solver",
        "verifier",
        "retry",
        "rewriter",
        "selector",
        "proposer",
        "thinker",
        "adversary",
        "defender",
        "past",
        "main",
        "sub",
        "solver-search",
        "sub-search",
        "other",
    ]);
    let known = prop::sample::select(vec![
        "",
        "s1",
        "o3",
        "5",
        "3+4",
        "\\boxed{5}",
        "approve",
        "<verify>reject</verify>",
        "Judgment: 1",
        "Judgment: 99999999999999",
        "less",
        "Diagnosis: x",
        "3",
        "</think>",
        "{{ prompt }}",
        "<tool_call>{\"name\":\"search\",\"arguments\":{\"query\":\"x\"}}</tool_call>",
        "<tool_call>{\"name\":\"research\",\"arguments\":{\"task\":\"x\"}}</tool_call>",
        "<tool_call>",
        "<answer>5</answer>",
    ]);
    let text = prop_oneof![known.prop_map(str::to_owned), "\\PC{0,12}"];
    let finish = prop_oneof![Just(Finish::Stop), Just(Finish::Length)];
    let event =
        (role, 0..7u16, 0..3u16, text, finish, any::<u32>()).prop_map(|(role, seat, turn, text, finish, tokens)| {
            Event {
                role: RoleName::new(role).unwrap(),
                seat,
                turn,
                text,
                finish,
                tokens,
                prompt: tokens / 2,
            }
        });
    prop::collection::vec(event, 0..30)
}

/// Holds for every workflow and every list of events:
/// - there is an answer, and asking again gives the same one;
/// - nothing that is answered is asked again, nothing is asked twice, and an ask has messages;
/// - what a prefix asked for is asked for still, or answered, or the conversation is done;
/// - answering the asks reaches the end, with finite rewards for seats that spoke, one entry each, all parts known.
pub(crate) fn check_total(workflow: &dyn Workflow, task: &Task, events: &[Event]) -> Result<(), TestCaseError> {
    let key = |e: &Event| (e.role.clone(), e.seat, e.turn);
    let mut wanted: Vec<(RoleName, u16, u16)> = Vec::new();
    for end in 0..=events.len() {
        let step = workflow.step(task, 1, &events[..end]);
        prop_assert_eq!(&step, &workflow.step(task, 1, &events[..end]));
        let Step::Ask(asks) = step else { break };
        prop_assert!(!asks.is_empty());
        let asked: Vec<_> = asks.iter().map(|a| (a.role.clone(), a.seat, a.turn)).collect();
        for (i, a) in asked.iter().enumerate() {
            prop_assert!(!asked[..i].contains(a), "{:?} asked twice", a);
            prop_assert!(!events[..end].iter().any(|e| &key(e) == a), "{:?} is answered", a);
            prop_assert!(!asks[i].messages.is_empty());
        }
        for w in &wanted {
            prop_assert!(
                asked.contains(w) || events[..end].iter().any(|e| &key(e) == w),
                "{:?} forgotten",
                w
            );
        }
        wanted = asked;
    }
    check_reaches_the_end(workflow, task, events.to_vec())
}

fn check_reaches_the_end(workflow: &dyn Workflow, task: &Task, mut events: Vec<Event>) -> Result<(), TestCaseError> {
    for round in 0..10 {
        let asks = match workflow.step(task, 1, &events) {
            Step::Ask(asks) => asks,
            Step::Done(outcome) => return check_outcome(workflow, &outcome, &events),
            Step::Fail(reason) => return Err(TestCaseError::fail(reason)),
        };
        let text = ["5", "reject", "Judgment: 1", "{\"criteria_met\": true}"][round % 4];
        events.extend(asks.into_iter().map(|ask| Event {
            turn: ask.turn,
            ..event(ask.role.as_str(), ask.seat, text)
        }));
    }
    Err(TestCaseError::fail("the conversation does not end"))
}

fn check_outcome(workflow: &dyn Workflow, outcome: &super::Outcome, events: &[Event]) -> Result<(), TestCaseError> {
    let roles = workflow.roles();
    prop_assert!(
        outcome
            .metrics
            .iter()
            .any(|(name, value)| *name == "success" && value.is_finite())
    );
    for (i, reward) in outcome.rewards.iter().enumerate() {
        prop_assert!(events.iter().any(|e| e.role == reward.role && e.seat == reward.seat));
        let same = |other: &super::SeatReward| other.role == reward.role && other.seat == reward.seat;
        prop_assert!(!outcome.rewards[..i].iter().any(same));
        let Some(spec) = roles.iter().find(|s| s.name == reward.role) else {
            return Err(TestCaseError::fail("an unknown role earns"));
        };
        let known: Vec<_> = spec.parts.iter().map(|(name, _)| *name).collect();
        let earned: Vec<_> = reward.parts.iter().map(|p| p.name).collect();
        prop_assert_eq!(known, earned);
        prop_assert!(reward.parts.iter().all(|p| p.value.is_finite()));
    }
    Ok(())
}
