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

#[test]
fn a_dialogue_asks_for_its_ending_while_there_is_room() {
    let clinic = watched();
    let mut events = vec![counted(0, "Fever?", 840, 10)];
    // 1000 - (840 + 10 + 16) - 50.
    assert_eq!(asked(&clinic, &events).max_new_tokens, Some(84));
    events.push(counted(1, "High.", 860, 20));
    // The doctor's next prompt has 886 tokens, and with another round 932.
    let next = asked(&clinic, &events);
    assert_eq!(
        (next.max_new_tokens, next.messages[0].content.as_str()),
        (Some(114 + around()), format!("{:<20}", "High.").as_str())
    );
    events.push(counted(2, "Throat?", 886, 10));
    assert_eq!(asked(&clinic, &events).max_new_tokens, Some(38), "1000 - 912 - 50");
    events.push(counted(3, "Sore.", 906, 20));
    // 932, and 978 with a further round: its answer would have 22.
    let last = asked(&clinic, &events);
    assert_eq!((last.turn, last.max_new_tokens), (2, Some(68)));
    assert!(last.messages[0].content.contains("exactly two lines"), "{last:?}");
    let end = |text: &str| done(&clinic, &[&events[..], &[counted(4, text, 940, 20)]].concat());
    let (good, bad) = (end(END), end("Cough?"));
    let flags = |outcome: &Outcome| ["hurried", "truncated", "success"].map(|name| metric(outcome, name));
    assert_eq!((flags(&good), flags(&bad)), ([1.0, 0.0, 1.0], [1.0, 1.0, 0.0]));
    assert_eq!(parts(&bad, 0)["compliance"], -5.0);
}

#[test]
fn a_dialogue_without_room_is_truncated_and_overflows_nowhere() {
    let (watched, unwatched) = (watched(), clinic("dyad", ""));
    let first = counted(0, "Fever?", 840, 10);
    let cut = |tokens: u32| Event {
        finish: Finish::Length,
        ..counted(1, "High, and", 860, tokens)
    };
    // A reply that the room cut leaves the reserve for the ending; a longer one (with a different
    // token count) does not.
    let full = asked(&watched, &[first.clone(), cut(84)]);
    assert_eq!((full.role.as_str(), full.max_new_tokens), ("doctor", Some(50)));
    assert!(full.messages[0].content.contains("exactly two lines"), "{full:?}");
    let over = done(&watched, &[first.clone(), counted(1, "High.", 860, 85)]);
    assert_eq!((metric(&over, "truncated"), over.rewards.len()), (1.0, 2));
    // A reply that a different limit cut ends it.
    let silenced = done(&watched, &[first.clone(), cut(83)]);
    assert_eq!(
        (metric(&silenced, "truncated"), earners(&silenced)),
        (1.0, vec!["patient"])
    );
    // A question after which no reply fits.
    let long = counted(2, "Throat, which ..?", 886, 60);
    let over = done(&watched, &[first, counted(1, "High.", 860, 20), long]);
    assert_eq!((metric(&over, "truncated"), metric(&over, "hurried")), (1.0, 0.0));
    let next = asked(&unwatched, &[counted(0, "Fever?", u32::MAX, u32::MAX)]);
    assert_eq!(next.max_new_tokens, None);
}

#[test]
fn a_reply_that_the_patients_own_context_cut_is_followed_by_the_ending() {
    let clinic = watched();
    let first = [
        counted(0, "Fever?", 10, 10),
        counted(1, "High.", 700, 10),
        counted(2, "Throat?", 46, 10),
    ];
    let limit = asked(&clinic, &first).max_new_tokens.unwrap();
    assert_eq!(
        limit,
        1000 + around() - (700 + 10 + 10 + 16),
        "less than the doctor's room"
    );
    // The patient does not receive the doctor's reasoning, so the doctor would have room for more.
    let thought = Event {
        tokens: limit,
        prompt: 100,
        ..cut(3, "Sore,")
    };
    let last = asked(&clinic, &[&first[..], &[thought]].concat());
    assert!(last.messages[0].content.contains("exactly two lines"), "{last:?}");
}

