//! The math grader beside math_verify and DAPO's rule, on the cases that `cases/make.py` made by running them.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::math;

#[derive(Deserialize)]
struct Case {
    group: String,
    label: String,
    answer: String,
    math_verify: bool,
    dapo: bool,
}

/// Cases in which we differ from math_verify on purpose, with the reason.
#[derive(Deserialize)]
struct Difference {
    pairs: Vec<(String, String)>,
    why: String,
}

fn cases() -> Vec<Case> {
    let read = |line: &str| serde_json::from_str(line).unwrap();
    include_str!("cases/cases.jsonl").lines().map(read).collect()
}

#[test]
fn the_math_grader_agrees_with_math_verify_but_for_listed_reasons() {
    let differences: Vec<Difference> = serde_json::from_str(include_str!("cases/differences.json")).unwrap();
    let mut listed: BTreeMap<(String, String), bool> = BTreeMap::new();
    for difference in differences {
        assert!(difference.why.len() > 20, "a reason is missing");
        for (label, answer) in difference.pairs {
            listed.insert((answer.clone(), label.clone()), false);
            listed.insert((label, answer), false);
        }
    }
    let (mut agree, mut dapo, mut unexplained) = (0, 0, Vec::new());
    let cases = cases();
    for case in &cases {
        let ours = math::equal(&case.answer, &case.label);
        agree += usize::from(ours == case.math_verify);
        dapo += usize::from(ours == case.dapo);
        let key = (case.label.clone(), case.answer.clone());
        match (ours == case.math_verify, listed.get_mut(&key)) {
            (false, Some(seen)) => *seen = true,
            (false, None) => unexplained.push(format!(
                "{}: {} <- {}: math_verify {}",
                case.group, case.label, case.answer, case.math_verify
            )),
            (true, _) => {}
        }
    }
    println!(
        "{} cases: {agree} as math_verify ({:.1} %), {dapo} as DAPO's rule",
        cases.len(),
        100.0 * agree as f64 / cases.len() as f64
    );
    assert!(unexplained.is_empty(), "not explained:\n{}", unexplained.join("\n"));
    for ((label, answer), seen) in &listed {
        let other = listed
            .get(&(answer.clone(), label.clone()))
            .copied()
            .unwrap_or_default();
        assert!(*seen || other, "{label} <- {answer} is listed and no difference");
    }
    assert!(
        cases.len() > 450 && agree * 100 >= cases.len() * 92,
        "{agree} of {}",
        cases.len()
    );
}

#[test]
fn the_order_of_answer_and_label_does_not_matter() {
    for case in cases() {
        assert_eq!(
            math::equal(&case.answer, &case.label),
            math::equal(&case.label, &case.answer),
            "{} and {}",
            case.label,
            case.answer
        );
    }
}
