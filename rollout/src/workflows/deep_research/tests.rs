//! Main, its calls, and the rewards of each.

use proptest::prelude::*;

use super::*;
use crate::credit::{self, Term};
use crate::workflow::testing::{any_events, check_total, config, event, graders, problems, task};
use configs::{ToolConfig, WorkflowConfig};

const ROLES: [&str; 2] = ["main", "sub"];

fn built(roles: &[&str], change: impl Fn(&mut WorkflowConfig)) -> Result<DeepResearch, Vec<Problem>> {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config("deep-research", roles, "prompts = \"short\"");
    config.tools = BTreeMap::from([(RoleName::new("sub").unwrap(), vec!["search".into()])]);
    config.tool_limits.turns = 3;
    change(&mut config);
    let kind = format!("corpus:{}", folder.path().display());
    let tool: ToolConfig = serde_json::from_value(json!({ "kind": kind })).unwrap();
    let tools = Tools::new(&config, &BTreeMap::from([("search".to_owned(), tool)])).unwrap();
    DeepResearch::new(&config, &graders("match"), tools)
}

fn research_by(roles: &[&str], change: impl Fn(&mut WorkflowConfig)) -> DeepResearch {
    built(roles, change).unwrap_or_else(|problems| panic!("{problems:?}"))
}

fn plain() -> DeepResearch {
    research_by(&ROLES, |_| {})
}

fn question() -> Task {
    task("Which stone floats?", json!(["amber", "burmite"]))
}

fn said(role: &str, seat: u16, turn: u16, text: &str) -> Event {
    Event {
        turn,
        ..event(role, seat, text)
    }
}

fn call(name: &str, argument: &str, value: &str) -> String {
    format!("<tool_call>{{\"name\": \"{name}\", \"arguments\": {{\"{argument}\": \"{value}\"}}}}</tool_call>")
}

fn asks(workflow: &DeepResearch, events: &[Event]) -> Vec<crate::workflow::Ask> {
    match workflow.step(&question(), 0, events) {
        Step::Ask(asks) => asks,
        other => panic!("{other:?}"),
    }
}

fn done(workflow: &DeepResearch, events: &[Event]) -> Outcome {
    match workflow.step(&question(), 0, events) {
        Step::Done(outcome) => outcome,
        other => panic!("{other:?}"),
    }
}

/// A conversation with one call, with these endings of sub and main.
fn with_call(result: &str, answer: &str) -> Vec<Event> {
    vec![
        said("main", 0, 0, &call("research", "task", "stones")),
        said("sub", 0, 0, &call("search", "query", "stones float")),
        said("sub-search", 0, 0, "1. [a] amber floats"),
        said("sub", 0, 1, result),
        said("main", 0, 1, answer),
    ]
}

fn parts(outcome: &Outcome, role: &str) -> Vec<Vec<f32>> {
    let of = outcome.rewards.iter().filter(|seat| seat.role.as_str() == role);
    of.map(|seat| seat.parts.iter().map(|part| part.value).collect())
        .collect()
}

#[test]
fn a_call_is_a_conversation_of_its_own() {
    let workflow = plain();
    let events = with_call("<result>amber</result>", "<answer>amber</answer>");
    let expected = [
        ("main", 0, 0, vec!["tools", "user"]),
        ("sub", 0, 0, vec!["tools", "user"]),
        ("sub-search", 0, 0, vec!["user"]),
        ("sub", 0, 1, vec!["tool"]),
        ("main", 0, 1, vec!["tool"]),
    ];
    for (count, (role, seat, turn, messages)) in expected.into_iter().enumerate() {
        let ask = asks(&workflow, &events[..count])[0].clone();
        assert_eq!((ask.role.as_str(), ask.seat, ask.turn), (role, seat, turn));
        let roles: Vec<&str> = ask.messages.iter().map(|m| m.role.as_str()).collect();
        assert_eq!(roles, messages);
    }
    assert!(
        asks(&workflow, &events[..1])[0].messages[0]
            .content
            .contains("\"search\"")
    );
    assert_eq!(asks(&workflow, &events[..1])[0].messages[1].content, "stones");
    assert_eq!(asks(&workflow, &events[..4])[0].messages[0].content, "amber");
    let outcome = done(&workflow, &events);
    assert_eq!(
        (parts(&outcome, "main"), parts(&outcome, "sub")),
        (vec![vec![1.0]], vec![vec![1.0, 1.0]])
    );
    for metric in [
        ("success", 1.0),
        ("research_calls", 1.0),
        ("tool_calls", 2.0),
        ("sub_form", 1.0),
    ] {
        assert!(outcome.metrics.contains(&metric), "{metric:?}: {:?}", outcome.metrics);
    }
}

