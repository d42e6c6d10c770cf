//! A patient that an agent judges.

use super::*;

/// A clinic in which the agent `b` judges the patient, by the shipped template.
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
fn a_model_judges_the_replies_without_the_doctors_ending() {
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
