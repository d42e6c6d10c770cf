//! Decides whether the words before an announcement make it a condition, a question or the name of
//! another answer: `If the answer is 5`, `Is the answer 5?`, `The worst answer is`.

use std::ops::Range;

use super::text::{head, tail};
use super::{correcting, hashes};

/// Words that stand before a noun and say nothing about it.
const BEFORE: [&str; 26] = [
    "the",
    "correct",
    "right",
    "final",
    "best",
    "only",
    "true",
    "my",
    "our",
    "your",
    "a",
    "an",
    "any",
    "de",
    "la",
    "die",
    "richtige",
    "that",
    "bonne",
    "o",
    "numerical",
    "overall",
    "this",
    "simplified",
    "desired",
    "required",
];
/// Words before an announcement that make it a condition or a question.
const CONDITIONS: [&str; 30] = [
    "wrong",
    "incorrect",
    "mistaken",
    "if",
    "suppose",
    "assume",
    "assuming",
    "supposing",
    "whether",
    "unless",
    "when",
    "what",
    "wenn",
    "falls",
    "si",
    "se",
    "если",
    "once",
    "until",
    "guess",
    "say",
    "let",
    "intermediate",
    "initial",
    "previous",
    "earlier",
    "original",
    "student's",
    "worst",
    "tempting",
];
/// Words before a noun that name another answer than the best.
const OTHERS: [&str; 5] = [
    "least likely",
    "second best",
    "second-best",
    "next best",
    "next closest",
];
/// Beginnings of sentences that suppose something: `the answer would be 26` does not count there.
const SUPPOSING: [&str; 15] = [
    "if ",
    "without ",
    "had ",
    "were ",
    "otherwise",
    "unless ",
    "suppose ",
    "supposing ",
    "assume ",
    "assuming ",
    "imagine ",
    "in that case",
    "when ",
    "should ",
    "whenever ",
];
/// Beginnings of sentences that suppose something if their verb is `would`.
const COMPARING: [&str; 4] = ["with ", "for ", "in ", "under "];
/// Words before these.
const LEADING: [&str; 16] = [
    "and",
    "but",
    "also",
    "now",
    "so",
    "however",
    "note",
    "that",
    "even",
    "only",
    "again",
    "alternatively",
    "similarly",
    "likewise",
    "though",
    "bonus",
];
/// Bytes before an announcement in which a question or a condition may begin.
const LEAD: usize = 48;
/// Verbs that begin a question.
pub(super) const ASKING: [&str; 13] = [
    "is", "are", "was", "were", "isn't", "could", "can", "would", "should", "might", "does", "do", "did",
];
/// Words that cancel an announcement if they stand right before it. They mean: not, must not,
/// wrongly, a candidate, if.
pub(crate) const RETRACTING: [&str; 23] = [
    "不",
    "别",
    "勿",
    "没",
    "未",
    "误",
    "错",
    "候",
    "若",
    "不能",
    "不该",
    "不应",
    "不应该",
    "不要",
    "不可",
    "不会",
    "没有",
    "排除",
    "避免",
    "如果",
    "假设",
    "假如",
    "要是",
];
/// Most bytes between an answer and a supposition that are read.
const REACH: usize = 512;
/// Most bytes of a sentence before an announcement.
const NEAR: usize = 200;

/// Returns true if the words before an announcement ask for it: `Is the answer 5?`
pub(super) fn is_asked(before: &str) -> bool {
    let near = tail(before, LEAD);
    ASKING.contains(&word_before(&near.to_ascii_lowercase()))
}

/// Returns true if a text begins with the word that confirms what was asked before it.
pub(super) fn is_confirmed(reply: &str) -> bool {
    let reply = reply.trim_start_matches([' ', '\n', '*', '_']).to_lowercase();
    let rest = reply.strip_prefix("yes");
    let whole = rest.is_some_and(|rest| !rest.starts_with(char::is_alphanumeric));
    whole && !rest.is_some_and(|rest| rest.contains(|c: char| c.is_ascii_digit()) || rest.contains(" but "))
}

/// Returns true if the words before an announcement make it a condition: `if the answer is 5`.
pub(super) fn is_conditional(before: &str) -> bool {
    let near = tail(before, LEAD);
    if RETRACTING.iter().any(|word| near.ends_with(word)) {
        return true;
    }
    let name = near.trim_end_matches([' ', '*', '_']);
    CONDITIONS.contains(&word_before(near)) || OTHERS.iter().any(|words| name.ends_with(words))
}

