//! Helpers of the workflows' tests: small configurations, events, and the properties of every
//! workflow.

use std::collections::BTreeMap;

use broker::protocol::task::{Prompt, Task};
use broker::protocol::turn::{Finish, Message};
use broker::{AgentName, RoleName};
use configs::{GraderConfig, Problem, WorkflowConfig};
use proptest::prelude::*;

use super::{Event, Workflow, contract};

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

/// Returns the sorted key paths of the problems.
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

/// A prompt of three messages.
pub(crate) fn several() -> Prompt {
    Prompt::Messages(vec![
        Message::user("My child is three and has a fever."),
        Message::new("assistant", "Since when?"),
        Message::user("Two days. What helps?"),
    ])
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

/// Events of known and unknown roles and seats, with repeats and odd texts.
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

/// The properties of every workflow and every list of events ([`contract::check_events`]).
pub(crate) fn check_total(workflow: &dyn Workflow, task: &Task, events: &[Event]) -> Result<(), TestCaseError> {
    contract::check_events(workflow, task, events).map_err(TestCaseError::fail)
}
