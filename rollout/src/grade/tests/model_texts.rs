//! Texts in the manner of models, with the answer that each must earn.

use serde_json::json;

use crate::grade::Grader;

fn grade(kind: &str, text: &str, label: &str) -> f32 {
    Grader::new(kind).unwrap().grade(text, &json!(label))
}

/// Checks that texts earn 1 with a label and 0 with another, for every grader of numbers.
fn numbers(texts: &[&str], label: &str, other: &str) {
    for text in texts {
        for kind in ["gsm8k", "integer", "math"] {
            assert_eq!(grade(kind, text, label), 1.0, "{kind}: {text}");
            assert_eq!(grade(kind, text, other), 0.0, "{kind}: {text}");
        }
    }
}

#[test]
fn a_reason_behind_the_value_is_not_the_answer() {
    numbers(
        &[
            "So he has 18 apples left because he ate 3.",
            "Hence there are 18 apples left (he ate 3).",
            "He now has 18 apples, due to eating 3.",
            "So Tom has **18** apples, given that he ate **3**.",
            "小明还剩18个苹果，因为他吃了3个。",
        ],
        "18",
        "3",
    );
    numbers(
        &[
            "Therefore x = 5 since 2·5 = 10",
            "So $x = 5$ because $2 \\cdot 5 = 10$.",
            "Thus x = 5 as 2*5 = 10.",
        ],
        "5",
        "10",
    );
    numbers(
        &[
            "Because he ate 3, he has 18 apples left.",
            "Since he ate 3, 18 are left.",
        ],
        "18",
        "3",
    );
}

#[test]
fn a_citation_or_a_remark_is_not_the_answer() {
    for trailer in [
        "[1]",
        " [2]",
        "\n\n[1]",
        " (source: 2)",
        " (see step 2)",
        "\n\nConfidence: 2%",
        "【2】",
    ] {
        for text in ["So he has 18 apples left.", "The answer is 18."] {
            numbers(&[&format!("{text}{trailer}")], "18", "2");
        }
    }
}

#[test]
fn number_words_are_numbers_where_an_answer_is_marked() {
    for (words, label) in [
        ("eighteen", "18"),
        ("twenty-five dollars", "25"),
        ("one hundred and five", "105"),
        ("a dozen", "12"),
        ("a thousand dollars", "1000"),
        ("ninety miles per hour", "90"),
        ("十八", "18"),
        ("二十五元", "25"),
    ] {
        numbers(
            &[
                &format!("The answer is {words}."),
                &format!("\\boxed{{\\text{{{words}}}}}"),
            ],
            label,
            "7",
        );
    }
    numbers(&["The answer is five apples."], "5", "6");
    for words in [
        "eighteen or nineteen",
        "eighteen and a half",
        "not eighteen",
        "two thirds",
    ] {
        for kind in ["gsm8k", "integer", "math"] {
            for label in ["18", "2"] {
                let text = format!("The answer is {words}.");
                assert_eq!(grade(kind, &text, label), 0.0, "{kind}: {text}");
            }
        }
    }
    assert_eq!(grade("math", "The answer is two complex roots.", "two real roots"), 0.0);
}

#[test]
fn chinese_answers_are_read() {
    numbers(
        &[
            "答案是18",
            "\\boxed{18元}",
            "\\boxed{18（元）}",
            "\\boxed{约18元}",
            "\\boxed{共18种}",
            "最终答案:18个苹果",
            "答：她每天赚18元。",
            "答案是十八",
        ],
        "18",
        "17",
    );
    for text in ["答案不是18", "答案是18或20", "\\boxed{18万元}", "如果答案是18,那么错了"] {
        for kind in ["gsm8k", "integer", "math"] {
            assert_eq!(grade(kind, text, "18"), 0.0, "{kind}: {text}");
        }
    }
}

#[test]
fn letters_are_chosen_in_many_words() {
    for text in [
        "Mark B.",
        "I'd go with B",
        "(B) is correct",
        "My pick is B.",
        "So B it is.",
        "The best fit is B.",
        "I settle on B.",
        "I'd choose B over C.",
        "That makes it B.",
        "Final: B",
        "Ans. B",
        "=> B",
        "A is wrong, so B.",
        "所以答案为 B",
        "所以正确的是B",
        "The answer is B. If it were warmer, the answer would be C.",
    ] {
        assert_eq!(grade("choice", text, "B"), 1.0, "{text}");
        assert_eq!(grade("choice", text, "C"), 0.0, "{text}");
    }
    for text in [
        "(B) is not correct",
        "(B) is incorrect",
        "B is correct and C is correct.",
        "If (C) is correct, then so is (B).",
        "Don't mark B.",
        "Mark B wrote a letter.",
        "选B还是选C?",
    ] {
        assert_eq!(grade("choice", text, "B"), 0.0, "{text}");
    }
}