#[test]
fn several_calls_are_parallel_and_none_at_all_is_fine() {
    let workflow = plain();
    let two = format!("{}{}", call("research", "task", "a"), call("research", "task", "b"));
    let both = asks(&workflow, &[said("main", 0, 0, &two)]);
    let seats: Vec<(&str, u16)> = both.iter().map(|ask| (ask.role.as_str(), ask.seat)).collect();
    assert_eq!(seats, [("sub", 0), ("sub", 1)]);
    let outcome = done(&workflow, &[said("main", 0, 0, "<answer>amber</answer>")]);
    assert_eq!((parts(&outcome, "main"), outcome.rewards.len()), (vec![vec![1.0]], 1));
    assert!(
        outcome.metrics.iter().all(|(name, _)| *name != "sub_form"),
        "no call, no mean over calls"
    );
}

#[test]
fn main_earns_by_form_and_answer_and_sub_by_its_own_form() {
    let (good, bare) = ("<result>it is amber</result>", "it is amber");
    for (result, answer, main, sub) in [
        (good, "<answer>Amber.</answer>", 1.0, [1.0, 1.0]),
        (good, "<answer>jet</answer>", 0.1, [0.1, 1.0]),
        (good, "amber", 0.0, [0.0, 1.0]),
        (bare, "<answer>amber</answer>", 1.0, [0.0, 0.0]),
        ("<result>jet</result>", "<answer>burmite</answer>", 1.0, [1.0, 0.0]),
    ] {
        let outcome = done(&plain(), &with_call(result, answer));
        assert_eq!(parts(&outcome, "main"), [[main]], "{result} {answer}");
        assert_eq!(parts(&outcome, "sub"), [sub], "{result} {answer}");
    }
}

#[test]
fn the_references_rewards_are_a_profile() {
    let mrlx = research_by(&ROLES, |config| config.profile = "mrlx".into());
    let good = "<result>amber</result>";
    for (answer, sub) in [
        ("<answer>amber</answer>", 1.0),
        ("<answer>jet</answer>", 0.1),
        ("amber", 0.1),
    ] {
        assert_eq!(
            parts(&done(&mrlx, &with_call(good, answer)), "sub")[0][0],
            sub,
            "{answer}"
        );
    }
    let two = format!("{}{}", call("research", "task", "a"), call("research", "task", "b"));
    assert_eq!(asks(&mrlx, &[said("main", 0, 0, &two)]).len(), 1);
    let hurried = |profile: &str| {
        let workflow = research_by(&ROLES, |config| {
            config.profile = profile.into();
            config.tool_limits.turns = 1;
        });
        parts(&done(&workflow, &with_call(good, "<answer>amber</answer>")), "sub")[0][0]
    };
    assert_eq!((hurried("dyad"), hurried("mrlx")), (1.0, 0.0));
}

#[test]
fn a_summariser_stands_between_them_and_earns_nothing() {
    let workflow = research_by(&["main", "sub", "summariser"], |_| {});
    let mut events = with_call("<result>amber</result>", "<answer>amber</answer>");
    let summary = asks(&workflow, &events[..4])[0].clone();
    assert_eq!(summary.role.as_str(), "summariser");
    assert!(summary.messages[0].content.contains("<result>amber</result>"));
    events.insert(4, said("summariser", 0, 0, "So: <summary>It is amber.</summary>"));
    assert_eq!(asks(&workflow, &events[..5])[0].messages[0].content, "It is amber.");
    assert_eq!(done(&workflow, &events).rewards.len(), 2);
}

