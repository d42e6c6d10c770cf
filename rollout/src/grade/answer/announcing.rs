//! Finds the words that announce an answer, in several languages.

use std::ops::Range;

use super::correcting;
use super::text::tail;

/// Nouns that name an answer. A linking word, or a sign, must follow.
const NOUNS: [&str; 41] = [
    "answer",
    "ans",
    "antwort",
    "respuesta",
    "réponse",
    "reponse",
    "risposta",
    "resposta",
    "ответ",
    "Ответ",
    "відповідь",
    "Відповідь",
    "答案",
    "答え",
    "解答",
    "正解",
    "정답",
    "đáp án",
    "Đáp án",
    "jawaban",
    "cevap",
    "yanıt",
    "odpowiedź",
    "odpověď",
    "odgovor",
    "antwoord",
    "svaret",
    "svar",
    "vastaus",
    "válasz",
    "răspuns",
    "απάντηση",
    "Απάντηση",
    "תשובה",
    "الإجابة",
    "الجواب",
    "پاسخ",
    "उत्तर",
    "คำตอบ",
    "答",
    "답",
];
/// Words that link a noun with the answer behind it.
const LINKS: [&str; 27] = [
    "is",
    "be",
    "are",
    "equals",
    "equal",
    "was",
    "ist",
    "lautet",
    "es",
    "est",
    "è",
    "é",
    "e'",
    "jest",
    "to",
    "er",
    "är",
    "on",
    "là",
    "adalah",
    "este",
    "είναι",
    "это",
    "هو",
    "هي",
    "है",
    "คือ",
];
/// Links that follow without a space.
const JOINED_LINKS: [&str; 16] = [
    "应该是",
    "应该为",
    "应当是",
    "应为",
    "应是",
    "應該是",
    "應為",
    "就是",
    "是",
    "为",
    "為",
    "选",
    "選",
    "は",
    "은",
    "는",
];
/// Words that may stand between a noun and its link.
const BETWEEN: [&str; 63] = [
    "đúng",
    "yang",
    "benar",
    "tepat",
    "prawidłowa",
    "should",
    "would",
    "must",
    "will",
    "has",
    "therefore",
    "thus",
    "then",
    "hence",
    "so",
    "simply",
    "clearly",
    "indeed",
    "also",
    "finally",
    "now",
    "here",
    "choice",
    "option",
    "letter",
    "key",
    "value",
    "number",
    "for",
    "of",
    "the",
    "this",
    "that",
    "question",
    "problem",
    "exercise",
    "part",
    "our",
    "your",
    "my",
    "correct",
    "right",
    "final",
    "in",
    "case",
    "above",
    "we",
    "get",
    "found",
    "richtige",
    "correcta",
    "correct",
    "correcte",
    "corretta",
    "correta",
    "final",
    "finale",
    "a",
    "la",
    "die",
    "frage",
    "pregunta",
    "question",
];
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
const CONDITIONS: [&str; 22] = [
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
/// Most times that a noun is looked at, from the end.
const MOST: usize = 128;
/// Most bytes from a noun to its link.
const NEAR: usize = 128;
/// Most words between a noun and its link.
const MOST_BETWEEN: usize = 10;

/// Returns the place of every announcement and correction, in order. It ends where the answer
/// begins.
pub(crate) fn places(text: &str) -> Vec<Range<usize>> {
    let lower = text.to_ascii_lowercase();
    places_in(&lower, &NOUNS, correcting::places(&lower))
}

/// Returns the places of the announcements with one of these nouns.
pub(crate) fn places_of(text: &str, nouns: &[&str]) -> Vec<Range<usize>> {
    places_in(&text.to_ascii_lowercase(), nouns, Vec::new())
}

/// Returns these places and those of the announcements with one of these nouns, in order.
fn places_in(lower: &str, nouns: &[&str], mut found: Vec<Range<usize>>) -> Vec<Range<usize>> {
    // Most texts are English: then the nouns of other scripts are no cost.
    let here = |noun: &&&str| noun.is_ascii() || !lower.is_ascii();
    for noun in nouns.iter().filter(here) {
        found.extend(lower.rmatch_indices(noun).take(MOST).filter_map(|(at, noun)| {
            let begins = !noun.is_ascii() || !lower[..at].ends_with(|c: char| c.is_alphanumeric());
            let end = at + noun.len();
            let length = link(&lower[end..], noun)?;
            (begins && !is_conditional(&lower[..at])).then_some(at..end + length)
        }));
    }
    found.sort_unstable_by_key(|place| (place.end, place.start));
    found.dedup_by_key(|place| place.end);
    found
}

/// Returns the length of the words and signs that link a noun to the answer behind it.
fn link(behind: &str, noun: &str) -> Option<usize> {
    let behind = &behind[..behind.floor_char_boundary(NEAR)];
    let mark = |c: char| matches!(c, ' ' | '\t' | '*' | '_' | '`' | '"' | ')' | ']' | '~' | '\'');
    // `Answer choices:` begins a list, and names none of them.
    let endings = if noun == "answer" {
        ["(s)", "s"].as_slice()
    } else {
        &["ul"]
    };
    let plural = endings.iter().find_map(|ending| behind.strip_prefix(ending));
    let rest = plural.unwrap_or(behind).trim_start_matches(mark);
    let length = |rest: &str| behind.len() - rest.len();
    if let Some(rest) = rest.strip_prefix([':', '：', '=', '→']) {
        return Some(length(rest));
    }
    if let Some(rest) = ["- ", "– ", "— ", "-> "]
        .iter()
        .find_map(|dash| rest.strip_prefix(dash))
    {
        return Some(length(rest));
    }
    // A heading: the answer is the next line.
    if noun.is_ascii() && rest.starts_with(['\n', '\r']) {
        return Some(length(rest));
    }
    // A single sign of Chinese or Korean is part of other words.
    if noun.chars().count() > 1
        && let Some(rest) = JOINED_LINKS.iter().find_map(|link| rest.strip_prefix(link))
    {
        return Some(length(rest));
    }
    linking_word(rest).map(length)
}

/// Returns what follows the linking word, if only words that say nothing stand before it.
fn linking_word(mut rest: &str) -> Option<&str> {
    let mut free = false;
    for _ in 0..MOST_BETWEEN {
        let end = rest
            .find([' ', '\n', '.', ',', ':', '*', '$', '\\', '(', '?', '!', '='])
            .unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        let behind = after.trim_start_matches([' ', '*', '_']);
        if word == "to" && !free && !behind.starts_with(|c: char| c.is_ascii_digit() || ['-', '$', '\\'].contains(&c)) {
            free = true;
        } else if LINKS.contains(&word) {
            return Some(after);
        } else if !(free || BETWEEN.contains(&word)) || word.is_empty() {
            return None;
        }
        if behind.starts_with([':', '=']) {
            return Some(&behind[1..]);
        }
        if !after.starts_with([' ', '*', '(']) {
            return None;
        }
        rest = behind;
    }
    None
}

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
fn is_conditional(before: &str) -> bool {
    let near = tail(before, LEAD);
    if RETRACTING.iter().any(|word| near.ends_with(word)) {
        return true;
    }
    CONDITIONS.contains(&word_before(near))
}

/// Returns the last word of a sentence that says more than `the correct`.
fn word_before(near: &str) -> &str {
    let sentence = near.rsplit(['.', '\n', '?', '!', ';', ':']).next().unwrap_or(near);
    let mut words = sentence
        .split_whitespace()
        .rev()
        .map(|word| word.trim_matches(['*', '"', ',', '(']));
    let first = words.find(|word| !BEFORE.contains(word) && !word.is_empty());
    first.unwrap_or_default()
}
