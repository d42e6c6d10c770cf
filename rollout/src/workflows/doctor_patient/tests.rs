mod judged;
mod room;

use std::collections::BTreeMap;

use configs::{JUDGE, JudgeConfig};
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::workflow::testing::{any_events, check_total, config, event, graders, problems};
use crate::workflow::{Ask, Outcome};

fn clinic(profile: &str, params: &str) -> DoctorPatient {
    let mut config = config("doctor-patient", &["doctor", "patient"], params);
    config.profile = profile.into();
    DoctorPatient::new(&config, &BTreeMap::new()).unwrap_or_else(|problems| panic!("{problems:?}"))
}

fn case() -> Task {
    serde_json::from_value(json!({
        "prompt": "I feel ill.",
        "label": {"diagnosis": "bacterial angina", "recommendation": "take penicillin"},
        "metadata": {"self_report": "High fever, sore throat, no cough.",
                     "facts": {"fever": "high", "throat": "sore", "cough": "none"}},
    }))
    .unwrap()
}

const END: &str = "Diagnosis: bacterial angina\nRecommendation: take penicillin";

/// Plays these lines, doctor and patient in turn.
fn play(clinic: &DoctorPatient, lines: &[&str]) -> Outcome {
    let roles = ["doctor", "patient"];
    let mut events = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        match clinic.step(&case(), 0, &events) {
            Step::Ask(asks) => assert_eq!((asks[0].role.as_str(), asks[0].turn), (roles[at % 2], at as u16 / 2)),
            other => panic!("it ended before {line:?}: {other:?}"),
        }
        events.push(Event {
            turn: at as u16 / 2,
            ..event(roles[at % 2], 0, line)
        });
    }
    match clinic.step(&case(), 0, &events) {
        Step::Done(outcome) => outcome,
        other => panic!("{other:?}"),
    }
}

fn parts(outcome: &Outcome, seat: usize) -> BTreeMap<&'static str, f32> {
    outcome.rewards[seat]
        .parts
        .iter()
        .map(|part| (part.name, part.value))
        .collect()
}

#[test]
fn a_good_conversation_earns_everything() {
    let outcome = play(&clinic("dyad", ""), &["Do you have a fever?", "Yes, a high one.", END]);
    let doctor = [
        ("diagnosis", 1.0),
        ("recommendation", 1.0),
        ("information", 1.0),
        ("compliance", 0.0),
    ];
    assert_eq!(parts(&outcome, 0), BTreeMap::from(doctor));
    let patient = [("control", 1.0), ("complete", 1.0), ("consistent", 1.0)];
    assert_eq!(parts(&outcome, 1), BTreeMap::from(patient));
    assert!(outcome.metrics.contains(&("success", 1.0)));
}

#[test]
fn the_patient_pays_for_unasked_hidden_and_made_up_facts() {
    let judged = |reply: &str| {
        let outcome = play(&clinic("dyad", ""), &["Do you have a fever?", reply, END]);
        let parts = parts(&outcome, 1);
        [parts["control"], parts["complete"], parts["consistent"]]
    };
    assert_eq!(judged("A high one, and a sore throat."), [0.8, 1.0, 1.0]);
    assert_eq!(judged("Sorry, I do not know."), [1.0, 0.8, 1.0]);
    assert_eq!(judged("Only a low one."), [1.0, 0.8, 0.8]);
    assert_eq!(judged("Highly so."), [1.0, 0.8, 0.8], "a part of a word is no word");
}

#[test]
fn turns_do_not_pay_and_questions_in_a_heap_cost() {
    let clinic = clinic("dyad", "");
    let short = play(&clinic, &["Fever?", "High.", END]);
    let long = play(
        &clinic,
        &["Fever?", "High.", "Throat?", "Sore.", "Cough?", "None.", END],
    );
    assert_eq!(parts(&short, 0), parts(&long, 0));
    let heap = play(&clinic, &["Fever? Throat? Cough?", "High, sore, none.", END]);
    assert_eq!(parts(&heap, 0)["compliance"], -2.0);
    let refused = play(&clinic, &["Fever?", "Sorry.", END]);
    assert_eq!(parts(&refused, 0)["information"], -2.0);
}

#[test]
fn half_an_ending_is_none() {
    let outcome = play(&clinic("dyad", ""), &["Diagnosis: bacterial angina"]);
    assert_eq!((parts(&outcome, 0)["compliance"], outcome.rewards.len()), (-5.0, 1));
    let never = play(&clinic("dyad", "turns = 2"), &["Fever?", "High.", "Throat?"]);
    assert_eq!(parts(&never, 0)["compliance"], -5.0);
}

