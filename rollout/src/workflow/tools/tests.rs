//! Tools for a workflow that has no tools itself.

use proptest::prelude::*;
use serde_json::json;

use super::super::testing::{any_events, check_total, config, event, graders, problems, task};
use super::super::{Ask, Event, Outcome, Step, Workflow};
use super::*;
use crate::workflows::build;
use broker::protocol::turn::Finish;

fn tool(folder: &Path) -> ToolConfig {
    let file = folder.join("look.py");
    std::fs::write(&file, "").unwrap();
    serde_json::from_value(
        json!({"kind": format!("process:{}", file.display()), "description": "Looks.",
        "parameters": {"type": "object", "required": ["query"], "properties": {"query": {"type": "string"}}}}),
    )
    .unwrap()
}

fn asking(change: impl Fn(&mut WorkflowConfig)) -> WorkflowConfig {
    let mut config = config("solo", &["solver"], "prompts = \"short\"");
    config.tools = BTreeMap::from([(RoleName::new("solver").unwrap(), vec!["search".into()])]);
    config.tool_limits.turns = 2;
    change(&mut config);
    config
}

fn solo(change: impl Fn(&mut WorkflowConfig)) -> std::sync::Arc<dyn Workflow> {
    let folder = tempfile::tempdir().unwrap();
    let tools = BTreeMap::from([("search".to_owned(), tool(folder.path()))]);
    build(&asking(change), &graders("integer"), &tools).unwrap_or_else(|problems| panic!("{problems:?}"))
}

fn asks(workflow: &dyn Workflow, events: &[Event]) -> Vec<Ask> {
    match workflow.step(&task("2+3=", 5.into()), 0, events) {
        Step::Ask(asks) => asks,
        other => panic!("{other:?}"),
    }
}

fn done(workflow: &dyn Workflow, events: &[Event]) -> Outcome {
    match workflow.step(&task("2+3=", 5.into()), 0, events) {
        Step::Done(outcome) => outcome,
        other => panic!("{other:?}"),
    }
}

fn said(turn: u16, text: &str) -> Event {
    Event {
        turn,
        ..event("solver", 0, text)
    }
}

fn look(query: &str) -> String {
    format!("<tool_call>{{\"name\": \"search\", \"arguments\": {{\"query\": \"{query}\"}}}}</tool_call>")
}

fn seen(ask: &Ask) -> Vec<(&str, &str)> {
    ask.messages
        .iter()
        .map(|m| (m.role.as_str(), m.content.as_str()))
        .collect()
}

#[test]
fn a_tool_answers_a_call_and_the_workflow_sees_the_answer() {
    let solo = solo(|_| {});
    let first = &asks(&*solo, &[])[0];
    assert_eq!(first.messages[0].role, Message::TOOLS);
    let listed: Value = serde_json::from_str(&first.messages[0].content).unwrap();
    assert_eq!(listed[0]["function"]["name"], "search");
    let mut events = vec![said(0, &format!("hm {}", look("sum")))];
    let call = &asks(&*solo, &events)[0];
    assert_eq!((call.role.as_str(), call.seat, call.turn), ("solver-search", 0, 0));
    let question: ToolQuestion = serde_json::from_str(&call.messages[0].content).unwrap();
    assert_eq!(
        (question.tool.as_str(), &question.arguments),
        ("search", &json!({"query": "sum"}))
    );
    assert!(call.messages[0].content.starts_with("{\"kind\":\"call\""));
    events.push(event("solver-search", 0, "it is 5"));
    let next = &asks(&*solo, &events)[0];
    assert_eq!((next.turn, seen(next)), (1, vec![("tool", "it is 5")]));
    events.push(said(1, "5"));
    let outcome = done(&*solo, &events);
    assert_eq!((outcome.rewards.len(), outcome.rewards[0].parts[0].value), (1, 1.0));
    assert!(outcome.metrics.contains(&("tool_calls", 1.0)) && outcome.metrics.contains(&("tool_errors", 0.0)));
    assert_eq!(solo.tools()[0].roles, [RoleName::new("solver-search").unwrap()]);
}

#[test]
fn calls_of_one_turn_are_parallel_and_read_in_their_order() {
    let solo = solo(|_| {});
    let mut events = vec![said(0, &format!("{}{}", look("a"), look("b")))];
    let both = asks(&*solo, &events);
    assert_eq!(both.iter().map(|ask| ask.seat).collect::<Vec<_>>(), [0, 1]);
    events.push(event("solver-search", 1, "B"));
    assert_eq!(asks(&*solo, &events)[0].seat, 0);
    events.push(event("solver-search", 0, "A"));
    assert_eq!(seen(&asks(&*solo, &events)[0]), [("tool", "A"), ("tool", "B")]);
}

