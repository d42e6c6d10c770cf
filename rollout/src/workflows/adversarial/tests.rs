//! The reward tables of both games, and the choice of players.

use std::collections::BTreeSet;

use broker::protocol::task::Task;
use proptest::prelude::*;

use super::*;
use crate::workflow::testing::{any_events, check_total, config, event, graders, problems, task};
use crate::workflow::{Ask, Event, Outcome, SeatReward, Step};

const PROPOSE: [&str; 2] = ["proposer", "solver"];
const ATTACK: [&str; 3] = ["thinker", "adversary", "defender"];

fn game(roles: &[&str], params: &str) -> Arc<dyn Workflow> {
    let params = format!("prompts = \"short\"\n{params}");
    build(&config("adversarial", roles, &params), &graders("integer")).unwrap_or_else(|found| panic!("{found:?}"))
}

fn propose() -> Arc<dyn Workflow> {
    game(&PROPOSE, "most = 9\nsigns = \"+-\"\ntries = 4")
}

fn attack() -> Arc<dyn Workflow> {
    game(&ATTACK, "game = \"attack\"")
}

fn asks(step: Step) -> Vec<Ask> {
    match step {
        Step::Ask(asks) => asks,
        other => panic!("{other:?}"),
    }
}

fn done(step: Step) -> Outcome {
    match step {
        Step::Done(outcome) => outcome,
        other => panic!("{other:?}"),
    }
}