/// The reference's own figures (its defects): a perfect ending after three turns and an ending with
/// only a diagnosis earn the same 8; ten turns without any diagnosis earn 5.
#[test]
fn the_mrlx_profile_pays_as_the_reference_does() {
    let total = |lines: &[&str]| {
        let parts = parts(&play(&clinic("mrlx", ""), lines), 0);
        5.0 * (parts["diagnosis"] + parts["recommendation"]) + parts["information"] + parts["compliance"]
    };
    let three = ["a", "b", "a", "b", "a", "b"];
    assert_eq!(total(&[&three[..], &[END]].concat()), 8.0);
    assert_eq!(total(&[&three[..], &["Diagnosis: bacterial angina"]].concat()), 8.0);
    assert_eq!(
        total(&["a", "b"].repeat(10)),
        5.0,
        "ten replies, the last one to the last turn, and five taken for the missing diagnosis"
    );
    assert_eq!(clinic("mrlx", "").most_turns(), Some(20));
    assert_eq!(clinic("dyad", "").most_turns(), Some(19));
    assert_eq!(total(&["What? And what?", "Who? Why?", END]), 10.0 + 1.0 - 2.0 - 5.0);
}

/// The reference counts the narrow question mark in the patient's replies; here both widths in the
/// doctor's turns count.
#[test]
fn wide_question_marks_are_questions_but_to_the_mrlx_profile() {
    let compliance = |profile: &str, question: &str, reply: &str| {
        parts(&play(&clinic(profile, ""), &[question, reply, END]), 0)["compliance"]
    };
    for (heap, ours, theirs) in [
        ("发烧？咳嗽？", -2.0, -5.0),
        ("发烧？ Cough?", -2.0, -5.0),
        ("发烧? 咳嗽?", -2.0, -7.0),
        ("发烧？", 0.0, -5.0),
    ] {
        assert_eq!(compliance("dyad", heap, "High."), ours, "{heap}");
        assert_eq!(compliance("dyad", "Fever?", heap), 0.0, "{heap}");
        // 5 of these are for the recommendation.
        assert_eq!(compliance("mrlx", "Fever?", heap), theirs, "{heap}");
        assert_eq!(compliance("mrlx", heap, "High."), -5.0, "{heap}");
    }
}

/// The `at`-th line of a dialogue: doctor and patient in turn.
fn line(at: u16, text: &str) -> Event {
    Event {
        turn: at / 2,
        ..event(["doctor", "patient"][usize::from(at % 2)], 0, text)
    }
}

fn cut(at: u16, text: &str) -> Event {
    Event {
        finish: Finish::Length,
        ..line(at, text)
    }
}

/// A line with the tokens of its prompt and its own, padded with blanks to one byte per token (up
/// to 999).
fn counted(at: u16, text: &str, prompt: u32, tokens: u32) -> Event {
    let width = tokens.min(999) as usize;
    Event {
        prompt,
        tokens,
        ..line(at, &format!("{text:<width$}"))
    }
}

/// The bytes that `doctor_last` adds around a reply.
fn around() -> u32 {
    let text = clinic("dyad", "")
        .prompts
        .text("doctor_last", &case(), context! { reply => "" });
    text.len() as u32
}

/// A bound of 1000 tokens for each side, in addition to those of `doctor_last`, with 50 of them in
/// reserve.
fn watched() -> DoctorPatient {
    clinic("dyad", &format!("max_tokens = {}\nreserve = 50", 1000 + around()))
}

fn asked(clinic: &DoctorPatient, events: &[Event]) -> Ask {
    match clinic.step(&case(), 0, events) {
        Step::Ask(asks) => asks[0].clone(),
        other => panic!("{other:?}"),
    }
}

fn done(clinic: &DoctorPatient, events: &[Event]) -> Outcome {
    match clinic.step(&case(), 0, events) {
        Step::Done(outcome) => outcome,
        other => panic!("{other:?}"),
    }
}

fn metric(outcome: &Outcome, name: &str) -> f64 {
    outcome.metrics.iter().find(|(known, _)| *known == name).unwrap().1
}

fn earners(outcome: &Outcome) -> Vec<&str> {
    outcome.rewards.iter().map(|seat| seat.role.as_str()).collect()
}

#[test]
fn a_turn_that_its_limit_cut_ends_the_dialogue() {
    let clinic = clinic("dyad", "");
    let doctor = done(&clinic, &[cut(0, "Do you have a")]);
    assert_eq!((metric(&doctor, "truncated"), earners(&doctor)), (1.0, vec!["doctor"]));
    assert_eq!(parts(&doctor, 0)["compliance"], -5.0, "it did not end in time");
    // The doctor cannot prevent it, and its ending is unknown.
    let patient = done(&clinic, &[line(0, "Fever?"), cut(1, "High, and")]);
    assert_eq!(
        (metric(&patient, "truncated"), earners(&patient)),
        (1.0, vec!["patient"])
    );
    let ended = done(&clinic, &[cut(0, "Diagnosis: bacterial angina\nRecommendation: take")]);
    assert_eq!((metric(&ended, "truncated"), metric(&ended, "success")), (0.0, 1.0));
    let whole = done(&clinic, &[line(0, END)]);
    assert_eq!((metric(&whole, "truncated"), metric(&whole, "hurried")), (0.0, 0.0));
}

