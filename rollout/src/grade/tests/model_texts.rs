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
    for (words, label) in [("eighteen", "18"), ("one hundred and five", "105")] {
        numbers(
            &[
                &format!("The answer is {words}."),
                &format!("\\boxed{{\\text{{{words}}}}}"),
            ],
            label,
            "7",
        );
    }
    for (words, label) in [
        ("twenty-five dollars", "25"),
        ("ninety miles per hour", "90"),
        ("five apples", "5"),
        ("十八", "18"),
        ("a dozen", "12"),
        ("a thousand dollars", "1000"),
    ] {
        for kind in ["gsm8k", "integer"] {
            for text in [
                format!("The answer is {words}."),
                format!("\\boxed{{\\text{{{words}}}}}"),
            ] {
                assert_eq!(
                    (grade(kind, &text, label), grade(kind, &text, "7")),
                    (1.0, 0.0),
                    "{kind}: {text}"
                );
            }
        }
    }
    for words in [
        "six pi",
        "six grand",
        "six k",
        "six zeros",
        "six square roots",
        "六十倍",
    ] {
        for kind in ["gsm8k", "integer", "math"] {
            assert_eq!(
                grade(kind, &format!("The answer is {words}."), "6"),
                0.0,
                "{kind}: {words}"
            );
        }
    }
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

/// Each of these holds another number first, which a rule could take.
#[test]
fn results_behind_parts_reasons_and_remarks_are_the_answer() {
    for text in [
        "He had 16: 7 broke and 18 are left.",
        "He has 20, of which 18 are left.",
        "Each costs $5: the 8 tickets cost $18.",
        "It costs 80 because of a sale, and with tax 18.",
        "总共24块，因为吃了6块，剩下18块。",
        "Speed: 40\nTime taken: 18 hours",
        "There are 24 pieces in total. Note that 6 have been eaten, leaving 18.",
        "We have 24 pieces in total. If you have eaten 6, then 18 are left.",
        "One worker needs 12 days. For 3 workers it would take 18 days.",
        "[1] 16 - 7 = 9 eggs\n[2] 9 × 2 = 18 dollars",
        "It is 20.\n\nCheck: 9 × 2 is 18, not 20. It is 18.",
        "2 pens\n\nBecause each costs $9, the cost is 18.",
        "#### 9\n#### 18 dollars earned daily\nDone.",
    ] {
        for kind in ["gsm8k", "integer"] {
            assert_eq!(grade(kind, text, "18"), 1.0, "{kind}: {text}");
        }
    }
    for text in ["答案是负18。", "答案是根号18。", "答案是超过18。", "答案是十八的平方。"] {
        assert_eq!(grade("math", text, "18"), 0.0, "{text}");
    }
}
