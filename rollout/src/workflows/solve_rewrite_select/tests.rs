//! Every outcome of `solve-rewrite-select`.

use super::*;
use crate::workflow::testing::{any_events, check_total, config, event, graders, problems, task};
use proptest::prelude::*;

const ROLES: [&str; 3] = ["solver", "rewriter", "selector"];

fn workflow(profile: &str, params: &str) -> SolveRewriteSelect {
    let mut config = config("solve-rewrite-select", &ROLES, params);
    config.profile = profile.into();
    SolveRewriteSelect::new(&config, &graders("integer")).unwrap()
}

fn events(solvers: &[&str], rewriters: &[&str], selector: &[&str]) -> Vec<Event> {
    let stage = |role: &'static str, texts: &[&str]| {
        let texts: Vec<String> = texts.iter().map(|&t| t.to_owned()).collect();
        texts
            .into_iter()
            .enumerate()
            .map(move |(seat, text)| event(role, seat as u16, &text))
    };
    stage("solver", solvers)
        .chain(stage("rewriter", rewriters))
        .chain(stage("selector", selector))
        .collect()
}

/// Team values by role, or the asks.
fn play(workflow: &SolveRewriteSelect, events: &[Event]) -> Result<[Vec<f32>; 3], Vec<(String, u16)>> {
    match workflow.step(&task("2+3=", 5.into()), 0, events) {
        Step::Ask(asks) => Err(asks.iter().map(|a| (a.role.to_string(), a.seat)).collect()),
        Step::Done(outcome) => Ok(ROLES.map(|role| {
            let own = outcome.rewards.iter().filter(|r| r.role.as_str() == role);
            own.map(|r| r.parts[0].value).collect()
        })),
        Step::Fail(reason) => panic!("{reason}"),
    }
}

/// Texts of solvers, rewriters and selector, then the reward of each.
type Row = (
    &'static [&'static str],
    &'static [&'static str],
    &'static [&'static str],
    [&'static [f32]; 3],
);

#[test]
fn every_outcome_earns_what_the_table_says() {
    let workflow = workflow("dyad", "num_parallel = 3");
    const RIGHT: f32 = 1.2;
    const WRONG: f32 = 0.8;
    const TABLE: [Row; 8] = [
        (&["", " ", "\n"], &[], &[], [&[0.0, 0.0, 0.0], &[], &[]]),
        (
            &["5", "4", ""],
            &["", "", " "],
            &[],
            [&[WRONG, 0.0, 0.0], &[0.0, 0.0, 0.0], &[]],
        ),
        (
            &["5", "4", ""],
            &["5", "", "6"],
            &["none"],
            [&[WRONG, 0.0, 0.0], &[WRONG, 0.0, 0.0], &[0.0]],
        ),
        (
            &["5", "4", ""],
            &["5", "", "6"],
            &["Judgment: 3"],
            [&[WRONG, 0.0, 0.0], &[WRONG, 0.0, 0.0], &[0.0]],
        ),
        (
            &["5", "4", ""],
            &["5", "", "6"],
            &["Judgment: 0"],
            [&[WRONG, 0.0, 0.0], &[WRONG, 0.0, 0.0], &[0.0]],
        ),
        (
            &["5", "4", ""],
            &["5", "", "6"],
            &["Judgment: 2"],
            [&[WRONG, 0.0, 0.0], &[WRONG, 0.0, 0.0], &[0.0]],
        ),
        (
            &["5", "4", ""],
            &["5", "", "6"],
            &["Judgment: 1"],
            [&[RIGHT, 0.0, 0.0], &[RIGHT, 0.0, 0.0], &[RIGHT]],
        ),
        (
            &["4", "4", "4"],
            &["", "6", "5"],
            &["Judgment: 2"],
            [&[0.0, 0.0, 0.0], &[0.0, 0.0, RIGHT], &[RIGHT]],
        ),
    ];
    for (solvers, rewriters, selector, expected) in TABLE {
        let found = play(&workflow, &events(solvers, rewriters, selector)).unwrap();
        assert_eq!(
            found,
            expected.map(<[f32]>::to_vec),
            "{solvers:?} {rewriters:?} {selector:?}"
        );
    }
}

/// The reference's rule: a call without context left after its prompt is no sample, and the others
/// are still paid.
#[test]
fn a_stage_without_room_ends_it_and_the_others_are_paid() {
    let workflow = workflow("dyad", "num_parallel = 2");
    let silent = |mut event: Event| {
        (event.text, event.prompt, event.tokens) = (String::new(), 0, 0);
        event
    };
    let without = |mut all: Vec<Event>, from: usize| {
        let rest = all.split_off(from).into_iter().map(silent);
        all.extend(rest);
        all
    };
    let rewriters = without(events(&["5", "4"], &["", ""], &[]), 2);
    assert_eq!(play(&workflow, &rewriters).unwrap(), [vec![0.8, 0.0], vec![], vec![]]);
    let selector = without(events(&["5", "4"], &["5", "4"], &[""]), 4);
    assert_eq!(
        play(&workflow, &selector).unwrap(),
        [vec![0.8, 0.0], vec![0.8, 0.0], vec![]]
    );
    let said_nothing = events(&["5", "4"], &["5", "4"], &[""]);
    assert_eq!(
        play(&workflow, &said_nothing).unwrap()[2],
        [0.0],
        "a selector that said nothing had room"
    );
    let metric = |events: &[Event]| match workflow.step(&task("2+3=", 5.into()), 0, events) {
        Step::Done(outcome) => outcome.metrics.into_iter().collect::<BTreeMap<_, _>>()["no_room"],
        _ => panic!(),
    };
    assert_eq!(
        [metric(&rewriters), metric(&selector), metric(&said_nothing)],
        [1.0, 1.0, 0.0]
    );
}

