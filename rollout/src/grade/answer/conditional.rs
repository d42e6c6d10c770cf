//! Decides whether the words before an announcement make it a condition, a question or the name of
//! another answer: `If the answer is 5`, `Is the answer 5?`, `The worst answer is`.

use super::text::tail;

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
const SUPPOSING: [&str; 6] = ["if ", "without ", "had ", "were ", "otherwise", "unless "];
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
/// Most bytes of a sentence before an announcement.
const NEAR: usize = 128;

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
    let near = tail(before, NEAR);
    let sentence = near
        .rsplit(['.', '\n', '?', '!', ';'])
        .next()
        .unwrap_or(near)
        .trim_start();
    SUPPOSING.iter().any(|word| sentence.starts_with(word))
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
