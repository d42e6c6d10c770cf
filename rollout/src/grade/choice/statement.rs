//! Reads sentences that choose a letter without naming an answer: `C is correct`, `I choose C`.

use super::letter::LETTERS;

/// How much of a text around a letter is read, in bytes.
const NEAR: usize = 48;

/// Most letters that are looked at, from the end.
const MOST: usize = 256;

const CHOOSING: [&str; 11] = [
    "choose",
    "pick",
    "select",
    "go with",
    "going with",
    "opt for",
    "chose",
    "picked",
    "selected",
    "choosing",
    "picking",
];
const NEGATIONS: [&str; 8] = ["not", "n't", "n’t", "never", "cannot", "wouldn't", "no", "neither"];
/// Words between a verb and its letter.
const NAMING: [&str; 8] = [
    "option",
    "choice",
    "answer",
    "letter",
    "the",
    "answer choice",
    "statement:",
    "alternative",
];
/// Words that make a statement about a letter a condition, or one about something else.
const CONDITIONS: [&str; 14] = [
    "if",
    "whether",
    "when",
    "suppose",
    "assume",
    "not",
    "neither",
    "nor",
    "or",
    "and",
    "either",
    "statement",
    "assertion",
    "unless",
];
const VERBS: [&str; 8] = [
    "is ",
    "was ",
    "must be ",
    "would be ",
    "should be ",
    "has to be ",
    "seems ",
    "looks ",
];
const ADVERBS: [&str; 8] = [
    "the ",
    "clearly ",
    "therefore ",
    "indeed ",
    "thus ",
    "definitely ",
    "our ",
    "my ",
];
const RIGHT: [&str; 8] = [
    "correct",
    "right",
    "best answer",
    "best choice",
    "best option",
    "answer",
    "most accurate",
    "most appropriate",
];
/// Sentences that consist of such words and a letter conclude with it.
const CONCLUDING: [&str; 14] = [
    "so",
    "therefore",
    "thus",
    "hence",
    "finally",
    "so it's",
    "so it is",
    "it is",
    "it's",
    "that's",
    "that is",
    "i say",
    "so i say",
    "i think",
];

/// Returns the letter of the last sentence that chooses one.
pub(super) fn last(text: &str) -> Option<char> {
    let found = text.char_indices().rev().filter(|(_, c)| LETTERS.contains(c));
    let alone = found.filter(|(at, c)| {
        let before = text[..*at].chars().next_back();
        let after = text[at + c.len_utf8()..].chars().next();
        let part = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == '^');
        !part(before) && !part(after)
    });
    alone.take(MOST).find_map(|(at, letter)| {
        let start = text.floor_char_boundary(at.saturating_sub(NEAR));
        let end = text.floor_char_boundary((at + 1 + NEAR).min(text.len()));
        let (before, after) = (text[start..at].to_lowercase(), text[at + 1..end].to_lowercase());
        let chosen = is_right(&before, &after) || is_choosing(&before, &after) || is_concluding(&before, &after);
        chosen.then_some(letter)
    })
}

/// Removes the signs set around a letter.
fn unset(after: &str) -> &str {
    after.trim_start_matches([')', ']', '*', '_', '"', '\'', '$', '}', '”'])
}

/// Returns what stands before a letter without its signs and naming words.
fn named(before: &str) -> &str {
    let mut rest = before;
    loop {
        rest = rest.trim_end_matches(['(', '[', '*', '_', '"', '\'', '$', '{', ' ', '“', ':']);
        match NAMING.iter().find_map(|word| rest.strip_suffix(word)) {
            Some(shorter) => rest = shorter,
            None => return rest,
        }
    }
}

fn last_word(text: &str) -> &str {
    text.rsplit([' ', '\n', '.', ',']).next().unwrap_or(text)
}

/// `C is correct`, `option (C) is the right answer`.
fn is_right(before: &str, after: &str) -> bool {
    let Some(rest) = VERBS
        .iter()
        .find_map(|verb| unset(after).trim_start().strip_prefix(verb))
    else {
        return false;
    };
    let mut rest = rest;
    while let Some(shorter) = ADVERBS.iter().find_map(|adverb| rest.strip_prefix(adverb)) {
        rest = shorter;
    }
    let right = RIGHT.iter().any(|word| rest.starts_with(word));
    right && !CONDITIONS.contains(&last_word(named(before)))
}

/// `I choose C.`, `I'd go with option (C) because ..`.
fn is_choosing(before: &str, after: &str) -> bool {
    let before = named(before);
    let Some(subject) = CHOOSING.iter().find_map(|verb| before.strip_suffix(verb)) else {
        return false;
    };
    let subject = subject.trim_end();
    let negated = NEGATIONS.iter().any(|word| subject.ends_with(word));
    let reason = ["because", "since", "as "]
        .iter()
        .any(|word| unset(after).trim_start().starts_with(word));
    !negated && (ends_sentence(after) || reason)
}

/// `So, C.`
fn is_concluding(before: &str, after: &str) -> bool {
    let sentence = before.rsplit(['.', '\n', '!', '?', ':', ';']).next().unwrap_or(before);
    let words = named(sentence).trim().trim_end_matches(',').trim();
    CONCLUDING.contains(&words) && ends_sentence(after)
}

fn ends_sentence(after: &str) -> bool {
    let rest = unset(after);
    rest.trim_start_matches(' ').is_empty()
        || rest.starts_with(['.', '!', '\n', ',', ';'])
        || rest.trim_start().starts_with("\n")
}
