//! The grader `f1`: F1 over a bag of words, from 0 to 1, for the best of the labels.
//!
//! Question answering is scored like this (Rajpurkar et al., "SQuAD", 2016). jieba cuts Chinese
//! into words.

use std::collections::HashMap;
use std::sync::OnceLock;

use jieba_rs::Jieba;
use serde_json::Value;

use super::{answer, label};

/// Longest answer that is compared word by word, in bytes.
const LONGEST: usize = 8192;

/// Counts the words of a text, in lower case. jieba cuts Chinese text; other text is cut at every
/// character that is neither a letter nor a digit.
fn words(text: &str) -> HashMap<String, usize> {
    let text = answer::tail(text, LONGEST).to_lowercase();
    let mut counts = HashMap::new();
    let mut count = |word: &str| {
        if !word.is_empty() {
            *counts.entry(word.to_owned()).or_insert(0) += 1;
        }
    };
    if text.is_ascii() {
        text.split(|c: char| !c.is_alphanumeric()).for_each(&mut count);
    } else if text.contains(is_cut_by_jieba) {
        for word in jieba().cut(&text, true) {
            word.word.split(|c: char| !c.is_alphanumeric()).for_each(&mut count);
        }
    } else {
        text.split(|c: char| !c.is_ascii_alphanumeric()).for_each(&mut count);
        let mut buffer = [0; 4];
        let others = text.chars().filter(|c| !c.is_ascii() && c.is_alphanumeric());
        others.for_each(|c| count(c.encode_utf8(&mut buffer)));
    }
    counts
}

/// Returns the dictionary of jieba. Opening it takes a tenth of a second, so only Chinese text
/// does.
fn jieba() -> &'static Jieba {
    static JIEBA: OnceLock<Jieba> = OnceLock::new();
    JIEBA.get_or_init(Jieba::new)
}

/// Returns true for a sign of Chinese writing, which jieba joins to words. Other characters outside
/// ASCII are words of their own for it.
fn is_cut_by_jieba(c: char) -> bool {
    ('\u{3400}'..='\u{9fff}').contains(&c) || ('\u{f900}'..='\u{faff}').contains(&c) || c >= '\u{20000}'
}

/// Returns the harmonic mean of precision and recall of words, for the best of the labels, from 0
/// to 1. Each word counts as often as it occurs. A label without words is compared as text: 0 or 1.
pub(super) fn grade(text: &str, label: &Value) -> f32 {
    let text = &*answer::marked(text);
    if label::spells_number(text, label) {
        return 1.0;
    }
    let found = words(text);
    let worth = |label: &String| match words(label) {
        none if none.is_empty() => f32::from(u8::from(is_text(text, label))),
        words => f1_of(&found, &words),
    };
    label::listed(label)
        .iter()
        .map(|label| worth(&answer::marked(label).into_owned()))
        .fold(0.0, f32::max)
}

/// Returns true if both texts are the same and not empty, apart from case and white space around
/// them.
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

    /// `cases/f1.py` made the expected values with jieba itself.
    #[test]
    fn f1_is_that_of_jieba() {
        let cases: Vec<Case> = include_str!("cases/f1.jsonl")
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert!(cases.len() >= 30);
        for case in cases {
            let ours = grade(&case.answer, &json!(case.label));
            assert!(
                (ours - case.f1).abs() < 1e-5,
                "{} and {}: {ours} for {}",
                case.label,
                case.answer,
                case.f1
            );
        }
    }

    /// Texts without Chinese signs are cut as jieba cuts them, without its dictionary.
    #[test]
    fn other_texts_are_cut_as_jieba_cuts_them() {
        let of_jieba = |text: &str| {
            let mut counts = HashMap::new();
            for word in jieba().cut(&text.to_lowercase(), true) {
                for part in word
                    .word
                    .split(|c: char| !c.is_alphanumeric())
                    .filter(|part| !part.is_empty())
                {
                    *counts.entry(part.to_owned()).or_insert(0) += 1;
                }
            }
            counts
        };
        for text in [
            "The blue whale",
            "AT&T's c++ and C#",
            "1,234.50 USD; 50% of 3rd-party code_names",
            "na\u{ef}ve caf\u{e9} M\u{fc}ller",
            "\u{441}\u{43b}\u{43e}\u{432}\u{43e} 5",
            "\u{30ab}\u{30bf}\u{30ab}\u{30ca}",
            "x\u{b2} + y\u{b2} = z\u{b2}",
            "a1b2 2x 10kg",
            "",
        ] {
            assert_eq!(words(text), of_jieba(text), "{text}");
        }
    }

    #[test]
    fn a_text_without_chinese_signs_opens_no_dictionary() {
        for text in ["the blue whale", "caf\u{e9}", ""] {
            assert!(!text.contains(is_cut_by_jieba), "{text}");
        }
        assert!("\u{84dd}\u{9cb8}".contains(is_cut_by_jieba));
    }

    #[test]
    fn the_best_of_several_labels_counts() {
        assert_eq!(grade("the blue whale", &json!(["a shark", "the blue whale"])), 1.0);
    }

    #[test]
    fn labels_without_words_are_compared_as_texts() {
        for (text, label, worth) in [
            ("!!!", json!("!!!"), 1.0),
            ("\\boxed{ - }", json!("-"), 1.0),
            ("!!", json!("!!!"), 0.0),
            ("A", json!("A"), 1.0),
            ("", json!(""), 0.0),
            ("", json!(["", "x"]), 0.0),
            ("x", json!(["!!!", "x y"]), 2.0 / 3.0),
        ] {
            assert!((grade(text, &label) - worth).abs() < 1e-6, "{text}: {label}");
        }
    }
}