type Earned = Vec<(String, u16, String, Vec<(&'static str, f32)>)>;

fn earned(outcome: &Outcome) -> Earned {
    let parts = |reward: &SeatReward| reward.parts.iter().map(|p| (p.name, p.value)).collect();
    let one = |reward: &SeatReward| {
        let (role, key) = (reward.role.to_string(), reward.subkey.clone());
        (role, reward.seat, key, parts(reward))
    };
    outcome.rewards.iter().map(one).collect()
}

fn metric(outcome: &Outcome, name: &str) -> Option<f64> {
    outcome
        .metrics
        .iter()
        .find(|(known, _)| *known == name)
        .map(|(_, value)| *value)
}

fn identified(id: usize) -> Task {
    Task {
        id: Some(format!("t/{id}")),
        ..task("2+3=", 5.into())
    }
}

#[test]
fn the_proposer_earns_the_misses_and_each_try_its_own_grade() {
    let (game, task) = (propose(), task("go", serde_json::Value::Null));
    for (answers, missed) in [(["7"; 4], 0.0), (["7", "8", "7", "1"], 0.5), (["8"; 4], 1.0)] {
        let mut events = vec![event("proposer", 0, "3 + 4")];
        let wanted = asks(game.step(&task, 0, &events));
        assert_eq!(wanted.len(), 4);
        assert!(wanted.iter().all(|ask| ask.messages[0].content == "3 + 4 ="));
        events.extend((0..).zip(answers).map(|(seat, text)| event("solver", seat, text)));
        let outcome = done(game.step(&task, 0, &events));
        let mut expected: Earned = vec![(
            "proposer".into(),
            0,
            String::new(),
            vec![("broken", missed), ("valid", 1.0)],
        )];
        for (seat, text) in (0..).zip(answers) {
            let right = f32::from(u8::from(text == "7"));
            expected.push(("solver".into(), seat, "3+4=".into(), vec![("correct", right)]));
        }
        assert_eq!(earned(&outcome), expected);
        assert_eq!(metric(&outcome, "success"), Some(f64::from(1.0 - missed)));
    }
}

#[test]
fn what_is_no_problem_earns_nothing_and_is_not_tried() {
    let (game, task) = (propose(), task("go", serde_json::Value::Null));
    let nothing: Earned = vec![(
        "proposer".into(),
        0,
        String::new(),
        vec![("broken", 0.0), ("valid", 0.0)],
    )];
    for text in [
        "",
        "3",
        "3+",
        "+4",
        "3*4",
        "3+10",
        "-3+4",
        "3++4",
        "3+4=7",
        "is 3+4",
        "3+4+5",
        "٣+٤",
        "0000003+4",
    ] {
        let outcome = done(game.step(&task, 0, &[event("proposer", 0, text)]));
        assert_eq!(earned(&outcome), nothing, "{text:?}");
    }
    assert_eq!((game.most_turns(), attack().most_turns()), (Some(5), None));
    for (text, shown) in [
        ("9-0", "9 - 0 ="),
        (" 3 +4 =", "3 + 4 ="),
        ("Hm. 1+1\nProblem: 8+9=\n", "8 + 9 ="),
    ] {
        let wanted = asks(game.step(&task, 0, &[event("proposer", 0, text)]));
        assert_eq!(wanted[0].messages[0].content, shown, "{text:?}");
    }
}

#[test]
fn thinker_and_adversary_earn_by_the_table() {
    let (game, task) = (attack(), task("2 + 3 =", 5.into()));
    for (first, last, [s1, s2, broken]) in [
        ("5", "5", [1.0, 1.0, 0.0]),
        ("5", "6", [1.0, 0.0, 1.0]),
        ("4", "5", [0.0, 1.0, -1.0]),
        ("4", "6", [0.0, 0.0, 0.0]),
    ] {
        let events = [
            event("thinker", 0, first),
            event("adversary", 0, "no"),
            event("defender", 0, last),
        ];
        assert_eq!(
            asks(game.step(&task, 0, &events[..1]))[0].messages[0].content,
            format!("2 + 3 = {first} ?")
        );
        let defence = &asks(game.step(&task, 0, &events[..2]))[0];
        assert_eq!(defence.messages[0].content, format!("2 + 3 = {first} ? no !"));
        let outcome = done(game.step(&task, 0, &events));
        let expected: Earned = vec![
            (
                "thinker".into(),
                0,
                String::new(),
                vec![("correct", s1), ("survived", s2)],
            ),
            ("adversary".into(), 0, String::new(), vec![("broken", broken)]),
            ("defender".into(), 0, String::new(), vec![("survived", s2)]),
        ];
        assert_eq!(earned(&outcome), expected, "{first} {last}");
        assert_eq!(metric(&outcome, "win_fixed"), None);
    }
}

#[test]
fn stand_ins_are_drawn_by_the_task_and_earn_as_their_side() {
    let roles = ["thinker", "adversary", "defender", "past1", "past2"];
    let game = game(
        &roles,
        "game = \"attack\"\nopponents = { adversary = [\"past1\", \"past2\"] }",
    );
    let mut counted = BTreeMap::new();
    for id in 0..300 {
        let task = identified(id);
        let first = event("thinker", 0, "5");
        let drawn = asks(game.step(&task, 0, std::slice::from_ref(&first)))[0].role.clone();
        // The conversation's own seed plays no part: a group compares conversations against one
        // opponent.
        assert_eq!(drawn, asks(game.step(&task, 9, std::slice::from_ref(&first)))[0].role);
        let events = [first, event(drawn.as_str(), 0, "no"), event("defender", 0, "5")];
        let outcome = done(game.step(&task, 0, &events));
        assert_eq!(outcome.rewards[1].role, drawn);
        assert_eq!(
            metric(&outcome, "win_fixed"),
            (drawn.as_str() != "adversary").then_some(1.0)
        );
        *counted.entry(drawn.to_string()).or_insert(0) += 1;
    }
    assert_eq!(
        counted.keys().map(String::as_str).collect::<Vec<_>>(),
        ["adversary", "past1", "past2"]
    );
    assert!(counted.values().all(|n| (70..130).contains(n)), "{counted:?}");
}

/// Success against an opponent that changes is no fixed measure.
#[test]
fn success_against_a_renewing_stand_in_has_its_own_metric() {
    let roles = ["thinker", "adversary", "defender", "first", "past"];
    let params = "game = \"attack\"\nopponents = { adversary = [\"first\", \"past\"] }\nrenewing = [\"past\"]";
    let game = game(&roles, params);
    let mut seen = BTreeSet::new();
    for id in 0..100 {
        let (task, first) = (identified(id), event("thinker", 0, "5"));
        let drawn = asks(game.step(&task, 0, std::slice::from_ref(&first)))[0].role.clone();
        let events = [first, event(drawn.as_str(), 0, "no"), event("defender", 0, "5")];
        let outcome = done(game.step(&task, 0, &events));
        let won = ["win_fixed", "win_past"].map(|name| metric(&outcome, name));
        let expected = match drawn.as_str() {
            "first" => [Some(1.0), None],
            "past" => [None, Some(1.0)],
            _ => [None, None],
        };
        assert_eq!(won, expected, "{drawn}");
        seen.insert(drawn.to_string());
    }
    assert_eq!(seen.len(), 3);
}

/// An invalid proposal against a stand-in has no success, and counts.
#[test]
fn an_invalid_proposal_wins_nothing_against_a_fixed_solver() {
    let game = game(&["proposer", "solver", "past"], "opponents = { solver = [\"past\"] }");
    let mut fixed = 0;
    for id in 0..50 {
        let task = identified(id);
        let solver = asks(game.step(&task, 0, &[event("proposer", 0, "3+4")]))[0]
            .role
            .clone();
        let invalid = done(game.step(&task, 0, &[event("proposer", 0, "what?")]));
        let against_past = solver.as_str() == "past";
        assert_eq!(metric(&invalid, "win_fixed"), against_past.then_some(0.0));
        fixed += usize::from(against_past);
    }
    assert!((10..40).contains(&fixed), "{fixed}");
}

#[test]
fn with_stand_ins_on_both_sides_metrics_are_separate() {
    let roles = ["proposer", "solver", "old", "past"];
    let game = game(&roles, "opponents = { proposer = [\"old\"], solver = [\"past\"] }");
    let mut seen = BTreeSet::new();
    for id in 0..200 {
        let task = identified(id);
        let proposer = asks(game.step(&task, 0, &[]))[0].role.clone();
        let mut events = vec![event(proposer.as_str(), 0, "3+4")];
        let wanted = asks(game.step(&task, 0, &events));
        // One try of four is right.
        let answers = (0..).zip(&wanted);
        let said = |(at, ask): (usize, &Ask)| event(ask.role.as_str(), ask.seat, if at == 0 { "7" } else { "8" });
        events.extend(answers.map(said));
        let outcome = done(game.step(&task, 0, &events));
        let expected = match (proposer.as_str(), wanted[0].role.as_str()) {
            ("proposer", "past") => [None, Some(0.75), None],
            ("old", "solver") => [None, None, Some(0.25)],
            _ => [None; 3],
        };
        let names = ["win_fixed", "win_fixed_proposer", "win_fixed_solver"];
        assert_eq!(names.map(|name| metric(&outcome, name)), expected);
        let invalid = done(game.step(&task, 0, &[event(proposer.as_str(), 0, "what?")]));
        assert_eq!(metric(&invalid, "win_fixed_proposer"), expected[1].map(|_| 0.0));
        assert_eq!(metric(&invalid, "win_fixed_solver"), None, "it was not asked");
        seen.insert(expected.map(|value| value.is_some()));
    }
    assert_eq!(seen.len(), 3);
}

#[test]
fn one_side_at_least_is_the_side_itself() {
    let roles = ["proposer", "solver", "old", "past"];
    let game = game(&roles, "opponents = { proposer = [\"old\"], solver = [\"past\"] }");
    let mut met = BTreeSet::new();
    for id in 0..200 {
        let task = identified(id);
        let proposer = asks(game.step(&task, 0, &[]))[0].role.to_string();
        let solver = asks(game.step(&task, 0, &[event(&proposer, 0, "3+4")]))[0]
            .role
            .to_string();
        met.insert((proposer, solver));
    }
    let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
    let expected = [
        pair("old", "solver"),
        pair("proposer", "past"),
        pair("proposer", "solver"),
    ];
    assert_eq!(met, BTreeSet::from(expected));
}

#[test]
fn what_is_wrong_is_named() {
    let found = |roles: &[&str], params: &str, grader: &str| {
        problems(build(&config("adversarial", roles, params), &graders(grader)).map(|_| ()))
    };
    let param = |key: &str| format!("workflow.params.{key}");
    assert_eq!(
        found(
            &["proposer"],
            "signs = \"/\"\nleast = 5\nmost = 4\nturns = 1",
            "integer"
        ),
        [
            param("most"),
            param("signs"),
            param("turns"),
            "workflow.roles.solver".into()
        ]
    );
    assert_eq!(
        found(
            &ATTACK,
            "game = \"attack\"\nopponents = { thinker = [\"x\"], adversary = [\"defender\"] }",
            "integer"
        ),
        [param("opponents.adversary"), param("opponents.thinker")]
    );
    assert_eq!(
        found(
            &ATTACK,
            "game = \"attack\"\nopponents = { adversary = [\"past1\"] }",
            "integer"
        ),
        ["workflow.roles.past1"]
    );
    assert_eq!(found(&PROPOSE, "game = \"war\"", "integer"), [param("game")]);
    for renewing in ["[\"solver\"]", "\"solver\""] {
        assert_eq!(
            found(&PROPOSE, &format!("renewing = {renewing}"), "integer"),
            [param("renewing")],
            "it is no stand-in, or no list"
        );
    }
    assert_eq!(found(&PROPOSE, "tries = 1", "integer"), [param("tries")]);
    assert_eq!(found(&PROPOSE, "tries = 65", "integer"), [param("tries")]);
    let lone = build(&config("adversarial", &PROPOSE, "tries = 1"), &graders("integer"));
    let message = lone
        .err()
        .map(|problems| problems[0].message.clone())
        .unwrap_or_default();
    assert!(message.contains("from 2 to 64: a single try"), "{message}");
    for grader in ["choice", "format"] {
        assert_eq!(
            found(&PROPOSE, "", grader),
            [param("grader")],
            "it compares with no number"
        );
    }
    for grader in ["exact", "match", "integer", "gsm8k", "math", "f1"] {
        assert!(build(&config("adversarial", &PROPOSE, "tries = 2"), &graders(grader)).is_ok());
    }
}

proptest! {
    #[test]
    fn any_list_of_events_is_answered(events in any_events()) {
        check_total(&*propose(), &task("go", serde_json::Value::Null), &events)?;
        check_total(&*attack(), &task("2 + 3 =", 5.into()), &events)?;
        let past = game(&["proposer", "solver", "past"], "opponents = { solver = [\"past\"] }");
        check_total(&*past, &identified(1), &events)?;
    }

    /// The defender's gain by the last answer is the adversary's loss, whatever is said.
    #[test]
    fn attack_is_a_game_of_constant_sum(texts in prop::array::uniform3("[0-9]{1,2}")) {
        let events: Vec<Event> = ATTACK.iter().zip(&texts).map(|(role, text)| event(role, 0, text)).collect();
        let outcome = done(attack().step(&task("2 + 3 =", 5.into()), 0, &events));
        let value = |at: usize, part: usize| outcome.rewards[at].parts[part].value;
        prop_assert_eq!(value(1, 0) + value(2, 0), value(0, 0), "broken + survived = the first answer's grade");
    }
}
