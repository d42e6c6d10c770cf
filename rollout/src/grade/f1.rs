//! Words in common: exact match after normalisation ([`super::matching::normal`]) and F1 over a bag of words, as question answering is scored
//! (Rajpurkar et al., "SQuAD", 2016), with Chinese cut into words by jieba.

use std::collections::HashMap;
use std::sync::OnceLock;

use jieba_rs::Jieba;
use serde_json::Value;

use super::label_text;
use super::matching::normal::form;

/// Longest answer whose words are compared, in bytes.
const LONGEST: usize = 8192;

/// The texts that a label accepts: one, or a list of them.
pub(super) fn accepted(label: &Value) -> Vec<String> {
    match label {
        Value::Array(list) => list.iter().filter_map(label_text).collect(),
        one => label_text(one).into_iter().collect(),
    }
}

/// What is compared of an answer: between the last `<answer>` and `</answer>`, else the last `\boxed{}`, else all.
pub(super) fn answer(text: &str) -> &str {
    super::format::last_block(text, "answer")
        .or_else(|| super::answer::boxed::last(text))
        .unwrap_or(text)
        .trim()
}

/// Whether somebody can reach a label: one of its texts has something in it.
pub(super) fn is_label(label: &Value) -> bool {
    accepted(label).iter().any(|label| !label.trim().is_empty())
}

/// Whether the answer is one of the labels after normalisation.
pub(super) fn matches(text: &str, label: &Value) -> bool {
    let found = form(answer(text));
    !found.is_empty() && accepted(label).iter().any(|label| form(label) == found)
}

/// The words of a text, in small letters: Chinese by jieba, the rest by what is no letter or digit.
fn words(text: &str) -> HashMap<String, usize> {
    static JIEBA: OnceLock<Jieba> = OnceLock::new();
    let text = super::tail(text, LONGEST).to_lowercase();
    let mut counts = HashMap::new();
    for word in JIEBA.get_or_init(Jieba::new).cut(&text, true) {
        let parts = word.word.split(|c: char| !c.is_alphanumeric());
        for part in parts.filter(|part| !part.is_empty()) {
            *counts.entry(part.to_owned()).or_insert(0) += 1;
        }
    }
    counts
}

/// The harmonic mean of precision and recall of words, each counted as often as it occurs, for the best of the labels.
/// From 0 to 1. A label without words is its text or is not.
pub(super) fn f1(text: &str, label: &Value) -> f32 {
    let text = answer(text);
    let found = words(text);
    let worth = |label: &String| match words(label) {
        none if none.is_empty() => f32::from(u8::from(is_text(text, label))),
        words => f1_of(&found, &words),
    };
    accepted(label).iter().map(worth).fold(0.0, f32::max)
}

/// The same text, and not nothing, but for case and white space around it.
fn is_text(text: &str, label: &str) -> bool {
    let label = label.trim();
    !label.is_empty() && text.trim().to_lowercase() == label.to_lowercase()
}

fn f1_of(found: &HashMap<String, usize>, label: &HashMap<String, usize>) -> f32 {
    let size = |words: &HashMap<String, usize>| words.values().sum::<usize>();
    let common: usize = found
        .iter()
        .map(|(word, count)| (*count).min(label.get(word).copied().unwrap_or(0)))
        .sum();
    if common == 0 {
        return 0.0;
    }
    2.0 * common as f32 / (size(found) + size(label)) as f32
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;
    use serde_json::json;

    #[derive(Deserialize)]
    struct Case {
        label: String,
        answer: String,
        f1: f32,
    }

    /// `cases/f1.py` made them with jieba itself.
    #[test]
    fn f1_is_that_of_jieba() {
        let cases: Vec<Case> = include_str!("cases/f1.jsonl")
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert!(cases.len() >= 30);
        for case in cases {
            let ours = f1(&case.answer, &json!(case.label));
            assert!(
                (ours - case.f1).abs() < 1e-5,
                "{} and {}: {ours} for {}",
                case.label,
                case.answer,
                case.f1
            );
        }
    }

    #[test]
    fn the_best_of_several_labels_counts() {
        assert_eq!(f1("the blue whale", &json!(["a shark", "the blue whale"])), 1.0);
        assert!(matches(
            "<answer>The Blue Whale!</answer>",
            &json!(["shark", "blue whale"])
        ));
        assert!(!matches("whale", &json!("blue whale")));
        assert!(!matches("", &json!("")));
    }

    /// Labels of which SQuAD's normal form leaves nothing can be reached by those who say them, and by nobody else.
    #[test]
    fn labels_without_words_are_compared_as_they_stand() {
        for (label, right, wrong) in [
            (json!("A"), ["A", "a.", "\\boxed{A}"], ["B", "the A", ""]),
            (
                json!(["the"]),
                ["The", "the!", "<answer>the</answer>"],
                ["a", "then", "!!!"],
            ),
            (json!("!!!"), ["!!!", " !!! ", "\\boxed{!!!}"], ["!!", "", "A"]),
            (json!(["", "+"]), ["+", "\n+", "<answer>+</answer>"], ["-", "", "plus"]),
        ] {
            assert!(is_label(&label), "{label}");
            for text in right {
                assert!(matches(text, &label), "{text} is {label}");
            }
            for text in wrong {
                assert!(!matches(text, &label), "{text} is not {label}");
            }
        }
        for (text, label, worth) in [
            ("!!!", json!("!!!"), 1.0),
            ("\\boxed{ - }", json!("-"), 1.0),
            ("!!", json!("!!!"), 0.0),
            ("A", json!("A"), 1.0),
            ("", json!(""), 0.0),
            ("", json!(["", "x"]), 0.0),
            ("x", json!(["!!!", "x y"]), 2.0 / 3.0),
        ] {
            assert!((f1(text, &label) - worth).abs() < 1e-6, "{text}: {label}");
        }
        for label in [json!(""), json!(" \n"), json!(["", " "]), json!([]), json!(null)] {
            assert!(!is_label(&label), "{label}");
        }
    }
}
