//! Checks labels before a run uses them: a label that no answer can earn is refused.

use std::fmt;

use serde_json::Value;

use super::grader::Grader;
use super::verdict::read_label;
use super::{gsm8k, label, math};

/// Longest part of a label that a message shows, in bytes.
const SHOWN: usize = 120;

/// The reason why no answer can earn a label, and what to change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Doubt(String);

impl Doubt {
    fn new(label: &Value, why: &str) -> Self {
        let mut shown = label.to_string();
        if shown.len() > SHOWN {
            shown.truncate(shown.floor_char_boundary(SHOWN));
            shown.push_str("..");
        }
        Self(format!("the label is {shown}; {why}"))
    }

    /// Keeps the words of a grader that the program registered.
    pub(super) fn of_own(why: String) -> Self {
        Self(why)
    }
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Doubt {}

impl From<Doubt> for String {
    fn from(doubt: Doubt) -> Self {
        doubt.0
    }
}

/// Checks that a shipped grader reads the label, and that an answer which repeats it earns 1.
///
/// # Errors
/// Says what is wrong with the label and what to write instead.
pub(super) fn check(grader: Grader, label: &Value) -> Result<(), Doubt> {
    if grader == Grader::Format {
        return Ok(());
    }
    let kind = grader.kind();
    if grader == Grader::Gsm8k && gsm8k::is_ambiguous(label) {
        let why = "it holds several numbers and no mark: write the right one alone, or behind ####";
        return Err(Doubt::new(label, why));
    }
    if !grader.reads_label(label) {
        let why = format!("{kind} compares with {}", grader.wanted());
        return Err(Doubt::new(label, &why));
    }
    if grader == Grader::Math
        && let Some(why) = read_label(grader, label).and_then(|text| missing(&text))
    {
        return Err(Doubt::new(label, why));
    }
    if is_repeated(grader, label) {
        return Ok(());
    }
    let why = format!(
        "{kind} would reject an answer that repeats it: write {}, or use the kind match or judge",
        grader.wanted()
    );
    Err(Doubt::new(label, &why))
}

/// Labels that stand for a missing value in tables and templates.
const MISSING: [&str; 6] = ["nan", "null", "none", "n/a", "<na>", "tbd"];

/// Returns why a label of `math` is no answer: it stands for a missing one, or has no value.
fn missing(text: &str) -> Option<&'static str> {
    let bare = text.replace("\\boxed", "").replace("\\fbox", "").replace("\\ldots", "");
    let says = |c: char| c.is_alphanumeric() || "\\∞∅".contains(c);
    if MISSING.contains(&text.trim().to_lowercase().as_str()) || !bare.contains(says) {
        return Some("it stands for a missing answer: leave the task out, or write \\text{None} if the word is right");
    }
    math::divides_by_zero(text).then_some("it has no value: write what is right, such as \\text{undefined}")
}

/// Returns true if an answer earns that says the label: what is read of it, or letter for letter. A
/// number must earn in all spellings that its file may have, unless a table made it of a rounder
/// one.
fn is_repeated(grader: Grader, label: &Value) -> bool {
    let earns = |said: &String| {
        let said = [
            format!("\\boxed{{{said}}}"),
            said.clone(),
            format!("The answer is {said}."),
        ];
        said.iter().any(|text| grader.grade(text, label) > 0.0)
    };
    match label {
        Value::Number(number) if label::rounded(&number.to_string()).is_none() => {
            label::spellings(number).iter().all(earns)
        }
        _ => {
            let read = read_label(grader, label).into_iter();
            read.chain(label::texts(label)).any(|said| earns(&said))
        }
    }
}

#[cfg(test)]
mod tests {
    use broker::codec::parse_exact_json;
    use serde_json::json;

    use super::*;

    #[test]
    fn labels_that_no_answer_can_earn_are_refused() {
        for (kind, label, why) in [
            ("math", json!("[\"1\", \"2\"]"), "math compares with"),
            ("math", json!("word ".repeat(60)), "math compares with"),
            ("math", json!(["34"]), "math compares with"),
            ("integer", json!(1.5), "whole number"),
            ("integer", json!(1.5e-7), "whole number"),
            ("choice", json!(2), "a letter from A to J"),
            ("choice", json!("A, C"), "a letter from A to J"),
            ("gsm8k", json!("none"), "gsm8k compares with"),
            ("gsm8k", json!("6 apples and 7 pears"), "several numbers and no mark"),
            ("gsm8k", json!("Tom has 6, Ann has 7"), "several numbers and no mark"),
            ("gsm8k", json!("between 3 and 5"), "several numbers and no mark"),
            ("gsm8k", json!("3, 4"), "several numbers and no mark"),
            ("gsm8k", json!("2 hours and 30 minutes"), "several numbers and no mark"),
            (
                "gsm8k",
                json!("16 - 7 is 9, and 9 * 2 is 18"),
                "several numbers and no mark",
            ),
            ("match", json!(""), "match compares with"),
            ("math", json!("nan"), "leave the task out"),
            ("math", json!("None"), "leave the task out"),
            ("math", json!("N/A"), "leave the task out"),
            ("math", json!("..."), "leave the task out"),
            ("math", json!("\\boxed{}"), "leave the task out"),
            ("math", json!("1/0"), "it has no value"),
            ("math", json!("\\frac{1}{0}"), "it has no value"),
        ] {
            let doubt = Grader::new(kind).unwrap().check_label(&label).unwrap_err().to_string();
            assert!(doubt.contains(why), "{kind}: {doubt}");
        }
    }

