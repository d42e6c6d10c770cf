//! Reads denials of the last value of a text: `It isn't 5`, `It is 3, not 5`.

use super::conditional::{ASKING, is_confirmed};
use super::text::tail;
use super::{announced, correcting, last, tidy};
use crate::grade::normal::wide::is_han;

/// Words and signs that deny the value after them.
const DENIALS: [&str; 36] = [
    "instead of",
    "than",
    "not",
    "never",
    "cannot",
    "isnt",
    "isn't",
    "isn’t",
    "aint",
    "ain't",
    "ain’t",
    "wasn't",
    "wasn’t",
    "aren't",
    "aren’t",
    "can't",
    "can’t",
    "couldn't",
    "couldn’t",
    "won't",
    "won’t",
    "doesn't",
    "doesn’t",
    "≠",
    "\\neq",
    "\\ne",
    "而不是",
    "不是",
    "不为",
    "不等于",
    "并非",
    "und nicht",
    "nicht",
    "et non",
    "а не",
    "не",
];
/// Denials that stand between two values.
const CONTRASTS: [&str; 5] = ["instead of", "und nicht", "et non", "а не", "而不是"];

/// Words between a denial and its value.
const BETWEEN: [&str; 9] = [
    "equal to",
    "equals",
    "equal",
    "be",
    "exactly",
    "really",
    "actually",
    "the answer",
    "the number",
];

/// Bytes before a value in which its denial is looked for.
const REACH: usize = 64;

/// Returns the part of a text in which the last value may be the answer: the whole text, or what
/// precedes a contrast (`It is 3` of `It is 3, not 5`). Returns `None` if the text denies its last
/// value.
pub(crate) fn undenied(text: &str) -> Option<&str> {
    let starts = [last::value(text), last::number(text)];
    let mut starts = starts
        .into_iter()
        .flatten()
        .map(|found| found.as_ptr().addr() - text.as_ptr().addr());
    let unsaid = |start| is_asked(text, start) || is_supposed_answer(&text[..start]);
    if starts.clone().next().is_some_and(unsaid) {
        return None;
    }
    let ends = [last::value(text), last::number(text)].into_iter().flatten();
    let mut behind = ends.map(|found| &text[found.as_ptr().addr() - text.as_ptr().addr() + found.len()..]);
    if behind.any(tidy::is_crossed_out) {
        return None;
    }
    match starts.find_map(|start| denial(&text[..start])) {
        None => Some(text),
        // Only one of several contrasts is read, so this is one pass.
        Some(before) => {
            if let Some(other) = before.trim_end().strip_suffix(" rather") {
                return Some(other);
            }
            let word = text[before.len()..].trim_start().to_lowercase();
            if CONTRASTS.iter().any(|contrast| word.starts_with(contrast)) {
                return Some(before.trim_end_matches([' ', ',', '，']));
            }
            let clause = before
                .rsplit_once(", ")
                .filter(|(_, clause)| clause.starts_with("which "));
            clause.map_or_else(
                || before.trim_end().strip_suffix([',', '，', '(']),
                |(before, _)| Some(before),
            )
        }
    }
}

/// Returns true if the value at `start` stands in a question: `Is the answer 12?`
fn is_asked(text: &str, start: usize) -> bool {
    let (before, behind) = text.split_at(start);
    let sentence = before.rsplit(['.', '?', '!', '\n']).next().unwrap_or(before);
    let first = sentence.split_whitespace().next().unwrap_or_default().to_lowercase();
    let end = behind.find(['?', '\n', '!']);
    let asks = |end: usize| {
        behind[end..]
            .strip_prefix('?')
            .is_some_and(|reply| !is_confirmed(reply))
    };
    ASKING.contains(&first.as_str()) && end.is_some_and(asks)
}

/// Returns true if a text ends within a sentence that supposes an answer: `If the answer is`.
fn is_supposed_answer(before: &str) -> bool {
    let sentence = before.rsplit(['.', '?', '!', '\n', '。']).next().unwrap_or(before);
    let sentence = sentence.trim_start().to_lowercase();
    let supposes = ["if ", "suppose ", "如果", "假设", "假如", "若"]
        .iter()
        .any(|word| sentence.starts_with(word));
    supposes
        && ["answer is", "answer was", "答案是", "答案为"]
            .iter()
            .any(|words| sentence.contains(words))
}

