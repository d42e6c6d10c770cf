//! Finds corrections of an answer that was given before: `Wait, no. It is 20`, `Correction: 20`,
//! and verdicts on it: `That is wrong.`

use std::ops::Range;

use super::last;
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
const DIRECT: [&str; 9] = [
    "no, ",
    "no wait, ",
    "actually, ",
    "correction: ",
    "corrected: ",
    "oops, ",
    "i mean ",
    "i meant ",
    "make that ",
];
/// Words before a verdict.
const FILLERS: [&str; 9] = ["wait", "no", "oh", "hmm", "oops", "sorry", "actually", "but", "however"];
/// Subjects of a verdict on the answer before it. A bare verb follows the answer itself.
const SUBJECTS: [&str; 8] = [
    "this answer",
    "that answer",
    "my answer",
    "this",
    "that",
    "it",
    "the above",
    "",
];
/// Verbs with what they say of a wrong answer.
const VERDICTS: [(&[&str], &[&str]); 2] = [
    (
        &["is", "was", "'s", "’s"],
        &[
            "wrong",
            "incorrect",
            "invalid",
            "a mistake",
            "an error",
            "too small",
            "too large",
            "not right",
            "not correct",
        ],
    ),
    (
        &[
            "is not",
            "isn't",
            "isn’t",
            "was not",
            "wasn't",
            "cannot be",
            "can't be",
            "can’t be",
        ],
        &["right", "correct", "the answer", "the correct answer", "valid"],
    ),
];
/// Beginnings of sentences that take back all that stands before them.
const CONFESSIONS: [&str; 12] = [
    "i made a mistake",
    "i made an error",
    "there is a mistake",
    "there is an error",
    "i misread",
    "i misunderstood",
    "i miscalculated",
    "i miscounted",
    "i forgot",
    "i overlooked",
    "my mistake",
    "correction",
];
/// Beginnings of sentences with a second thought.
const THOUGHTS: [&str; 9] = [
    "wait",
    "but wait",
    "hold on",
    "actually",
    "oops",
    "hmm",
    "let me recalculate",
    "let me redo",
    "let me correct",
];
/// Beginnings of a sentence with a result.
const CONCLUDING: [&str; 6] = ["so ", "so, ", "thus", "hence", "therefore", "it should be"];
/// Parts of words in a sentence that only checks an answer.
const CHECKING: [&str; 7] = ["work", "hold", "check", "verif", "confirm", "correct", "satisf"];
/// Signs that end a sentence.
const ENDS: [char; 4] = ['.', '!', '?', '\n'];
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

/// Returns true if a word of a text takes back what stands before it, or sets something against it.
pub(super) fn takes_back(text: &str) -> bool {
    let lower = text.to_lowercase();
    let mut words = lower.split(|c: char| !c.is_alphabetic());
    words.any(|word| TAKING_BACK.contains(&word) || ["but", "however", "not", "instead"].contains(&word))
}

/// Returns true if a text has a word that takes back what stands before it.
pub(super) fn retracts(lower: &str) -> bool {
    lower
        .split(|c: char| !c.is_alphabetic())
        .any(|word| TAKING_BACK.contains(&word))
}

/// Returns true if a short sentence that rejects an answer, or a second thought, stands right
/// behind it.
pub(super) fn begins_with_verdict(behind: &str) -> bool {
    const NEAR: usize = 96;
    let near = behind[..behind.floor_char_boundary(NEAR)].to_lowercase();
    let signs = |c: char| c.is_whitespace() || "$*_.,!?)]}\\".contains(c);
    let mut rest = near.trim_start_matches(signs);
    while let Some((word, behind)) = FILLERS.iter().find_map(|word| Some((word, rest.strip_prefix(word)?))) {
        let trimmed = behind.trim_start_matches(|c: char| c.is_whitespace() || ",.!:;…—–-".contains(c));
        if trimmed.len() == behind.len() {
            break;
        }
        if ["wait", "no", "oops", "actually"].contains(word) {
            return true;
        }
        rest = trimmed;
    }
    let ends = |rest: &str| rest.starts_with(['.', '!', ';', '\n']);
    SUBJECTS
        .iter()
        .filter_map(|subject| rest.strip_prefix(subject))
        .any(|rest| {
            let verbs = VERDICTS
                .iter()
                .flat_map(|(verbs, words)| verbs.iter().map(move |verb| (verb, words)));
            verbs
                .filter_map(|(verb, words)| Some((rest.trim_start().strip_prefix(verb)?.trim_start(), words)))
                .any(|(rest, words)| words.iter().filter_map(|word| rest.strip_prefix(word)).any(ends))
        })
}

/// Returns what stands behind the last sentence in which the author confesses an error. What was
/// marked before it does not count any more.
pub(in crate::grade) fn after_confession(text: &str) -> &str {
    let lower = text.to_ascii_lowercase();
    let places = CONFESSIONS.iter().filter_map(|words| {
        let found = lower.rmatch_indices(words).take(MOST);
        found.map(|(at, _)| at).find(|at| is_confession(&lower, *at))
    });
    places.max().map_or(text, |at| &text[at..])
}

