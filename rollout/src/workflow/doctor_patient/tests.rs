use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::json;

use super::super::testing::{any_events, check_total, config, event, graders, problems};
use super::*;

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
fn the_patient_pays_for_what_it_tells_unasked_hides_and_makes_up() {
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

/// The reference's own figures (its defects): a perfect ending after three turns and one with a diagnosis only earn the same
/// 8; ten turns without any diagnosis earn 5.
#[test]
fn the_mrlx_profile_pays_as_the_reference_does() {
    let total = |lines: &[&str]| {
        let parts = parts(&play(&clinic("mrlx", ""), lines), 0);
        5.0 * (parts["diagnosis"] + parts["recommendation"]) + parts["information"] + parts["compliance"]
    };
    let three = ["a", "b", "a", "b", "a", "b"];
    assert_eq!(total(&[&three[..], &[END]].concat()), 8.0);
    assert_eq!(total(&[&three[..], &["Diagnosis: bacterial angina"]].concat()), 8.0);
    let mut ten = ["a", "b"].repeat(9);
    ten.push("a");
    assert_eq!(
        total(&ten),
        4.0,
        "nine replies, and five taken for the missing diagnosis"
    );
    assert_eq!(total(&["What? And what?", "Who? Why?", END]), 10.0 + 1.0 - 2.0 - 5.0);
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
    let mut rule = super::super::testing::config("doctor-patient", &["doctor", "patient"], "judge = \"correct\"");
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
    }
}