#[test]
fn first_turns_have_a_limit_by_the_bytes_of_their_message() {
    let (wide, tight) = (watched(), clinic("dyad", "max_tokens = 210\nreserve = 10"));
    let first = asked(&wide, &[]);
    let bytes = first.messages[0].content.len() as u32;
    assert_eq!(first.max_new_tokens, Some(1000 + around() - bytes - 16));
    let reply = asked(&wide, &[counted(0, "Fever?", 20, 10)]);
    let bytes = reply.messages[0].content.len() as u32;
    assert_eq!(
        reply.max_new_tokens,
        Some(1000 + around() - bytes - 16),
        "the doctor's room is wider"
    );
    assert!(wide.check_task(&case()).is_ok());
    assert!(tight.check_task(&case()).unwrap_err().contains("max_tokens = 210"));
    assert_eq!(earners(&done(&tight, &[])), Vec::<&str>::new());
}

/// The reference accepts any turn of the patient, and gives 0 for a silent doctor, whose patient it
/// ignores.
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

/// A clinic whose patient the agent `b` judges, by the shipped template.
fn judged() -> DoctorPatient {
    let template = concat!(env!("CARGO_MANIFEST_DIR"), "/../configs/programs/patient_judge.jinja");
    let judge: JudgeConfig = serde_json::from_value(json!({
        "agent": "b", "template": template, "max_tokens": 60,
        "parts": {"information_control": 1.0, "response_completeness": 1.0, "no_conflict": 1.0},
    }))
    .unwrap();
    let grader = GraderConfig {
        judge: Some(judge),
        ..GraderConfig::of(JUDGE)
    };
    let config = config("doctor-patient", &["doctor", "patient"], "judge = \"rubric\"");
    let graders = BTreeMap::from([("rubric".to_owned(), grader)]);
    DoctorPatient::new(&config, &graders).unwrap_or_else(|problems| panic!("{problems:?}"))
}

#[test]
fn a_model_judges_the_replies_by_the_reference_and_without_the_doctors_ending() {
    let clinic = judged();
    let mut events = vec![
        line(0, "Do you have a fever?"),
        line(1, "Yes, a high one."),
        line(2, END),
    ];
    let ask = asked(&clinic, &events);
    assert_eq!(
        (ask.role.as_str(), ask.turn, ask.max_new_tokens),
        ("grade-patient", 0, Some(60))
    );
    let prompt = &ask.messages[0].content;
    for part in [
        "CASE: High fever, sore throat, no cough.\n",
        "REFERENCE DIAGNOSIS: bacterial angina\nREFERENCE RECOMMENDATION: take penicillin\n",
        "DIALOGUE:\nDoctor: Do you have a fever?\nPatient: Yes, a high one.\n",
    ] {
        assert!(prompt.contains(part), "{part:?} is not in {prompt}");
    }
    assert!(!prompt.contains("Doctor: Diagnosis"), "{prompt}");
    let said = "{\"information_control\": 0.8, \"response_completeness\": 1, \"no_conflict\": 0.6}";
    events.push(event("grade-patient", 0, said));
    let outcome = done(&clinic, &events);
    let patient: Vec<_> = parts(&outcome, 1).into_iter().collect();
    let [("judged", value)] = patient[..] else {
        panic!("{patient:?}")
    };
    assert!((value - 2.4).abs() < 1e-6, "{value}");
    assert_eq!(parts(&outcome, 0)["diagnosis"], 1.0);
    assert!((metric(&outcome, "patient_rubric") - 2.4).abs() < 1e-6);
    // A patient that was never asked is not judged.
    assert_eq!(earners(&done(&clinic, &[line(0, END)])), ["doctor"]);
}

#[test]
fn a_case_without_a_recommendation_is_judged_too() {
    let mut case = case();
    case.label = json!({"diagnosis": "bacterial angina"});
    let events = [line(0, "Fever?"), line(1, "High."), line(2, END)];
    let Step::Ask(asks) = judged().step(&case, 0, &events) else {
        panic!()
    };
    let prompt = &asks[0].messages[0].content;
    assert!(
        prompt.contains("DIAGNOSIS: bacterial angina\n\nDIALOGUE:") && !prompt.contains("RECOMMENDATION"),
        "{prompt}"
    );
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