/// Returns true if a confession at this place begins a sentence, and is no question.
fn is_confession(lower: &str, at: usize) -> bool {
    let mut before = lower[..at].trim_end_matches(|c: char| c.is_whitespace() || ",:;…—–-*(".contains(c));
    while let Some(rest) = FILLERS.iter().find_map(|word| before.strip_suffix(word)) {
        let trimmed = rest.trim_end_matches(|c: char| c == ' ' || ",:;…—–-*(".contains(c));
        if trimmed.ends_with(char::is_alphanumeric) && trimmed.len() == rest.len() {
            return false;
        }
        before = trimmed;
    }
    let begins = before.is_empty()
        || before
            .trim_end_matches(' ')
            .ends_with(['.', '!', '?', '\n', '$', '}', ']', ')', '*']);
    let noted = ["i forgot to mention", "i forgot to say", "i forgot to note"];
    if noted.iter().any(|words| lower[at..].starts_with(words)) {
        return false;
    }
    let line = lower[at..].find(ENDS).map_or("", |end| &lower[at + end..]);
    begins && !line.starts_with('?')
}

/// Returns the number with which a text ends behind a second thought about an answer, if the last
/// sentence concludes with it: `But wait, she also bakes. So 9 * 2 = 18.`
pub(super) fn second_thought(text: &str) -> Option<(usize, &str)> {
    let lower = text.to_ascii_lowercase();
    let begins = |at: &usize| {
        let before = lower[..*at].trim_end_matches([' ', '*', '(']);
        before.ends_with('\n') || (before.len() < *at && (before.ends_with(ENDS) || before.ends_with(['$', '}', ']'])))
    };
    let places = THOUGHTS.iter().filter_map(|words| {
        let mut found = lower.rmatch_indices(words).take(MOST).map(|(at, _)| at);
        found.find(begins)
    });
    let at = places.max()?;
    let rest = text[at..].trim_end().trim_end_matches(['.', '!', '*', '$']);
    let start = [". ", "! ", "\n"].iter().filter_map(|sign| rest.rfind(sign)).max();
    let last = rest[start.map_or(0, |start| start + 1)..].trim_start_matches([' ', '*']);
    let begun = last.to_ascii_lowercase();
    let concludes = CONCLUDING.iter().any(|words| begun.starts_with(words)) || last.contains('=');
    let checks = CHECKING.iter().any(|word| begun.contains(word));
    last::number(last)
        .filter(|_| concludes && !checks)
        .map(|number| (at, number))
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
    use super::{after_confession, begins_with_verdict, places, second_thought};

    #[test]
    fn a_verdict_is_a_short_sentence_behind_an_answer() {
        for text in [
            "$. Wait, she also bakes. The correct answer is 20.",
            " is wrong. The answer is C.",
            ". This answer is incorrect.",
            ". That's not right.",
            "\n\nWait, that was too large.",
            " cannot be right;",
        ] {
            assert!(begins_with_verdict(text), "{text}");
        }
        for text in [
            ". It is wrong to say so.",
            " is wrong only if x = 2.",
            ". This is not a mistake.",
            ". It is too small to be 20.",
            ". A wrong answer is 20.",
            ". Nothing is wrong.",
            "",
        ] {
            assert!(!begins_with_verdict(text), "{text}");
        }
    }

    #[test]
    fn a_confession_takes_back_what_stands_before_it() {
        for (text, kept) in [
            ("It is 26. I misread it. So 18.", "I misread it. So 18."),
            ("\\boxed{26}\n\nWait, I forgot 4.", "I forgot 4."),
            ("It is 26.\nCorrection: 18", "Correction: 18"),
            (
                "It is 26. If I forgot 4, it is 18.",
                "It is 26. If I forgot 4, it is 18.",
            ),
            ("Have I misread it? No, 26.", "Have I misread it? No, 26."),
            ("26. I forgot to mention the 2.", "26. I forgot to mention the 2."),
        ] {
            assert_eq!(after_confession(text), kept, "{text}");
        }
    }

    #[test]
    fn a_second_thought_ends_with_a_number() {
        for (text, number) in [
            ("It is 26. But wait, she bakes. So 9 * 2 = 18.", Some("18")),
            ("It is 26. Let me recalculate: 9 * 2 = 18.", Some("18")),
            ("It is 26.\n\nWait, 9 * 2 is 18. So it's $18.", Some("18")),
            ("It is 26. Wait, she bakes 4. She likes it.", None),
            ("It is 26. Wait, let me verify with x = 2. So it works for x = 2.", None),
            ("She will wait. So 9 * 2 = 18.", None),
        ] {
            assert_eq!(second_thought(text).map(|found| found.1), number, "{text}");
        }
    }

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
