//! Reads sentences that choose a letter without naming an answer: `C is correct`, `I choose C`.

use super::labelled::{is_behind_its_value, is_labelled, is_right_in_chinese};
use super::letter::{LETTERS, is_one_of_several};
use super::supposed::{does_best, is_conditional};
use crate::grade::normal::wide::is_han;

/// How much of a text around a letter is read, in bytes.
pub(super) const NEAR: usize = 48;

/// Most letters that are looked at, from the end.
const MOST: usize = 256;

const CHOOSING: [&str; 27] = [
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
    "i'd say",
    "left with",
    "it must be",
    "it has to be",
    "no, it is",
    "no, it's",
    "it should be",
    "it would be",
    "that would be",
    "i think",
    "i guess",
    "i'd guess",
    "best guess is",
    "confident that it's",
    "i'll say",
    "the key is",
];
/// Verbs that also report steps on the way: a letter that stands alone comes first.
const REMAINING: [&str; 16] = [
    "would say",
    "leaves",
    "leaves only",
    "leaves us with",
    "leaving",
    "leaving us with",
    "matches",
    "corresponds to",
    "which is",
    "this is",
    "this means",
    "suggests",
    "points to",
    "leads to",
    "leads us to",
    "consistent with",
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
const VERBS: [&str; 9] = [
    "is ",
    "was ",
    "must be ",
    "would be ",
    "should be ",
    "has to be ",
    "seems ",
    "appears ",
    "looks ",
];
const ADVERBS: [&str; 9] = [
    "to be ",
    "the ",
    "clearly ",
    "therefore ",
    "indeed ",
    "thus ",
    "definitely ",
    "our ",
    "my ",
];
const RIGHT: [&str; 13] = [
    "correct",
    "right",
    "best answer",
    "best choice",
    "best option",
    "answer",
    "most accurate",
    "most appropriate",
    "only one that",
    "only option",
    "only choice",
    "only correct",
    "only answer",
];
/// Words behind `the only one that` with which a sentence chooses nothing.
const NEGATIVE: [&str; 9] = [
    "not",
    "n't",
    "n’t",
    "false",
    "incorrect",
    "wrong",
    "except",
    "least",
    "fails",
];
/// Words before a letter that report what others think.
const REPORTING: [&str; 8] = [
    "might think",
    "may think",
    "could think",
    "might think that",
    "may think that",
    "some say",
    "tempting to think",
    "tempting to think that",
];
/// Words that make one name of themselves and the letter.
const NAMES: [&str; 5] = ["vitamin", "vitamins", "hepatitis", "influenza", "type"];
/// Verbs behind `only` and a letter.
const FITTING: [&str; 8] = [
    "is true",
    "is correct",
    "is right",
    "fits",
    "works",
    "satisfies",
    "matches",
    "remains",
];
/// Words for choices at the beginning of a sentence that ends with `is B`.
const CHOICES: [&str; 6] = ["option", "choice", "statement", "answer", "alternative", "one"];
/// Sentences that consist of such words and a letter conclude with it.
const CONCLUDING: [&str; 21] = [
    "i'd",
    "i think it's",
    "i think it is",
    "i believe it's",
    "i believe it is",
    "so",
    "therefore",
    "thus",
    "hence",
    "finally",
    "so it's",
    "thus, it's",
    "thus it's",
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
    last_by(
        text,
        &[
            is_right,
            is_choosing,
            is_concluding,
            is_only,
            is_made,
            is_named,
            is_contrasted,
            is_labelled,
            is_behind_its_value,
            is_right_in_chinese,
        ],
    )
}

/// Returns the letter of the last sentence by which one remains.
pub(super) fn last_remaining(text: &str) -> Option<char> {
    last_by(text, &[is_remaining])
}

/// Returns true if a way to choose fits what stands before a letter and after it.
type Way = fn(&str, &str) -> bool;

/// Returns the last letter that a sentence chooses in one of these ways.
fn last_by(text: &str, ways: &[Way]) -> Option<char> {
    let found = text.char_indices().rev().filter(|(_, c)| LETTERS.contains(c));
    let alone = found.filter(|(at, c)| {
        let before = text[..*at].chars().next_back();
        let after = text[at + c.len_utf8()..].chars().next();
        let part = |c: Option<char>| c.is_some_and(|c| (c.is_alphanumeric() && !is_han(c)) || c == '_' || c == '^');
        !part(before) && !part(after)
    });
    alone.take(MOST).find_map(|(at, letter)| {
        let start = text.floor_char_boundary(at.saturating_sub(NEAR));
        let end = text.floor_char_boundary((at + 1 + NEAR).min(text.len()));
        let (before, after) = (text[start..at].to_lowercase(), text[at + 1..end].to_lowercase());
        if is_one_of_several(&text[at + 1..]) {
            return None;
        }
        let chosen = ways.iter().any(|way| way(&before, &after));
        chosen.then_some(letter)
    })
}

/// Removes the signs set around a letter.
pub(super) fn unset(after: &str) -> &str {
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
    let after = without_brackets(unset(after).trim_start());
    let begins = named(before).trim_end();
    let begins = begins.is_empty() || begins.ends_with(['.', '\n', ',']);
    if begins && (does_best(after) || after.strip_prefix("it is").is_some_and(ends_sentence)) {
        return true;
    }
    let Some(rest) = VERBS.iter().find_map(|verb| after.strip_prefix(verb)) else {
        return false;
    };
    let mut rest = rest;
    while let Some(shorter) = ADVERBS.iter().find_map(|adverb| rest.strip_prefix(adverb)) {
        rest = shorter;
    }
    let right = RIGHT.iter().any(|word| rest.starts_with(word)) && !is_conditional(after);
    let only = !rest.starts_with("only") || is_positive(sentence(rest));
    let before = named(before);
    let reported = REPORTING.iter().any(|words| before.ends_with(words));
    let last = last_word(before);
    right && only && !reported && !CONDITIONS.contains(&last) && !NAMES.contains(&last)
}

/// Removes words in brackets behind a letter: `C (whale) is correct`.
fn without_brackets(after: &str) -> &str {
    let inside = after.strip_prefix('(').and_then(|inside| inside.split_once(')'));
    inside.map_or(after, |(_, rest)| rest.trim_start())
}

/// Returns the text up to the end of its sentence.
pub(super) fn sentence(text: &str) -> &str {
    text.split(['.', '\n', '!', '?', ';']).next().unwrap_or(text)
}

pub(super) fn is_positive(words: &str) -> bool {
    !words
        .split_whitespace()
        .any(|word| NEGATIVE.iter().any(|negative| word.ends_with(negative)))
}

/// `Only statement B is true.`, `only (B) fits`
fn is_only(before: &str, after: &str) -> bool {
    let mut rest = named(before);
    rest = rest.strip_suffix("statement").unwrap_or(rest).trim_end();
    let after = without_brackets(unset(after).trim_start());
    last_word(rest) == "only" && FITTING.iter().any(|fits| after.starts_with(fits)) && is_positive(sentence(after))
}

/// `which makes B the correct answer`
fn is_made(before: &str, after: &str) -> bool {
    let before = named(before);
    let making = ["makes", "making"].contains(&last_word(before)) && is_positive(before);
    let after = without_brackets(unset(after).trim_start());
    let rest = after.strip_prefix("the ").unwrap_or_default();
    making
        && ["correct", "right", "best", "only"]
            .iter()
            .any(|word| rest.starts_with(word))
        && is_positive(sentence(rest))
}

/// `The only option that fits is B.`
fn is_named(before: &str, after: &str) -> bool {
    let start = before.rsplit(['.', '\n', '!', '?', ':', ';']).next().unwrap_or(before);
    let words = named(start).trim();
    let begins = [
        "the ",
        "so the ",
        "thus the ",
        "hence the ",
        "therefore the ",
        "so, the ",
        "thus, the ",
        "therefore, the ",
    ];
    let mentions = words.split(' ').any(|word| CHOICES.contains(&word));
    let whole = start.len() < before.len() || before.len() < NEAR;
    whole
        && begins.iter().any(|begin| words.starts_with(begin))
        && words.ends_with(" is")
        && mentions
        && is_positive(words)
        && (ends_sentence(after) || after.starts_with(") "))
}

/// `I choose C.`, `I'd go with option (C) because ..`.
fn is_choosing(before: &str, after: &str) -> bool {
    is_chosen_by(&CHOOSING, before, after)
}

/// `That leaves C.`, `This matches option C.`
fn is_remaining(before: &str, after: &str) -> bool {
    is_chosen_by(&REMAINING, before, after)
}

fn is_chosen_by(verbs: &[&str], before: &str, after: &str) -> bool {
    let before = named(before);
    let Some(subject) = verbs.iter().find_map(|verb| before.strip_suffix(verb)) else {
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
    let arrow = before.trim_end_matches(['(', '*', ' ']).ends_with(['→', '⇒']);
    let clause = words
        .rsplit_once(", ")
        .is_some_and(|(_, last)| ["so", "thus", "hence"].contains(&last));
    (arrow || clause || CONCLUDING.contains(&words)) && ends_sentence(after)
}

/// `not B but C`, `not B, it is C`
fn is_contrasted(before: &str, after: &str) -> bool {
    let links = ["but rather", "but", "it is", "it's"];
    let before = named(before);
    let other = links.iter().find_map(|link| before.strip_suffix(link));
    let mut words = other
        .unwrap_or_default()
        .rsplit(|c: char| !(c.is_alphabetic() || ['\'', '’'].contains(&c)))
        .filter(|word| !word.is_empty());
    let letter = words.next().is_some_and(|word| word.chars().count() == 1);
    let denial = words.find(|word| !NAMING.contains(word));
    let denied = denial.is_some_and(|word| word == "not" || word.ends_with("n't") || word.ends_with("n’t"));
    letter && denied && ends_sentence(after)
}

fn ends_sentence(after: &str) -> bool {
    let rest = unset(after);
    rest.trim_start_matches(' ').is_empty()
        || rest.starts_with(['.', '!', '\n', ',', ';'])
        || rest.trim_start().starts_with("\n")
}
