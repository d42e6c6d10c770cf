//! Finds corrections of an answer that was given before: `Wait, no. It is 20`, `Correction: 20`.

use std::ops::Range;

use crate::grade::normal::minus;

/// Words that take back what stands before them.
const TAKING_BACK: [&str; 16] = [
    "no",
    "actually",
    "wait",
    "correction",
    "oops",
    "sorry",
    "scratch that",
    "hold on",
    "mistake",
    "error",
    "misread",
    "wrong",
    "incorrect",
    "not right",
    "not correct",
    "isn't right",
];
/// Words between a retraction and the new answer.
const LINKS: [&str; 8] = [
    "it is ",
    "it's ",
    "it’s ",
    "that is ",
    "that's ",
    "it should be ",
    "that should be ",
    "it must be ",
];
/// Retractions that the new answer follows at once.
const DIRECT: [&str; 7] = [
    "no, ",
    "no wait, ",
    "actually, ",
    "correction: ",
    "i mean ",
    "i meant ",
    "make that ",
];
/// Most times that each is looked at, from the end.
const MOST: usize = 64;
/// Most words of a sentence that is a new answer and nothing else.
const MOST_WORDS: usize = 3;

/// Returns the places of the corrections in a text in lower case. Each ends where the new answer
/// begins.
pub(super) fn places(lower: &str) -> Vec<Range<usize>> {
    let last = |words: &'static str| lower.rmatch_indices(words).take(MOST);
    let linked = LINKS.iter().flat_map(|words| last(words)).filter(|(at, _)| {
        let before = lower[..*at].trim_end_matches(is_between);
        before.len() < *at && TAKING_BACK.iter().any(|word| ends_with_word(before, word))
    });
    let direct = DIRECT.iter().flat_map(|words| last(words)).filter(|(at, _)| {
        let before = lower[..*at].trim_end_matches([' ', '*', '_']);
        before.is_empty() || before.ends_with(is_between)
    });
    let places = linked.chain(direct).map(|(at, words)| at..at + words.len());
    places.filter(|place| is_answer(&lower[place.end..])).collect()
}

/// Returns true for a sign that ends a clause.
fn is_between(c: char) -> bool {
    c.is_whitespace() || ".,!?;:—–…*_(".contains(c)
}

fn ends_with_word(text: &str, word: &str) -> bool {
    text.strip_suffix(word)
        .is_some_and(|rest| !rest.ends_with(|c: char| c.is_alphanumeric() || c == '\''))
}

/// Returns true if a sentence is a value or a letter with at most a unit.
fn is_answer(behind: &str) -> bool {
    let line = behind.lines().next().unwrap_or_default();
    let sentence = line.split(". ").next().unwrap_or(line);
    let begins = |c: char| c.is_ascii_digit() || "$\\(*€£₹".contains(c) || minus::is_sign(c);
    let letter = |word: &str| word.trim_matches(|c: char| !c.is_alphanumeric()).chars().count() == 1;
    let mut words = sentence.split_whitespace();
    let first = words.next().unwrap_or_default();
    let value = first.starts_with(begins) && sentence.contains(|c: char| c.is_alphanumeric());
    (value || letter(first)) && words.nth(MOST_WORDS - 1).is_none()
}

#[cfg(test)]
mod tests {
    use super::places;

    #[test]
    fn a_correction_is_a_short_sentence_after_a_retraction() {
        for (text, answer) in [
            ("18. actually, no, it's 20.", Some("20.")),
            ("18. wait, no. it is $20$.", Some("$20$.")),
            ("18. correction: 20", Some("20")),
            ("18. no, 20.", Some("20.")),
            ("b. wait, that's wrong. it should be d.", Some("d.")),
            ("i made a mistake. it is 20 dollars.", Some("20 dollars.")),
            ("18. actually, it is 3 more than 15.", None),
            ("could it be 20? no, 20 is too large.", None),
            ("there is no, 5", None),
            ("it is 20", None),
            ("no, it is even", None),
            ("the piano, 5", None),
        ] {
            let found = places(text).pop().map(|place| &text[place.end..]);
            assert_eq!(found, answer, "{text}");
        }
    }
}
