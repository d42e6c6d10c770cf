//! Tests the graders with tables of answers.

mod field_cases;
mod marks;
mod math;
mod model_texts;
mod mutated;
mod pairs;

use configs::{GraderConfig, Take};
use serde_json::{Value, json};

use super::answer::LONGEST;
use super::*;

/// Returns every shipped grader with each of its settings.
fn every() -> impl Iterator<Item = Grader> {
    let kinds = KINDS.into_iter().map(|kind| Grader::new(kind).unwrap());
    kinds.chain([Grader::Integer(Take::First)])
}

#[test]
fn unknown_kind_is_answered_with_every_kind() {
    let error = Grader::new("nix").unwrap_err();
    let wanted = "f1, format; [graders] also takes judge, process:FILE and remote:NAME";
    assert!(error.ends_with(wanted), "{error}");
}

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
        ("1,23", json!(23), 0.0),
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
        assert_eq!(
            Grader::Integer(Take::Last).grade(text, &label),
            reward,
            "{text} against {label}"
        );
    }
}

/// The sign may be any of the usual dashes. Between two numbers it is an operator.
#[test]
fn a_minus_is_read_by_every_grader_of_numbers() {
    let integers = [Grader::Integer(Take::Last), Grader::Integer(Take::First)];
    for sign in ["-", "−", "－", "–", "\u{2011}"] {
        for said in [
            "SIGN5",
            "it is SIGN5",
            "答案是SIGN5。",
            "#### SIGN5",
            "\\boxed{SIGN5}",
            "The answer is SIGN5.",
        ] {
            let text = said.replace("SIGN", sign);
            for grader in integers.into_iter().chain([Grader::Gsm8k, Grader::Math]) {
                assert_eq!(grader.grade(&text, &json!(-5)), 1.0, "{grader:?}: {text}");
                assert_eq!(grader.grade(&text, &json!(5)), 0.0, "{grader:?}: {text}");
                let label = json!(format!("{sign}5"));
                assert!(grader.check_label(&label).is_ok(), "{grader:?}: {label}");
                assert_eq!(grader.grade("-5", &label), 1.0, "{grader:?}: {label}");
                assert_eq!(grader.grade("5", &label), 0.0, "{grader:?}: {label}");
            }
        }
        for grader in [Grader::Integer(Take::Last), Grader::Gsm8k, Grader::Math] {
            let text = format!("so it is 10{sign}5");
            assert_eq!(grader.grade(&text, &json!(5)), 1.0, "{grader:?}: {text}");
        }
    }
}

#[test]
fn integer_takes_the_first_number_if_configured() {
    let of = |kind: &str| {
        Grader::of(&GraderConfig {
            take: Take::First,
            ..GraderConfig::of(kind)
        })
        .unwrap()
    };
    let (first, last) = (of("integer"), Grader::of(&GraderConfig::of("integer")).unwrap());
    assert_eq!((last, of("math")), (Grader::Integer(Take::Last), Grader::Math));
    for (text, label, by_first, by_last) in [
        ("5", json!(5), 1.0, 1.0),
        ("5 ... or 10", json!(5), 1.0, 0.0),
        ("2 + 3 = 5", json!(5), 0.0, 1.0),
        ("10, so \\boxed{5}", json!("5"), 0.0, 1.0),
        ("\\boxed{5} and 3 more", json!(5), 1.0, 1.0),
        ("1,234 or 7", json!(1234), 1.0, 0.0),
        ("-5 or 5", json!(-5), 1.0, 0.0),
        ("3.5 or 5", json!(5), 0.0, 1.0),
        ("none", json!(5), 0.0, 0.0),
    ] {
        assert_eq!(first.grade(text, &label), by_first, "{text} against {label}");
        assert_eq!(last.grade(text, &label), by_last, "{text} against {label}");
    }
    assert_eq!(first.same("5 or 6", "5 or 7"), Some(true));
    assert_eq!(last.same("5 or 6", "5 or 7"), Some(false));
    // The counting number is read although a long text stands before or after it.
    let long = "é".repeat(LONGEST);
    assert_eq!(first.grade(&format!("5{long}6"), &json!(5)), 1.0);
    assert_eq!(last.grade(&format!("5{long}6"), &json!(6)), 1.0);
}

#[test]
fn labels_of_the_wrong_type_are_named() {
    assert!(Grader::Integer(Take::Last).check_label(&json!("12")).is_ok());
    for label in [json!("twelve"), json!(1.5), json!(null), json!({"a": 1})] {
        assert!(
            Grader::Integer(Take::Last)
                .check_label(&label)
                .unwrap_err()
                .to_string()
                .contains("whole number"),
            "{label}"
        );
    }
    assert!(Grader::Exact.check_label(&json!(true)).is_err());
    assert!(Grader::new("fuzzy").is_err());
}

