//! Words in common: exact match after normalisation and F1 over a bag of words, as question answering is scored (Rajpurkar et
//! al., "SQuAD", 2016), with Chinese cut into words by jieba.

use std::collections::HashMap;
use std::sync::OnceLock;

use jieba_rs::Jieba;
use serde_json::Value;

use super::label_text;

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
        .or_else(|| super::boxed::last(text))
        .unwrap_or(text)
        .trim()
}

/// Small letters, no punctuation, no articles, single spaces.
fn normal(text: &str) -> String {
    let spaced: String = text
        .to_lowercase()
        .chars()
        .filter(|c| c.is_alphanumeric() || c.is_whitespace())
        .collect();
    let words = spaced
        .split_whitespace()
        .filter(|word| !["a", "an", "the"].contains(word));
    words.collect::<Vec<_>>().join(" ")
}

/// Whether the answer is one of the labels after normalisation.
pub(super) fn matches(text: &str, label: &Value) -> bool {
    let found = normal(answer(text));
    !found.is_empty() && accepted(label).iter().any(|label| normal(label) == found)
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
/// From 0 to 1.
pub(super) fn f1(text: &str, label: &Value) -> f32 {
    let found = words(answer(text));
    accepted(label)
        .iter()
        .map(|label| f1_of(&found, &words(label)))
        .fold(0.0, f32::max)
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
}