/// In the reference a recommendation is a line. Here a list is one too, and its explanation is not.
#[test]
fn what_explains_an_ending_is_no_part_of_it() {
    let recommended = |profile: &str, more: &str| {
        let outcome = done(&clinic(profile, ""), &[line(0, &format!("{END}{more}"))]);
        parts(&outcome, 0)["recommendation"]
    };
    for profile in ["dyad", "mrlx"] {
        assert_eq!(recommended(profile, "\n\nExplanation: it helps against bacteria"), 1.0);
        assert_eq!(recommended(profile, ""), 1.0);
    }
    assert_eq!(recommended("mrlx", "\nfor a week"), 1.0);
    assert!(recommended("dyad", "\nfor a week") < 1.0);
}

#[test]
fn where_a_turn_is_a_word_none_is_cut() {
    for counted in ["prompts = \"short\"", "cut = \"heard\""] {
        let next = asked(&clinic("dyad", counted), &[cut(0, "Fever?"), cut(1, "High")]);
        assert_eq!((next.role.as_str(), next.turn), ("doctor", 1), "{counted}");
    }
}

/// The reference accepts any turn of the patient. It gives 0 for a silent doctor, and ignores its
/// patient.
#[test]
fn the_mrlx_profile_keeps_the_statuses_of_the_reference() {
    let clinic = clinic("mrlx", "");
    let next = asked(&clinic, &[line(0, "Fever?"), cut(1, "High, and")]);
    assert_eq!((next.role.as_str(), next.turn), ("doctor", 1));
    let truncated = done(&clinic, &[line(0, "Fever?"), line(1, "High."), cut(2, "Is your")]);
    assert_eq!(
        (metric(&truncated, "truncated"), metric(&truncated, "aborted")),
        (1.0, 0.0)
    );
    assert_eq!(
        (parts(&truncated, 0)["information"], parts(&truncated, 0)["compliance"]),
        (1.0, -5.0)
    );
    let aborted = done(&clinic, &[line(0, "Fever?"), line(1, "High."), line(2, " ")]);
    assert_eq!((metric(&aborted, "aborted"), earners(&aborted)), (1.0, vec!["doctor"]));
    assert!(parts(&aborted, 0).values().all(|value| *value == 0.0));
}

#[test]
fn bounds_that_leave_nothing_are_named() {
    for (params, key) in [
        ("max_tokens = 100\nreserve = 100", "workflow.params.reserve"),
        ("reserve = 5", "workflow.params.reserve"),
        ("max_tokens = -1", "workflow.params.max_tokens"),
        ("cut = \"never\"", "workflow.params.cut"),
    ] {
        let config = config("doctor-patient", &["doctor", "patient"], params);
        let found = problems(DoctorPatient::new(&config, &BTreeMap::new()).map(|_| ()));
        assert_eq!(found, [key], "{params}");
    }
}

#[test]
fn what_is_wrong_is_named() {
    let mut config = config("doctor-patient", &["doctor"], "judge = \"vibes\"\nturns = 0");
    config.profile = "reference".into();
    let found = problems(DoctorPatient::new(&config, &BTreeMap::new()).map(|_| ()));
    let expected = [
        "workflow.params.judge",
        "workflow.params.turns",
        "workflow.profile",
        "workflow.roles.patient",
    ];
    assert_eq!(found, expected);
    let mut rule = crate::workflow::testing::config("doctor-patient", &["doctor", "patient"], "judge = \"correct\"");
    rule.profile = "dyad".into();
    let found = problems(DoctorPatient::new(&rule, &graders("exact")).map(|_| ()));
    assert_eq!(found, ["workflow.params.judge"], "a rule of ours judges no patient");
}

#[test]
fn cases_without_what_is_needed_are_refused() {
    let clinic = clinic("dyad", "");
    assert!(clinic.check_task(&case()).is_ok());
    for key in ["self_report", "facts"] {
        let mut task = case();
        task.metadata.remove(key);
        assert!(clinic.check_task(&task).unwrap_err().contains(key));
    }
    let mut task = case();
    task.label = "angina".into();
    assert!(clinic.check_task(&task).unwrap_err().contains("diagnosis"));
}

proptest! {
    #[test]
    fn any_list_of_events_is_answered(events in any_events()) {
        check_total(&clinic("dyad", "turns = 3"), &case(), &events)?;
        check_total(&clinic("mrlx", "turns = 3"), &case(), &events)?;
        check_total(&clinic("dyad", "max_tokens = 200\nturns = 4"), &case(), &events)?;
        check_total(&clinic("dyad", "max_tokens = 800\nturns = 4"), &case(), &events)?;
    }
}
