//! Finds the words that announce an answer, in several languages.

use std::ops::Range;

use super::conditional::{is_conditional, is_supposed, without_supposed};
use super::correcting;

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
/// Nouns that name an answer if it is called correct.
const VALUES: [&str; 7] = ["total", "amount", "result", "value", "number", "sum", "cost"];
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
    let mut corrected = places_in(&lower, &VALUES, Vec::new());
    corrected.retain(|place| {
        ["correct ", "corrected "]
            .iter()
            .any(|word| lower[..place.start].ends_with(word))
    });
    corrected.extend(correcting::places(&lower));
    without_supposed(&lower, places_in(&lower, &NOUNS, corrected))
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
            let counterfactual = lower[end..end + length].contains("would") && is_supposed(&lower[..at]);
            (begins && !counterfactual && !is_conditional(&lower[..at])).then_some(at..end + length)
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
    let stop = if noun == "ans" { rest.strip_prefix(". ") } else { None };
    if let Some(rest) = stop.or_else(|| rest.strip_prefix([':', '：', '=', '→'])) {
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
