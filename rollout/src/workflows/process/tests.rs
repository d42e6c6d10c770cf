use super::*;
use crate::workflow::testing::{any_events, config, event, problems, task};
use proptest::prelude::*;

/// A file that exists; the program itself is not run here.
fn file() -> tempfile::NamedTempFile {
    tempfile::Builder::new().suffix(".py").tempfile().unwrap()
}

fn process(file: &tempfile::NamedTempFile) -> Process {
    let kind = format!("process:{}", file.path().display());
    Process::new(&config(&kind, &["solver", "verifier"], "")).unwrap()
}

fn decision(round: u16, text: &str) -> Event {
    Event {
        turn: round,
        ..event("workflow", 0, text)
    }
}

const FIRST: &str = r#"{"ask":[{"role":"solver","prompt":"2+3="},{"role":"solver","seat":1,"prompt":"2+3="}]}"#;
const DONE: &str = r#"{"done":{"rewards":[{"role":"solver","seat":1,"parts":{"reward":1}}],"metrics":{"success":1}}}"#;

#[test]
fn a_program_sees_its_events_in_the_order_it_wanted_them() {
    let file = file();
    let (process, task) = (process(&file), task("2+3=", 5.into()));
    let asks = |events: &[Event]| match process.step(&task, 9, events) {
        Step::Ask(asks) => asks,
        other => panic!("{other:?}"),
    };
    assert_eq!(asks(&[])[0].role.as_str(), "workflow");
    let first = decision(0, FIRST);
    assert_eq!(asks(std::slice::from_ref(&first)).len(), 2);
    let late = [first.clone(), event("solver", 1, "b")];
    assert_eq!(asks(&late).len(), 1, "it is asked again when all are there");
    let orders = [
        [first.clone(), event("solver", 1, "b"), event("solver", 0, "a")],
        [first.clone(), event("solver", 0, "a"), event("solver", 1, "b")],
    ];
    let questions = orders
        .clone()
        .map(|events| asks(&events)[0].messages[0].content.clone());
    assert_eq!(questions[0], questions[1]);
    assert!(questions[0].find("\"a\"").unwrap() < questions[0].find("\"b\"").unwrap());
    let mut all = orders[0].to_vec();
    all.push(decision(1, DONE));
    let Step::Done(outcome) = process.step(&task, 9, &all) else {
        panic!()
    };
    assert_eq!((outcome.rewards[0].seat, outcome.rewards[0].parts[0].value), (1, 1.0));
}

#[test]
fn what_a_program_may_not_do_is_named() {
    let file = file();
    let process = process(&file);
    let question = process.question(&task("?", 5.into()), 0, &[&event("solver", 0, "5")]);
    let answer = |text: &str| process.check_answer(&question, text);
    assert_eq!(answer(FIRST), Ok(()));
    for (bad, why) in [
        (r#"{"ask":[]}"#, "nothing"),
        (r#"{"ask":[{"role":"judge","prompt":"?"}]}"#, "no role"),
        (r#"{"ask":[{"role":"solver"}]}"#, "says nothing"),
        (
            r#"{"ask":[{"role":"solver","prompt":"?"},{"role":"solver","prompt":"?"}]}"#,
            "twice",
        ),
        (
            r#"{"ask":[{"role":"solver","messages":[{"role":"wizard","content":"?"}]}]}"#,
            "the role \"wizard\": use system, user, assistant, tool",
        ),
        (
            r#"{"ask":[{"role":"solver","messages":[{"role":"tools","content":"[]"}],"prompt":"?"}]}"#,
            "the role \"tools\"",
        ),
        (
            r#"{"ask":[{"role":"solver","prompt":"?","stop":["\n",""]}]}"#,
            "empty text under stop",
        ),
        (r#"{"done":{"rewards":[],"metrics":{}}}"#, "success"),
        (r#"{"done":{"rewards":[],"metrics":{"success":5}}}"#, "from 0 to 1"),
        (r#"{"done":{"rewards":[],"metrics":{"success":-0.5}}}"#, "from 0 to 1"),
        (
            r#"{"done":{"rewards":[],"metrics":{"success":1,"far":1e39}}}"#,
            "no usable name or value",
        ),
        (
            r#"{"done":{"rewards":[{"role":"solver","parts":{"reward":1e39}}],"metrics":{"success":1}}}"#,
            "no finite number",
        ),
        (DONE, "never spoke"),
        (
            r#"{"done":{"rewards":[{"role":"solver","parts":{}}],"metrics":{"success":1}}}"#,
            "no finite number",
        ),
        (
            r#"{"done":{"rewards":[{"role":"solver","parts":{"luck":1}}],"metrics":{"success":1}}}"#,
            "no weight",
        ),
        ("hm", "expected"),
    ] {
        let said = answer(bad).unwrap_err();
        assert!(said.contains(why), "{bad}: {said}");
    }
}

#[test]
fn how_long_a_conversation_may_be_is_the_programs_to_say() {
    let file = file();
    let kind = format!("process:{}", file.path().display());
    let with = |params: &str| Process::new(&config(&kind, &["solver"], params));
    let most = |params: &str| with(params).unwrap_or_else(|found| panic!("{found:?}")).most_turns();
    assert_eq!((most(""), most("most_turns = 5")), (None, Some(5)));
    for bad in ["most_turns = 0", "most_turns = \"many\""] {
        assert_eq!(problems(with(bad).map(|_| ())), ["workflow.params.most_turns"]);
    }
}

#[test]
fn what_is_wrong_in_the_configuration_is_named() {
    let mut config = config("process:/nowhere.py", &["workflow"], "");
    config.reward.insert(RoleName::new("ghost").unwrap(), BTreeMap::new());
    let found = problems(Process::new(&config).map(|_| ()));
    assert_eq!(
        found,
        ["workflow.kind", "workflow.reward.ghost", "workflow.roles.workflow"]
    );
}

proptest! {
    #[test]
    fn any_list_of_events_is_answered(events in any_events(), decisions in prop::collection::vec(
        prop::sample::select(vec![FIRST, DONE, "hm", r#"{"ask":[{"role":"verifier","prompt":"?"}]}"#]), 0..4,
    )) {
        let file = file();
        let process = process(&file);
        let mut all: Vec<Event> = decisions.iter().enumerate().map(|(i, text)| decision(i as u16, text)).collect();
        all.extend(events);
        let task = task("2+3=", 5.into());
        // Any prefix gets an answer, and the same one twice.
        for end in 0..=all.len() {
            prop_assert_eq!(process.step(&task, 1, &all[..end]), process.step(&task, 1, &all[..end]));
        }
    }
}