/// Returns true if the sentence before an announcement supposes something: `If it rained, the`.
pub(super) fn is_supposed(before: &str) -> bool {
    supposition(before, false).is_some()
}

/// Removes announcements that only suppose something, where a mark names an answer before them:
/// `#### 18`, and then `If we had 5 eggs, the answer is 30`. Alone, such a sentence repeats the
/// question, and behind another announcement it may be the answer.
pub(in crate::grade) fn without_supposed(lower: &str, places: Vec<Range<usize>>) -> Vec<Range<usize>> {
    let mut kept: Vec<Range<usize>> = Vec::with_capacity(places.len());
    for place in places {
        let would = lower[place.clone()].contains("would");
        let start = supposition(&lower[..place.start], would);
        let start = start.or_else(|| is_condition_behind(&lower[place.end..]).then_some(place.start));
        let supposed = start.is_some_and(|start| {
            let end = answered(&lower[..start]);
            end.is_some_and(|end| !correcting::retracts(tail(&lower[end..start], REACH)))
        });
        if !supposed {
            kept.push(place);
        }
    }
    kept
}

/// Returns true if the sentence goes on with a condition: `30 if she sold everything`.
fn is_condition_behind(behind: &str) -> bool {
    let near = head(behind, NEAR);
    let sentence = near.split(['\n', '?', '!']).next().unwrap_or(near);
    let sentence = sentence.split(". ").next().unwrap_or(sentence);
    [" if ", " unless "].iter().any(|word| sentence.contains(word))
}

/// Returns the end of the last answer in a text that a mark names: `####`, a box, a tag.
fn answered(text: &str) -> Option<usize> {
    let line = hashes::lines(text).next();
    line.map(|line| line.as_ptr().addr() - text.as_ptr().addr() + line.len())
        .or_else(|| ["boxed{", "</answer>"].iter().filter_map(|mark| text.rfind(mark)).max())
}

/// Returns the start of the sentence before an announcement, if it supposes something.
fn supposition(before: &str, would: bool) -> Option<usize> {
    let near = tail(before, NEAR);
    let mut start = sentence(near);
    let begun = |start: usize| without_leading(&near[start..]);
    if begun(start).starts_with("then") {
        start = sentence(near[..start].trim_end_matches([' ', '.', '\n']));
    }
    let supposes = |clause: &str| {
        let clause = without_leading(clause);
        let begins = |words: &[&str]| words.iter().any(|word| clause.starts_with(word));
        begins(&SUPPOSING) || (would && begins(&COMPARING))
    };
    let found = near[start..].split([';', ':']).any(supposes);
    found.then(|| before.len() - near.len() + start)
}

/// Returns the start of the last sentence of a text. A comma goes on on the next line.
fn sentence(text: &str) -> usize {
    let ends = [". ", "? ", "! ", ".\n"]
        .iter()
        .filter_map(|sign| Some(text.rfind(sign)? + sign.len()));
    let mut lines = text.rmatch_indices('\n').map(|(at, _)| at);
    let line = lines.find(|at| !text[..*at].trim_end_matches(' ').ends_with(','));
    ends.chain(line.map(|at| at + 1)).max().unwrap_or(0)
}

/// Removes signs and words before a clause that say nothing about it.
fn without_leading(mut clause: &str) -> &str {
    loop {
        clause = clause.trim_start_matches(|c: char| !c.is_alphanumeric());
        let word = clause.split(|c: char| !c.is_alphabetic()).next().unwrap_or_default();
        if !LEADING.contains(&word) {
            return clause;
        }
        clause = &clause[word.len()..];
    }
}

/// Returns the last word of a sentence that says more than `the correct`.
fn word_before(near: &str) -> &str {
    let sentence = near.rsplit(['.', '\n', '?', '!', ';', ':']).next().unwrap_or(near);
    let mut words = sentence
        .split_whitespace()
        .rev()
        .map(|word| (word, word.trim_matches(['*', '"', ',', '('])));
    let first = words.find(|(_, word)| !BEFORE.contains(word) && !word.is_empty());
    // A comma ends what was said of something else: `A is wrong, the answer is B`.
    first
        .filter(|(word, _)| !word.ends_with(','))
        .map_or("", |(_, word)| word)
}