/// Returns true if a text ends with words that reject the value after them: `not`, `rather than`.
/// `more than` compares.
pub(super) fn is_rejected(text: &str) -> bool {
    rejection(text).is_some()
}

/// Returns true if the rejected value stands against another answer: `18, not`, `18 rather than`.
pub(super) fn is_contrast(text: &str) -> bool {
    rejection(text).is_some_and(|(before, word)| {
        let before = before.trim_end();
        word != "not" || before.ends_with([',', '—', '–']) || before.ends_with(" and") || before.ends_with("answer is")
    })
}

/// Returns the text before the rejection at the end of a text, and its word.
fn rejection(text: &str) -> Option<(&str, &'static str)> {
    let text = without_signs(tail(text, REACH));
    let words = ["not", "rather than", "instead of"].into_iter();
    words.filter_map(|word| Some((without_word(text, word)?, word))).next()
}

/// Returns true if a denial stands before a value, at the end of `text`.
pub(crate) fn is_denied(text: &str) -> bool {
    denial(text).is_some()
}

/// Returns the text before a denial with which `text` ends.
fn denial(text: &str) -> Option<&str> {
    let near = tail(text, REACH).to_lowercase();
    // Lower case may have another length outside ASCII; then there is no denial to find.
    let far = text.len().checked_sub(near.len())?;
    let mut near = without_signs(&near);
    while let Some(rest) = BETWEEN.iter().find_map(|word| without_word(near, word)) {
        near = without_signs(rest);
    }
    let rest = DENIALS.iter().find_map(|word| without_word(near, word))?;
    text.get(..far + rest.len())
}

/// Removes white space, bold type and the opening signs of a formula or an amount from the end.
fn without_signs(text: &str) -> &str {
    text.trim_end_matches(|c: char| c.is_whitespace() || "$*_`([{:\"€£₹".contains(c))
        .trim_end_matches("\\")
        .trim_end()
}

/// Removes a whole word from the end.
fn without_word<'a>(text: &'a str, word: &str) -> Option<&'a str> {
    let rest = text.strip_suffix(word)?;
    let is_whole =
        !word.starts_with(|c: char| c.is_alphabetic() && !is_han(c)) || !rest.ends_with(char::is_alphanumeric);
    is_whole.then_some(rest)
}

/// Returns true if a text takes back the mark before it, and then announces another answer.
pub(super) fn is_taken_back(behind: &str) -> bool {
    correcting::begins_with_verdict(behind) && announced::lines(behind).into_iter().any(announced::reads)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_denied_last_value_is_no_answer() {
        for text in [
            "It isn't 5.",
            "The answer isn’t $5$",
            "So x is not equal to **5**",
            "It cannot be \\(5\\).",
            "x \\neq 5",
            "It is NOT $5",
            "It never equals \\frac{1}{2}",
            "It is more than 5.",
            "Is the answer 5?",
            "Could it be 5? Let us check.",
            "It is 5 ❌",
            "So it is **5** ✗.",
        ] {
            assert_eq!(undenied(text), None, "{text}");
        }
    }

    #[test]
    fn a_contrast_leaves_the_value_before_it() {
        assert_eq!(undenied("It is 3, not 5."), Some("It is 3"));
        assert_eq!(undenied("It is 3, not $5$."), Some("It is 3"));
        assert_eq!(undenied("It is 3 (not 5)."), Some("It is 3 "));
        assert_eq!(undenied("It is 3 rather than 5."), Some("It is 3"));
        assert_eq!(undenied("It is 3 instead of 5."), Some("It is 3"));
        assert_eq!(undenied("Es sind 3 und nicht 5."), Some("Es sind 3"));
        assert_eq!(undenied("Это 3, а не 5."), Some("Это 3"));
        assert_eq!(undenied("共 3 元，而不是 5 元。"), Some("共 3 元"));
        assert_eq!(undenied("It is 7, which is more than 6."), Some("It is 7"));
    }

    #[test]
    fn other_texts_stay_whole() {
        for text in [
            "It is 5.",
            "It is not 4. It is 5.",
            "This is not hard: 5",
            "Is it even? It is 5.",
            "Is the answer 5? Yes.",
            "He made a knot 5",
            "not",
            "",
            "İİİ 5",
        ] {
            assert_eq!(undenied(text), Some(text), "{text}");
        }
    }
}