/// For every accepted label some answer earns 1.
#[test]
fn words_and_numbers_are_matched_as_they_are() {
    for label in [
        json!("A"),
        json!("!!!"),
        json!(["the"]),
        json!("C++"),
        json!(-5),
        json!(["", "x"]),
    ] {
        let said = label.as_array().and_then(|list| list.last()).unwrap_or(&label);
        let said = said.as_str().map_or_else(|| said.to_string(), str::to_owned);
        for grader in [Grader::Match, Grader::F1] {
            assert!(grader.check_label(&label).is_ok(), "{label}");
            assert_eq!(grader.grade(&said, &label), 1.0, "{grader:?}: {said} against {label}");
        }
        assert_eq!(Grader::Match.same(&said, &said), Some(true), "{said}");
    }
    for label in [json!(""), json!("\n"), json!([""]), json!([]), json!({"a": 1})] {
        for grader in [Grader::Match, Grader::F1] {
            assert!(grader.check_label(&label).is_err(), "{label}");
        }
    }
    for (text, label, reward) in [
        ("-5", "5", 0.0),
        ("3/4", "34", 0.0),
        ("1.5", "15", 0.0),
        ("C++", "C#", 0.0),
        ("1,000", "1000", 1.0),
        ("the answer: -5.", "Answer -5", 1.0),
        ("New York!", "the new york", 1.0),
        ("", "A", 0.0),
    ] {
        assert_eq!(
            Grader::Match.grade(text, &json!(label)),
            reward,
            "{text} against {label}"
        );
    }
}

#[test]
fn deep_and_long_answers_earn_nothing() {
    let deep = format!("\\boxed{{{}1{}}}", "(".repeat(200), ")".repeat(200));
    assert_eq!(Grader::Math.grade(&deep, &json!(1)), 0.0);
    let minus = format!("\\boxed{{{}1}}", "-".repeat(400));
    assert_eq!(Grader::Math.grade(&minus, &json!(1)), 0.0);
    let long = format!("{}\\boxed{{1}}", "é".repeat(1 << 17));
    assert_eq!(Grader::Math.grade(&long, &json!(1)), 1.0);
}

/// Guards against quadratic searches and against recursion for each sign.
#[test]
fn hostile_texts_end() {
    for piece in [
        "\\boxed{",
        "{",
        "}",
        "{}",
        "\\boxed{}",
        "1.1.",
        "1 2 3 4 ",
        "The answer is 5. ",
        "5 of the ",
        "5 to ",
        "for x ",
        "0.",
        ".0",
        "1,234,",
        "7",
        "-",
        "\\frac",
        "^{",
        "√",
        "\\{",
        "####",
        "answer is ",
        "answer:",
        "answer is\n",
        "answer is as follows:\n",
        "answer: a ",
        "answer:\n$$",
        "x:\n",
        "$",
        "$5 ",
        "$$ ",
        "\\(",
        "\\[ ",
        "\\text{",
        "\\textbf",
        "c+",
        "-1",
        "−",
        "–1",
        "1,",
        "<answer>",
        "</answer>",
        "<answer></answer>",
        "<think>",
        "<think>x</think>",
        "(A)",
        "é",
        "中国",
        " ",
        "\n",
        "\\",
    ] {
        let text = piece.repeat(LONGEST / piece.len());
        for grader in every() {
            let reward = grader.grade(&text, &json!("1"));
            assert!((0.0..=1.0).contains(&reward), "{grader:?}: {piece}");
            let _ = grader.same(&text, &text[..0]);
        }
    }
    let zeros = format!("7{}", ".0".repeat(30_000));
    assert_eq!(Grader::Integer(Take::Last).grade(&zeros, &json!(7)), 0.0);
    assert_eq!(Grader::Integer(Take::Last).grade(&format!("{zeros}.1"), &json!(7)), 0.0);
}