#[test]
fn what_a_call_earns_is_settled_at_or_after_its_turns() {
    // Turns in the order in which they begin: main's call, the call's two turns, main's answer.
    let (last_of_sub, answer) = (2, 3);
    let terms = [
        Term {
            name: "team",
            settled: answer,
        },
        Term {
            name: "found",
            settled: last_of_sub,
        },
    ];
    for turn in [1, 2] {
        assert_eq!(credit::check(turn, &terms, &[]), Ok(()));
    }
    assert_eq!(credit::check(answer, &[terms[0]], &[]), Ok(()));
    assert!(
        credit::check(answer, &[terms[1]], &[]).is_err(),
        "so main does not earn it"
    );
}

#[test]
fn a_conversation_that_uses_all_it_may_is_as_long_as_its_limits() {
    let most = |roles: &[&str], turns: u16, calls: u16, profile: &str| {
        let workflow = research_by(roles, |config| {
            (config.tool_limits.turns, config.tool_limits.calls) = (turns, calls);
            config.profile = profile.into();
        });
        workflow.most_turns()
    };
    // Two turns of main, and one call with two turns of sub. Tool results are no turns.
    assert_eq!(most(&ROLES, 1, 1, "dyad"), Some(2 + 2));
    let outcome = done(&plain(), &with_call("<result>amber</result>", "<answer>amber</answer>"));
    assert!(outcome.metrics.contains(&("main_hurried", 0.0)));
    assert_eq!(most(&ROLES, 3, 32, "dyad"), Some(4 + 32 * 4));
    assert_eq!(most(&ROLES, 3, 32, "mrlx"), Some(4 + 3 * 4), "a call a turn");
    assert_eq!(
        most(&["main", "sub", "summariser"], 3, 2, "dyad"),
        Some(4 + 2 * (4 + 1))
    );
    assert_eq!(most(&ROLES, 0, 32, "dyad"), Some(1));
}

#[test]
fn calls_that_go_wrong_are_reported() {
    let workflow = plain();
    for (text, says) in [
        (
            call("search", "query", "x"),
            "there is no tool \"search\"; there are: research",
        ),
        (call("research", "query", "x"), "research does not take these arguments"),
    ] {
        let ask = asks(&workflow, &[said("main", 0, 0, &text)])[0].clone();
        assert!(
            ask.role.as_str() == "main" && ask.messages[0].content.contains(says),
            "{ask:?}"
        );
    }
    let empty = with_call("<result> </result>", "");
    assert_eq!(
        asks(&workflow, &empty[..4])[0].messages[0].content,
        "error: the research came to nothing"
    );
}

#[test]
fn what_is_wrong_is_named() {
    let found = |roles: &[&str], change: fn(&mut WorkflowConfig)| problems(built(roles, change).map(|_| ()));
    assert_eq!(found(&["main"], |_| {}), ["workflow.roles.sub"]);
    assert_eq!(
        found(&ROLES, |config| config.profile = "x".into()),
        ["workflow.profile"]
    );
    let judge = |config: &mut WorkflowConfig| config.params = "judge = \"correct\"".parse().unwrap();
    assert_eq!(found(&ROLES, judge), ["workflow.params.judge"]);
    let third = |config: &mut WorkflowConfig| {
        config
            .tools
            .insert(RoleName::new("summariser").unwrap(), vec!["search".into()]);
    };
    assert_eq!(
        found(&["main", "sub", "summariser"], third),
        ["workflow.tools.summariser"]
    );
}

proptest! {
    #[test]
    fn any_list_of_events_is_answered(events in any_events()) {
        check_total(&plain(), &question(), &events)?;
    }
}
