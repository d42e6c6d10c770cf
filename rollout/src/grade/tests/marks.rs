//! Marks among headings, suppositions and remarks, by texts that models write.

use serde_json::json;

use crate::grade::Grader;

const SOLUTION: &str = "Janet sells 16 - 3 - 4 = 9 eggs.\nShe makes 9 * 2 = $18.\n";

/// Grades texts with every grader of numbers against 18.
fn check(texts: &[String], right: f32) {
    for text in texts {
        for kind in ["gsm8k", "integer", "math"] {
            let grade = Grader::new(kind).unwrap().grade(text, &json!("18"));
            assert_eq!(grade, right, "{kind}: {text}");
        }
    }
}

#[test]
fn a_heading_with_a_number_hides_no_answer() {
    for heading in ["2nd step", "1st", "3 ways to check", "4 key facts", "Step 2"] {
        check(
            &[
                format!("#### {heading}\n{SOLUTION}#### 18"),
                format!("The answer is 18.\n\n#### {heading}\nWe could multiply first."),
                format!("{SOLUTION}\\boxed{{18}}\n\n#### {heading}\nThe other way is longer."),
                format!("#### 18\n\n#### {heading}\nMultiply first."),
            ],
            1.0,
        );
    }
}

#[test]
fn a_line_behind_hashes_is_the_answer() {
    for line in [
        "18",
        "18 dollars",
        "$18",
        "18.",
        "18 eggs per day",
        "**18**",
        "18 dollars a day",
    ] {
        let text = format!("{}#### {line}", SOLUTION.replace("$18", "$20"));
        for kind in ["gsm8k", "integer"] {
            assert_eq!(
                Grader::new(kind).unwrap().grade(&text, &json!(18)),
                1.0,
                "{kind}: {text}"
            );
        }
    }
}

#[test]
fn a_supposition_behind_an_answer_leaves_it() {
    for supposition in [
        "If we had counted Sunday, the answer is 30.",
        "Note: if the price were $3.50, the answer would be 30.",
        "Suppose the price was $3; then the answer is 30.",
        "Suppose the price was $3. Then the answer is 30.",
        "Had she sold all, the final answer would be 30.",
        "In that case, the answer would be 30.",
        "With a price of $3, the answer would be 30.",
        "The answer would be 30 if she sold everything.",
        "If she sold them all,\nthe answer is 30.",
    ] {
        for mark in ["#### 18", "\\boxed{18}"] {
            check(&[format!("{SOLUTION}{mark}\n\n{supposition}")], 1.0);
        }
    }
    check(
        &[
            "The answer is 9. When I recheck, the answer is 18.".to_owned(),
            "Answer: 9 eggs are left.\nIf each costs $2, the answer is 18.".to_owned(),
            "\\boxed{9} eggs are left. With $2 for each, she would make \\boxed{18}.".to_owned(),
            "Each egg costs $2. If there are 9 eggs, the total would be 18 dollars.".to_owned(),
            "If she sells 9 eggs at $2 each, the answer is 18.".to_owned(),
            "The answer is 26.\n\nWait, if we subtract the muffins, the answer is 18.".to_owned(),
        ],
        1.0,
    );
    check(
        &[
            format!("{SOLUTION}The answer is 18. If she sold less, the answer is 10. The answer is 12."),
            "If she sells 5 eggs, the answer is 10.".to_owned(),
        ],
        0.0,
    );
}