#[test]
fn stages_wait_for_all_seats() {
    let workflow = workflow("dyad", "num_parallel = 3");
    let asked = |events: &[Event]| play(&workflow, events).unwrap_err();
    let seats = |role: &str, seats: &[u16]| seats.iter().map(|s| (role.to_owned(), *s)).collect::<Vec<_>>();
    let all = events(&["5", "4", ""], &["5", "", "6"], &[]);
    assert_eq!(asked(&[]), seats("solver", &[0, 1, 2]));
    assert_eq!(asked(&[all[1].clone()]), seats("solver", &[0, 2]));
    assert_eq!(asked(&all[..3]), seats("rewriter", &[0, 1, 2]));
    assert_eq!(asked(&all[..5]), seats("rewriter", &[2]));
    assert_eq!(asked(&all), seats("selector", &[0]));
}

#[test]
fn prompts_number_what_was_passed_on() {
    let workflow = workflow("dyad", "num_parallel = 3");
    let all = events(&["FIRST", "", "THIRD"], &["", "X", "Y"], &[]);
    let prompt = |events: &[Event]| match workflow.step(&task("2+3=", 5.into()), 0, events) {
        Step::Ask(asks) => asks[0].messages[0].content.clone(),
        _ => panic!(),
    };
    let solver = prompt(&[]);
    assert!(
        solver.contains("final answer within \\boxed{}") && solver.ends_with("\n\n2+3="),
        "{solver}"
    );
    let rewriter = prompt(&all[..3]);
    assert!(
        rewriter.contains("## Attempt 1\n\nFIRST") && rewriter.contains("## Attempt 2\n\nTHIRD"),
        "{rewriter}"
    );
    let selector = prompt(&all);
    assert!(
        selector.contains("## Solution 1\n\nX") && selector.contains("## Solution 2\n\nY"),
        "{selector}"
    );
}

#[test]
fn short_prompts_are_a_few_bytes_and_the_last_word_selects() {
    let workflow = workflow("dyad", "num_parallel = 3\nprompts = \"short\"");
    let all = events(&["5", "", "6"], &["", "4", "5"], &["5 2"]);
    let prompt = |events: &[Event]| match workflow.step(&task("2+3=", 5.into()), 0, events) {
        Step::Ask(asks) => asks[0].messages[0].content.clone(),
        _ => panic!(),
    };
    assert_eq!(
        [prompt(&[]), prompt(&all[..3]), prompt(&all[..6])],
        ["2+3=", "2+3=5,6,", "2+3=4,5,?"]
    );
    assert_eq!(play(&workflow, &all).unwrap()[2], [1.2]);
    let metrics = |said: &str| {
        let events = events(&["5", "", "6"], &["", "4", "5"], &[said]);
        match workflow.step(&task("2+3=", 5.into()), 0, &events) {
            Step::Done(outcome) => outcome.metrics.into_iter().collect::<BTreeMap<_, _>>(),
            _ => panic!(),
        }
    };
    assert_eq!(
        (metrics("5 2")["selector_right"], metrics("4 1")["selector_right"]),
        (1.0, 0.0)
    );
}

#[test]
fn judgments_are_read() {
    for (text, first, last) in [
        ("Judgment: 2", Some(2), Some(2)),
        ("Judgment:7.", Some(7), Some(7)),
        ("Judgment: 1\nno\nJudgment: 2", Some(1), Some(2)),
        ("Judgment: x\nJudgment: 2", Some(2), Some(2)),
        ("judgment: 2", None, None),
        ("Judgment: -1", None, None),
        ("Judgment: 99999999999999999999999", Some(usize::MAX), Some(usize::MAX)),
    ] {
        let found = (judgment(text, Judgment::First), judgment(text, Judgment::Last));
        assert_eq!(found, (first, last), "{text}");
    }
    for (text, word) in [
        ("85 2", Some(2)),
        ("2", Some(2)),
        ("85 2.", None),
        ("-1", None),
        ("", None),
    ] {
        assert_eq!(judgment(text, Judgment::Word), word, "{text}");
    }
    let all = events(&["5"], &["5"], &["Judgment: 1, no, Judgment: 2"]);
    assert_eq!(play(&workflow("miles", "num_parallel = 1"), &all).unwrap()[2], [1.2]);
    assert_eq!(play(&workflow("dyad", "num_parallel = 1"), &all).unwrap()[2], [0.0]);
}

#[test]
fn what_is_wrong_is_named() {
    let mut config = config(
        "solve-rewrite-select",
        &ROLES,
        "num_parallel = 0\nincorrect_weight = \"x\"",
    );
    config.profile = "slime".into();
    let found = problems(SolveRewriteSelect::new(&config, &BTreeMap::new()).map(|_| ()));
    let expected = [
        "graders.correct",
        "workflow.params.incorrect_weight",
        "workflow.params.num_parallel",
        "workflow.profile",
    ];
    assert_eq!(found, expected);
}

proptest! {
    #[test]
    fn any_list_of_events_is_answered(events in any_events(), seats in 1..6u16) {
        let workflow = workflow("dyad", &format!("num_parallel = {seats}"));
        check_total(&workflow, &task("2+3=", 5.into()), &events)?;
    }
}
