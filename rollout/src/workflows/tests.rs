//! A task's metadata reaches the prompts of every shipped workflow.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::build;
use crate::workflow::testing::{config, event, graders, task};
use crate::workflow::{Event, Step, Workflow};

/// Kind, params, roles, names of templates, label.
type Case = (
    &'static str,
    &'static str,
    &'static [&'static str],
    &'static [&'static str],
    Value,
);

const SOLVE: [&str; 3] = ["solver", "verifier", "retry"];
const SELECT: [&str; 3] = ["solver", "rewriter", "selector"];
const ATTACK: [&str; 3] = ["thinker", "adversary", "defender"];
const GUESS: [&str; 4] = ["asker", "asker_next", "answerer", "answerer_next"];
const CLINIC: [&str; 5] = ["doctor", "doctor_next", "doctor_last", "patient", "patient_next"];

fn case(
    kind: &'static str,
    params: &'static str,
    roles: &'static [&'static str],
    templates: &'static [&'static str],
    label: impl Into<Value>,
) -> Case {
    (kind, params, roles, templates, label.into())
}

fn cases() -> Vec<Case> {
    const FIRST: [&str; 2] = ["first", "second"];
    const PROPOSE: [&str; 2] = ["proposer", "solver"];
    const SELF: [&str; 2] = ["answerer", "grader"];
    const RESEARCH: [&str; 3] = ["main", "sub", "summariser"];
    const SIGNAL: [&str; 2] = ["speaker", "listener"];
    vec![
        case("solo", "", &["solver"], &SOLVE, 5),
        case("solve-verify", "", &SOLVE, &SOLVE, 5),
        case("solve-rewrite-select", "num_parallel = 1", &SELECT, &SELECT, 5),
        case("sequential", "", &FIRST, &FIRST, 5),
        case("adversarial", "game = \"attack\"", &ATTACK, &ATTACK, 5),
        case("adversarial", "tries = 2", &PROPOSE, &PROPOSE, Value::Null),
        case("self-reward", "", &SELF, &SELF, Value::Null),
        case("deep-research", "", &RESEARCH, &RESEARCH, 5),
        case("signal", "", &SIGNAL, &SIGNAL, "o1"),
        case("guess-number", "turns = 2", &["asker", "answerer"], &GUESS, 5),
        case(
            "doctor-patient",
            "turns = 2",
            &["doctor", "patient"],
            &CLINIC,
            json!({ "diagnosis": "flu" }),
        ),
    ]
}

/// Events that lead the conversation to every role.
fn answer(role: &str, turn: u16) -> &'static str {
    match (role, turn) {
        ("verifier", _) => "<verify>reject</verify>",
        ("selector", _) => "Judgment: 1",
        ("proposer", _) => "Problem: 3+4",
        ("speaker", _) => "s1",
        ("asker", _) => "3",
        ("answerer", _) => "more",
        ("grader", _) => "{\"criteria_met\": true}",
        ("main", 0) => "<tool_call>{\"name\": \"research\", \"arguments\": {\"task\": \"look\"}}</tool_call>",
        ("main", _) => "<answer>5</answer>",
        ("sub", _) => "<result>5</result>",
        ("doctor", _) => "Since when?",
        _ => "\\boxed{5}",
    }
}

/// The last message of each turn, by role.
fn seen(workflow: &dyn Workflow, task: &broker::protocol::task::Task) -> BTreeMap<String, Vec<String>> {
    let mut seen: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut events: Vec<Event> = Vec::new();
    for _ in 0..16 {
        let asks = match workflow.step(task, 1, &events) {
            Step::Ask(asks) => asks,
            Step::Done(_) => return seen,
            Step::Fail(reason) => panic!("{reason}"),
        };
        for ask in asks {
            let last = ask.messages.last().unwrap().content.clone();
            seen.entry(ask.role.to_string()).or_default().push(last);
            events.push(Event {
                turn: ask.turn,
                ..event(ask.role.as_str(), ask.seat, answer(ask.role.as_str(), ask.turn))
            });
        }
    }
    panic!("{} does not end", workflow.kind())
}

#[test]
fn every_template_of_every_workflow_has_the_tasks_metadata() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("any.jinja");
    std::fs::write(&file, "{{ metadata.x }}").unwrap();
    for (kind, params, roles, templates, label) in cases() {
        let mut params = format!("{params}\n[templates]\n");
        for name in templates {
            params.push_str(&format!("{name} = {:?}\n", file.display().to_string()));
        }
        let workflow = build(&config(kind, roles, &params), &graders("integer"), &BTreeMap::new())
            .unwrap_or_else(|problems| panic!("{kind}: {problems:?}"));
        let mut task = task("2+3=", label);
        let metadata = json!({
            "high": 7, "rubric": [{"criterion": "is short", "points": 1}],
            "self_report": "fever", "facts": {"fever": "yes"},
        });
        task.metadata = metadata.as_object().unwrap().clone();
        let refused = workflow.check_task(&task).unwrap_err();
        assert!(refused.contains("metadata"), "{kind}: {refused}");
        task.metadata.insert("x".into(), "seen".into());
        assert_eq!(workflow.check_task(&task), Ok(()), "{kind}");
        let seen = seen(workflow.as_ref(), &task);
        for role in roles {
            let said = seen.get(*role).map_or(&[][..], Vec::as_slice);
            // Main's later messages are the answers of its tools.
            let of_templates = if *role == "main" { &said[..1] } else { said };
            assert!(
                !said.is_empty() && of_templates.iter().all(|text| text == "seen"),
                "{role} of {kind}: {said:?}"
            );
        }
    }
}
