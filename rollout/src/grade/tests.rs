//! The graders, by tables of answers.

use super::*;
use serde_json::json;

#[test]
fn exact_compares_texts() {
    for (text, label, reward) in [
        ("o3", json!("o3"), 1.0),
        (" o3\n", json!("o3"), 1.0),
        ("O3", json!("o3"), 0.0),
        ("7", json!(7), 1.0),
        ("7", json!([7]), 0.0),
    ] {
        assert_eq!(Grader::Exact.grade(text, &label), reward, "{text} against {label}");
    }
}

#[test]
fn integer_takes_the_last_number_or_the_boxed_one() {
    for (text, label, reward) in [
        ("85", json!(85), 1.0),
        ("085", json!("85"), 1.0),
        ("37+48=85", json!(85), 1.0),
        ("first 84, then 85.", json!(85), 1.0),
        ("85 or 84", json!(85), 0.0),
        ("\\boxed{85} and 3 more", json!(85), 1.0),
        ("\\boxed{84} \\boxed{ 85 } 1", json!(85), 1.0),
        ("\\boxed{x} 85", json!(85), 0.0),
        ("-5", json!(-5), 1.0),
        ("x = -5", json!(-5), 1.0),
        ("12-5", json!(5), 1.0),
        ("12 -5", json!(5), 1.0),
        ("(-5)", json!(-5), 1.0),
        ("5", json!(-5), 0.0),
        ("1,234", json!(1234), 1.0),
        ("1,23", json!(23), 1.0),
        ("3.0", json!(3), 1.0),
        ("3.5", json!(5), 0.0),
        ("none", json!(5), 0.0),
        ("", json!(5), 0.0),
        ("-0", json!(0), 1.0),
        (
            "123456789012345678901234567890",
            json!("123456789012345678901234567890"),
            1.0,
        ),
        ("85", json!("eighty-five"), 0.0),
    ] {
        assert_eq!(Grader::Integer.grade(text, &label), reward, "{text} against {label}");
    }
}

#[test]
fn labels_of_the_wrong_type_are_named() {
    assert!(Grader::Integer.check_label(&json!("12")).is_ok());
    for label in [json!("twelve"), json!(1.5), json!(null), json!({"a": 1})] {
        assert!(
            Grader::Integer
                .check_label(&label)
                .unwrap_err()
                .contains("whole number"),
            "{label}"
        );
    }
    assert!(Grader::Exact.check_label(&json!(true)).is_err());
    assert!(Grader::new("fuzzy").is_err());
}