    /// Each label is written here as its file spells it.
    #[test]
    fn numbers_earn_as_their_file_spells_them() {
        for spelled in [
            "12.50",
            "0.10",
            "911041647744.8803",
            "4503599627370497.5",
            "71875638520892.62",
            "-1.50",
            "1995.0",
            "1e20",
            "1.50E+3",
            "1.5e-7",
            "2.2250738585072014e-308",
            "18446744073709551616",
            "-9223372036854775809",
            "9007199254740993.0",
            "3.14159265358979323846264338327950288",
            "123456789012345678901234567890.125",
        ] {
            let parsed = parse_exact_json(format!("[{spelled}]").as_bytes()).unwrap();
            let label = &parsed.exact()[0];
            for kind in ["exact", "match", "math", "gsm8k", "f1", "integer"] {
                let grader = Grader::new(kind).unwrap();
                if kind == "integer" && !grader.reads_label(label) {
                    continue;
                }
                assert_eq!(grader.check_label(label), Ok(()), "{kind}: {spelled}");
                let said = ["math", "gsm8k", "integer"].contains(&kind);
                let said = if said {
                    format!("\\boxed{{{spelled}}}")
                } else {
                    spelled.to_owned()
                };
                assert_eq!(grader.grade(&said, label), 1.0, "{kind}: {spelled}");
            }
        }
        for (kind, label, answer, grade) in [
            ("exact", json!(12.5), "12.50", 1.0),
            ("exact", json!(12.5), "12.51", 0.0),
            ("exact", json!("12.5"), "12.50", 0.0),
            ("match", json!(12.5), "The answer: $12.50", 0.0),
            ("match", json!(12.5), "$12.50.", 1.0),
            ("match", json!([3, 12.5]), "12.50", 1.0),
            ("match", json!(1e-7), "1e7", 0.0),
            ("match", json!("1e-7"), "1e7", 0.0),
            ("f1", json!(12.5), "12.50", 1.0),
            ("exact", json!("18446744073709551616"), "18446744073709551617", 0.0),
            ("math", json!("18446744073709551616"), "18446744073709551617", 0.0),
        ] {
            let grader = Grader::new(kind).unwrap();
            assert_eq!(grader.grade(answer, &label), grade, "{kind}: {answer} against {label}");
        }
    }

    #[test]
    fn labels_are_read_as_answers_are() {
        for (kind, label, answer) in [
            ("math", json!("So 17*2=34.\n#### 34"), "\\boxed{34}"),
            ("math", json!("[\"34\"]"), "\\boxed{34}"),
            ("math", json!("['34']"), "\\boxed{34}"),
            ("math", json!("('34',)"), "\\boxed{34}"),
            ("math", json!("\\text{None}"), "\\boxed{\\text{None}}"),
            ("math", json!("\\emptyset"), "\\boxed{∅}"),
            ("integer", json!(70.00000000000001), "70"),
            ("math", json!("<answer>34</answer>"), "\\boxed{34}"),
            ("math", json!("The answer is 34."), "\\boxed{34}"),
            ("math", json!(34.0), "\\boxed{34}"),
            ("gsm8k", json!("So 17*2=34.\n#### 34"), "#### 34"),
            ("gsm8k", json!("34 pears"), "#### 34"),
            ("gsm8k", json!("17 * 2 = 34"), "#### 34"),
            ("gsm8k", json!("<<9*2=18>>18"), "#### 18"),
            ("gsm8k", json!("16-3-4=9. 9*2=18. So she makes $18."), "#### 18"),
            ("gsm8k", json!("2 1/2 pears"), "#### 2.5"),
            ("gsm8k", json!("5 apples. The answer is 34 pears."), "#### 34"),
            ("gsm8k", json!("34 pears are 34 fruits"), "#### 34"),
            ("integer", json!("[\"34\"]"), "34"),
            ("integer", json!("\\boxed{34}"), "34"),
            ("choice", json!("Answer: (B)"), "B"),
            ("match", json!("\\boxed{Paris}"), "\\boxed{Paris}"),
            ("match", json!("[\"Paris\", \"Rome\"]"), "Rome"),
            ("match", json!(1995.0), "1995"),
            ("exact", json!(1995.0), "1995"),
            ("exact", json!(1995.0), "1995.0"),
            ("f1", json!(1995.0), "1995"),
        ] {
            let grader = Grader::new(kind).unwrap();
            assert!(grader.check_label(&label).is_ok(), "{kind}: {label}");
            assert_eq!(grader.grade(answer, &label), 1.0, "{kind}: {answer} against {label}");
        }
    }
}