#[test]
fn what_cannot_be_called_is_reported_and_costs_no_question() {
    let solo = solo(|_| {});
    for (text, says) in [
        ("<tool_call>oops</tool_call>", "no JSON object"),
        (
            "<tool_call>{\"name\": \"fly\"}</tool_call>",
            "there is no tool \"fly\"; there are: search",
        ),
        (
            "<tool_call>{\"name\": \"search\"}</tool_call>",
            "search does not take these arguments",
        ),
    ] {
        let next = &asks(&*solo, &[said(0, text)])[0];
        let (role, content) = seen(next)[0];
        assert!(
            role == "tool" && content.starts_with(ERROR) && content.contains(says),
            "{content}"
        );
    }
    let outcome = done(&*solo, &[said(0, "<tool_call>oops"), said(1, "5")]);
    assert!(outcome.metrics.contains(&("tool_errors", 1.0)));
}

#[test]
fn turns_calls_and_context_come_to_an_end() {
    let few = solo(|config| config.tool_limits.calls = 1);
    let events = [said(0, &format!("{0}{0}", look("a"))), event("solver-search", 0, "A")];
    let next = asks(&*few, &events)[0].clone();
    assert!(seen(&next)[1].1.contains("1 calls are the most"), "{next:?}");

    let short = solo(|config| config.tool_limits.turns = 1);
    let mut events = vec![said(0, &look("a")), event("solver-search", 0, "A")];
    let next = asks(&*short, &events)[0].clone();
    assert_eq!(seen(&next)[1], ("user", ToolLimits::default().hurry.as_str()));
    events.push(said(1, &look("again")));
    assert_eq!(
        done(&*short, &events).rewards[0].parts[0].value,
        0.0,
        "the last turn is the answer"
    );

    let narrow = solo(|config| (config.tool_limits.context, config.tool_limits.reserve) = (200, 40));
    let long = "x".repeat(60);
    let seen = |prompt: u32, result: &str| {
        let events = [
            Event {
                prompt,
                ..said(0, &look("a"))
            },
            event("solver-search", 0, result),
        ];
        seen(&asks(&*narrow, &events)[0])[0].0.to_owned()
    };
    assert_eq!(
        (
            seen(30, "A").as_str(),
            seen(30, &long).as_str(),
            seen(100, "A").as_str()
        ),
        ("tool", "user", "user")
    );

    let cut = [Event {
        finish: Finish::Length,
        ..said(0, &look("a"))
    }];
    assert_eq!(done(&*few, &cut).rewards.len(), 1, "what was cut is no call");
}

#[test]
fn what_is_wrong_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let good = tool(folder.path());
    let found = |change: fn(&mut WorkflowConfig), tool: ToolConfig| {
        let tools = BTreeMap::from([("search".to_owned(), tool)]);
        problems(Tools::new(&asking(change), &tools).map(|_| ()))
    };
    let with = |kind: &str| ToolConfig {
        kind: kind.into(),
        ..good.clone()
    };
    assert_eq!(found(|_| {}, with("corpus:/nowhere")), ["tools.search.kind"]);
    assert_eq!(found(|_| {}, with("process:/nowhere.py")), ["tools.search.kind"]);
    let parameters = "type = 5".parse().unwrap();
    assert_eq!(
        found(
            |_| {},
            ToolConfig {
                parameters,
                ..good.clone()
            }
        ),
        ["tools.search.parameters"]
    );
    let taken = |config: &mut WorkflowConfig| {
        let agent = config.roles.values().next().unwrap().clone();
        config.roles.insert(RoleName::new("solver-search").unwrap(), agent);
    };
    assert_eq!(found(taken, good.clone()), ["workflow.tools.solver"]);
    let long = |config: &mut WorkflowConfig| {
        config.tools = BTreeMap::from([(
            RoleName::new(&"s".repeat(30)).unwrap(),
            vec!["search".into(), "fly".into()],
        )]);
    };
    assert_eq!(found(long, good).len(), 2);
}

fn offering(tools: Value) -> Task {
    let tools = serde_json::from_value(tools).unwrap();
    Task {
        tools: Some(tools),
        ..task("2+3=", 5.into())
    }
}

