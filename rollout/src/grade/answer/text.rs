//! Parts of texts and kinds of words that the rules about answers share.

use crate::grade::normal::names::{PLAIN, is_mathematics};
use crate::grade::normal::scale::is_scale;

/// Longest part of a text that a grader reads, in bytes. Graders are linear, so this bounds their
/// time.
pub(in crate::grade) const LONGEST: usize = 1 << 16;

/// Longest answer that is compared, in bytes.
pub(in crate::grade) const LONGEST_ANSWER: usize = 512;

/// Words that take an answer back, add to it, or change it.
pub(super) const HEDGES: [&str; 38] = [
    "or",
    "if",
    "when",
    "unless",
    "otherwise",
    "wrong",
    "incorrect",
    "not",
    "never",
    "no",
    "maybe",
    "perhaps",
    "possibly",
    "mod",
    "modulo",
    "base",
    "also",
    "however",
    "but",
    "either",
    "neither",
    "nor",
    "isn't",
    "false",
    "instead",
    "rather",
    "answer",
    "result",
    "excluding",
    "except",
    "another",
    "more",
    "hence",
    "thus",
    "so",
    "then",
    "therefore",
    "well",
];

/// Returns the first bytes of a text, at most `length`, up to the end of a character.
pub(in crate::grade) fn head(text: &str, length: usize) -> &str {
    &text[..text.floor_char_boundary(length)]
}

/// Returns the last bytes of a text, at most `length`, from the beginning of a character.
pub(in crate::grade) fn tail(text: &str, length: usize) -> &str {
    let mut start = text.len().saturating_sub(length);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    &text[start..]
}

/// Removes brackets, quotes, punctuation and marks of bold type.
pub(super) fn without_marks(word: &str) -> &str {
    word.trim_matches([
        '(', ')', '"', '\'', '“', '”', '*', '_', ',', '.', ';', ':', '!', '?', '…', '—', '–', '-',
    ])
}

/// Returns true for two or more letters that are not the name of a function.
pub(super) fn is_word(word: &str) -> bool {
    let letters = word.chars().count() >= 2 && word.chars().all(|c| c.is_alphabetic() || c == '\'' || c == '’');
    letters && !PLAIN.contains(&word)
}

/// Returns true for a word, and false for a product of variables, `sqrt`, `sinx` or `million`.
pub(super) fn is_prose(word: &str) -> bool {
    word.len() >= 4 && !is_mathematics(word) && !is_scale(word)
}

/// Returns true if no formula, bracket or group is open.
pub(super) fn is_outside(before: &str) -> bool {
    // An interval is open on one side: `$[0,1)$`.
    let outside = match before.rsplit_once('$') {
        Some((inside, rest)) if before.matches('$').count() == 2 => {
            let first = inside.split('$').next().unwrap_or_default();
            format!("{first}{rest}")
        }
        _ => before.to_owned(),
    };
    let bracket = |sign: char| outside.matches(sign).count();
    let count = |sign: char| before.matches(sign).count();
    let dollars = count('$') - before.matches("\\$").count();
    (dollars.is_multiple_of(2) || dollars == 1) && count('{') == count('}') && bracket('(') == bracket(')')
}