#[test]
fn gsm8k_compares_numbers() {
    for (text, label, reward) in [
        ("so 3 and 4\n#### 72", json!("48/2 = 24 ... #### 72"), 1.0),
        ("#### 1,080", json!("#### 1080"), 1.0),
        ("#### $18.00", json!(18), 1.0),
        ("it is 72.", json!("72"), 1.0),
        ("\\boxed{72} after 3 steps", json!(72), 1.0),
        ("#### 71", json!(72), 0.0),
        ("#### ", json!(72), 0.0),
        ("72 #### 71", json!(72), 0.0),
        ("", json!(72), 0.0),
        ("#### 72\n#### 73", json!("#### 73"), 1.0),
        ("#### 72 apples", json!("#### 72"), 1.0),
        ("#### -5", json!("#### -5"), 1.0),
        ("10-5 = 5\n#### 5", json!(-5), 0.0),
        ("#### 0.50", json!("#### .5"), 1.0),
        ("####72", json!(72), 1.0),
        ("#### 72.", json!(72), 1.0),
        ("####\n72", json!(72), 1.0),
        ("The answer is $1,234,567.00", json!("#### 1,234,567"), 1.0),
        ("it takes 3/4 of an hour", json!("0.75"), 1.0),
        ("#### seventy-two", json!(72), 0.0),
        ("\\boxed{x} and 72", json!(72), 0.0),
        ("-72", json!(72), 0.0),
        ("3 and 72", json!("72.0"), 0.0),
    ] {
        assert_eq!(Grader::Gsm8k.grade(text, &label), reward, "{text} against {label}");
    }
    assert!(Grader::Gsm8k.check_label(&json!("none")).is_err());
}

#[test]
fn answers_are_the_same_by_what_the_grader_compares() {
    for (grader, a, b, same) in [
        (Grader::Exact, " 5", "5\n", Some(true)),
        (Grader::Exact, "5", "five", Some(false)),
        (Grader::Match, "The cat.", "so <answer>cat</answer>", Some(true)),
        (Grader::Integer(Take::Last), "it is 12", "\\boxed{12}", Some(true)),
        (Grader::Integer(Take::Last), "nothing", "nothing", Some(false)),
        (Grader::Gsm8k, "#### 1,080", "1080.", Some(true)),
        (Grader::Math, "\\boxed{\\frac12}", "the answer is 0.5", Some(true)),
        (Grader::Math, "\\boxed{1}", "\\boxed{2}", Some(false)),
        (Grader::Math, "", "", Some(false)),
        (Grader::Choice, "(B)", "Answer: B", Some(true)),
        (Grader::Choice, "B", "C", Some(false)),
        (Grader::F1, "a", "a", None),
        (Grader::Format, "a", "a", None),
    ] {
        assert_eq!(grader.same(a, b), same, "{grader:?}: {a:?} and {b:?}");
        assert_eq!(grader.same(b, a), same, "{grader:?}: {b:?} and {a:?}");
    }
}

#[test]
fn every_kind_has_its_grader() {
    for kind in KINDS {
        assert!(Grader::new(kind).is_ok(), "{kind}");
    }
    assert_eq!(Grader::Choice.grade("(B)", &json!("B")), 1.0);
    assert_eq!(Grader::Format.grade("<answer>1</answer>", &Value::Null), 1.0);
    assert_eq!(Grader::F1.grade("a b", &json!("b c")), 0.5);
    assert_eq!(Grader::Choice.grade("\\boxed{\\textbf{(B) } 12}", &json!("B")), 1.0);
    assert_eq!(
        Grader::Choice.grade("The answer is a bit subtle, but it is (C)", &json!("A")),
        0.0
    );
    assert!(Grader::Choice.check_label(&json!("Z")).is_err());
}

proptest::proptest! {
    #[test]
    fn any_text_is_graded(text in "\\PC{0,40}", label in "\\PC{0,20}") {
        for grader in every() {
            let boxed = format!("\\boxed{{{text}}}");
            for text in [&text, &boxed] {
                let reward = grader.grade(text, &json!(label));
                proptest::prop_assert!((0.0..=1.0).contains(&reward));
                let _ = grader.same(text, &label);
            }
        }
    }

    #[test]
    fn formulas_are_graded(
        pieces in proptest::collection::vec(
            proptest::sample::select(vec![
                "\\frac", "{", "}", "1", "23", "\\sqrt", "[3]", "(", ")", "^", "-", "+", "*", "/", ".", ",", "\\text{", "\\pi", "=", "$", "0",
            ]),
            0..14,
        ),
    ) {
        let text = format!("\\boxed{{{}}}", pieces.concat());
        let reward = Grader::Math.grade(&text, &json!("1"));
        proptest::prop_assert!(reward == 0.0 || reward == 1.0);
    }

    #[test]
    fn equal_fractions_are_equal(n in -500i64..500, d in 1i64..500, k in 1i64..20) {
        let text = format!("\\boxed{{\\frac{{{}}}{{{}}}}}", n * k, d * k);
        proptest::prop_assert_eq!(Grader::Math.grade(&text, &json!(format!("{n}/{d}"))), 1.0);
        proptest::prop_assert_eq!(Grader::Math.grade(&text, &json!(format!("{}/{d}", n + 1))), 0.0);
    }
}