fn asks_of(workflow: &dyn Workflow, task: &Task, events: &[Event]) -> Vec<Ask> {
    match workflow.step(task, 0, events) {
        Step::Ask(asks) => asks,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_task_chooses_among_the_tools_of_the_run() {
    let solo = solo(|_| {});
    let none = offering(json!([]));
    let first = &asks_of(&*solo, &none, &[])[0];
    assert!(first.messages.iter().all(|message| message.role != Message::TOOLS));
    let next = &asks_of(&*solo, &none, &[said(0, &look("sum"))])[0];
    assert_eq!(next.role.as_str(), "solver", "no tool is asked");
    assert_eq!(
        seen(next),
        [(
            "tool",
            "error: the tool \"search\" is not offered in this task; there are none"
        )]
    );
    let all = offering(json!(["search"]));
    assert_eq!(asks_of(&*solo, &all, &[]), asks(&*solo, &[]));
    for task in [&none, &all, &task("2+3=", 5.into())] {
        assert_eq!(crate::workflow::check_task(&*solo, task), Ok(()));
    }
    for (tools, says) in [
        (
            json!(["fly"]),
            "name \"fly\", which this run does not offer; there are search",
        ),
        (json!(["search", {"name": "search"}]), "\"search\" twice"),
        (
            json!([{"name": "search", "bind": {"corpus": "x"}}]),
            "no argument \"corpus\"; it has query",
        ),
        (
            json!([{"name": "search", "bind": {"query": 5}}]),
            "does not take the bound arguments",
        ),
    ] {
        let refused = crate::workflow::check_task(&*solo, &offering(tools)).unwrap_err();
        assert!(refused.contains(says), "{refused}");
    }
}

#[test]
fn what_a_task_binds_is_what_the_tool_is_asked() {
    let solo = solo(|_| {});
    let bound = offering(json!([{"name": "search", "bind": {"query": "amber"}}]));
    assert_eq!(crate::workflow::check_task(&*solo, &bound), Ok(()));
    let first = &asks_of(&*solo, &bound, &[])[0];
    let listed: Value = serde_json::from_str(&first.messages[0].content).unwrap();
    assert_eq!(listed[0]["function"]["parameters"]["properties"], json!({}));
    let call = &asks_of(
        &*solo,
        &bound,
        &[said(0, "<tool_call>{\"name\": \"search\"}</tool_call>")],
    )[0];
    let question: ToolQuestion = serde_json::from_str(&call.messages[0].content).unwrap();
    assert_eq!(question.arguments, json!({"query": "amber"}));
    let other = &asks_of(&*solo, &bound, &[said(0, &look("jade"))])[0];
    assert!(seen(other)[0].1.contains("the task has set \"query\""), "{other:?}");
}

#[test]
fn a_task_that_lists_tools_needs_a_run_that_has_them() {
    let plain = build(
        &config("solo", &["solver"], "prompts = \"short\""),
        &graders("integer"),
        &BTreeMap::new(),
    );
    let plain = plain.unwrap_or_else(|problems| panic!("{problems:?}"));
    let refused = crate::workflow::check_task(&*plain, &offering(json!(["search"]))).unwrap_err();
    assert!(
        refused.contains("\"search\"") && refused.contains("[workflow.tools]"),
        "{refused}"
    );
    assert_eq!(crate::workflow::check_task(&*plain, &offering(json!([]))), Ok(()));
}

#[test]
fn a_task_cannot_bring_tools_of_its_own() {
    for tools in [
        r#"[{"name": "search", "kind": "http://evil"}]"#,
        r#"[{"type": "function", "function": {"name": "search"}}]"#,
        r#""search""#,
    ] {
        let line = format!(r#"{{"prompt": "2+3=", "tools": {tools}}}"#);
        assert!(Task::parse(line.as_bytes(), 1000).is_err(), "{line}");
    }
}

#[test]
fn a_task_cannot_say_what_may_be_called() {
    let task = br#"{"prompt": [{"role": "tools", "content": "[]"}, {"role": "user", "content": "2+3="}], "label": 5}"#;
    let refused = Task::parse(task, 1000).unwrap_err().to_string();
    assert!(
        refused.contains("prompt[0].role is \"tools\": the run alone lists"),
        "{refused}"
    );
}

proptest! {
    #[test]
    fn any_list_of_events_is_answered(events in any_events()) {
        check_total(&*solo(|_| {}), &task("2+3=", 5.into()), &events)?;
    }
}

#[test]
fn roles_that_may_stay_silent_may_do_so_with_tools() {
    let folder = tempfile::tempdir().unwrap();
    let tools = BTreeMap::from([("search".to_owned(), tool(folder.path()))]);
    let roles = ["solver", "rewriter", "selector"];
    let mut config = config("solve-rewrite-select", &roles, "");
    config.tools = BTreeMap::from([(RoleName::new("rewriter").unwrap(), vec!["search".into()])]);
    let workflow = build(&config, &graders("integer"), &tools).unwrap_or_else(|problems| panic!("{problems:?}"));
    let may = roles.map(|role| workflow.goes_on_without(&RoleName::new(role).unwrap()));
    assert_eq!(may, [false, true, true]);
}
