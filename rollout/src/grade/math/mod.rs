//! The grader `math`: reads answers and compares their meaning.
//!
//! Numbers are compared as exact fractions where possible. Formulas with variables are compared by
//! their values at fixed points. A value that underflowed or lost its digits equals no other value.
//! Sets, tuples, intervals and their unions, matrices, equations and inequalities are compared part
//! by part. Units are ignored.

mod accents;
mod answer;
mod base;
mod binomial;
mod brackets;
mod budget;
mod clock;
mod collection;
mod compare;
mod complex;
mod computation;
mod condition;
mod congruence;
mod cost;
mod digits;
mod exact;
mod expr;
mod functions;
mod gamma;
mod groups;
mod interval;
mod measure;
mod names;
mod number;
mod numerals;
mod op;
mod parser;
mod pieces;
mod quantity;
mod relation;
mod same;
mod system;
#[cfg(test)]
mod testing;
mod words;

use std::borrow::Cow;

use serde_json::Value;

use self::answer::{Answer, Side};
use self::budget::LONGEST;
pub(super) use self::compare::equal;
#[cfg(test)]
use self::compare::equal_within;
use self::expr::Expr;
pub(super) use self::measure::{amount, are_apart};
pub(super) use self::quantity::{Quantity, whole};
use super::answer::converted::once;
use super::answer::last_row;
use super::answer::listed::listed;
use super::answer::{Candidate, Place, alternative, announced, aside, denied, last, marks, prose, undecided, unmarked};
use super::label;
use super::normal::lexer::tokens;
use super::normal::number_words;
use super::normal::setting::plain_text;
use super::normal::token::Token;
use super::normal::unit_names::{is_next_to_number, without_unit};
use super::normal::words::is_words;

/// Most words of a label. A longer text is a solution, which no answer repeats.
const MOST_WORDS: usize = 40;
/// Most words of a last line that is an answer in words.
const MOST_LAST_WORDS: usize = 3;
/// Most words between tags that are no sentence.
const FEW_WORDS: usize = 2;

/// Returns true if the answer in `text` equals the label.
pub(super) fn is_right(text: &str, label: &Value) -> bool {
    let Some(label) = read_label(label) else { return false };
    once(text).iter().any(|text| has_label(text, &label))
}

fn has_label(text: &str, label: &str) -> bool {
    let text = plain_text(text);
    let rounded = label::rounded(label);
    let is_label = |answer: &str| equal(answer, label) || rounded.as_deref().is_some_and(|label| equal(answer, label));
    let found = readings(&text);
    // A reading without the unit must not hide a wrong unit: `5 C` is read as 5 too.
    let other_unit = found.iter().any(|answer| measure::differ(&answer.text, label));
    !other_unit && found.iter().any(|answer| is_label(&answer.text))
}

/// Returns true if both texts have an answer, the answers are equal, and no two units differ.
pub(super) fn is_same(a: &str, b: &str) -> bool {
    let (a, b) = (plain_text(a), plain_text(b));
    let (a, b) = (readings(&a), readings(&b));
    let pairs = || a.iter().flat_map(|a| b.iter().map(move |b| (&*a.text, &*b.text)));
    !pairs().any(|(a, b)| measure::differ(a, b)) && pairs().any(|(a, b)| equal(a, b))
}

/// Returns true if the label is a number, or a text that is neither blank nor too long.
pub(super) fn is_label(label: &Value) -> bool {
    read_label(label).is_some_and(|text| text.split_whitespace().nth(MOST_WORDS).is_none())
}

/// Returns true for a formula that divides by zero, so that nothing equals it.
pub(super) fn divides_by_zero(text: &str) -> bool {
    match Answer::parse(text, Side::Label) {
        Answer::Value(Expr::Quotient(_, below), _) => below.number().is_some_and(|below| below.is_zero()),
        _ => false,
    }
}

/// Returns the answer that a label holds: behind `####`, in a box or a tag, announced, or the
/// whole label.
pub(super) fn read_label(label: &Value) -> Option<String> {
    label::find(label, |text, place| match place {
        Place::Announced => announced::reads(text) && is_usable(text),
        Place::Hashes => is_formula(text),
        _ => is_usable(text),
    })
}

/// Returns the answer that the grader reads, and its place. A second reading leaves words behind a
/// number out.
pub(super) fn readings(text: &str) -> Vec<Candidate<'_>> {
    let marks = marks(text);
    let mut other = None;
    for candidate in marks.candidates.clone() {
        let text = candidate.text.as_ref();
        if !is_usable(text) {
            continue;
        }
        match candidate.place {
            Place::Tagged if is_sentence(text) => return vec![candidate.clone(), last_of(candidate)],
            Place::Boxed => return with_number_of_box(candidate),
            Place::Tagged | Place::Last => return vec![candidate],
            Place::Announced if announced::reads(text) => return with_cut(candidate),
            Place::Announced => other = other.or(Some(candidate)),
            Place::Hashes if is_formula(text) => return with_cut(candidate),
            Place::Hashes => {}
        }
    }
    if marks.closed || (other.is_some() && undecided::announces_another(text, &marks.candidates)) {
        return Vec::new();
    }
    let text = last::before_step(last::before_closing(text));
    let line = last::line(text).filter(|line| is_answer_line(line));
    let mut values = line.map_or_else(|| last_values(text), |line| vec![Cow::Borrowed(last_row(line))]);
    // A date is an answer in words.
    let words = |line: &&str| line.split_whitespace().nth(MOST_LAST_WORDS).is_none() && !is_formula(line);
    values.extend(last::line(text).filter(words).map(Cow::Borrowed));
    values.extend(line.and_then(without_raised_unit).map(Cow::Borrowed));
    let values = values.into_iter().map(|text| Candidate {
        place: Place::Last,
        text,
    });
    let found = values.chain(other);
    found.filter(|candidate| is_usable(&candidate.text)).collect()
}

/// Returns the list with which a text ends, the last value, or both.
fn last_values(text: &str) -> Vec<Cow<'_, str>> {
    let text = denied::undenied(aside::without_reason(text));
    text.map_or_else(Vec::new, values_at_end)
        .into_iter()
        .map(Cow::Borrowed)
        .collect()
}

fn values_at_end(text: &str) -> Vec<&str> {
    if let Some(value) = unmarked::value(text) {
        return value.into_iter().collect();
    }
    let list = listed(text);
    let value = last::value(text).map(|value| (value, last::whole_number(text, value)));
    // In `1 or 2, so $\pi$` the last number is not the value, and `24 (or 2 dozen)` names it twice.
    // A formula that holds all alternatives is their list.
    let alternative = |value: &str, whole: &str| {
        value.contains(|c: char| c.is_ascii_digit())
            && value == whole
            && alternative::is_alternative(text)
            && !alternative::is_alternative(value)
    };
    let alone = |value: &str, whole: &str| match &list {
        Some(list) => !list.whole,
        None => !alternative(value, whole),
    };
    let value = value
        .filter(|(value, whole)| alone(value, whole))
        .map(|(_, whole)| whole);
    let counted = value.and_then(|value| counted(text, value));
    let measured = value.and_then(|value| measured(text, value));
    let values = list.map(|list| list.text).into_iter().chain(measured);
    values.chain(value).chain(counted).collect()
}

/// Returns the number of `It is 5 kilometers.` with the unit at the end of the text.
fn measured<'a>(text: &'a str, value: &str) -> Option<&'a str> {
    let amount = text[value.as_ptr().addr() - text.as_ptr().addr()..].trim_end_matches(['.', ' ', '\n', '*']);
    measure::of(amount)
        .map(|_| amount)
        .filter(|amount| amount.len() > value.len())
}

/// Returns the number of `There are 7 values of $n$`, where the last formula is only a letter.
fn counted<'a>(text: &'a str, value: &str) -> Option<&'a str> {
    let before = &text[..value.as_ptr().addr() - text.as_ptr().addr()];
    let letter = value.len() == 1 && value.starts_with(char::is_alphabetic);
    let sentence = before.rsplit(['\n', ';', '?', '!']).next()?;
    let sentence = sentence.rsplit(". ").next()?;
    last::number(sentence).filter(|_| letter)
}

/// Returns true for a line that is a formula, or a word, and nothing else.
fn is_answer_line(line: &str) -> bool {
    let word = line.split_whitespace().nth(MOST_LAST_WORDS).is_none() && is_words(line) && announced::reads(line);
    word || ((is_formula(line) || is_statement(line)) && !has_prose(line))
}

/// Returns true for a statement that is compared sign by sign: `x \mapsto x^2`, `p \land q`.
fn is_statement(line: &str) -> bool {
    const SIGNS: [&str; 9] = [
        "mapsto", "land", "lor", "neg", "equiv", "forall", "exists", "perp", "parallel",
    ];
    let sign = |token: &Token| SIGNS.iter().any(|sign| token.is_command(sign));
    is_usable(line) && tokens(line).is_some_and(|tokens| tokens.iter().any(sign))
}

/// Returns true if a line has words that are neither units nor names of mathematics.
fn has_prose(line: &str) -> bool {
    let mut words = line.split([' ', ',', '.', '(', ')', ':', '*']);
    words.any(|word| {
        let word = word.trim_end_matches("'s");
        let letters = word.chars().count() >= 2 && word.chars().all(char::is_alphabetic);
        letters && !is_next_to_number(word)
    })
}

/// Returns the number of an area or a volume. A square is rather one of meters than of a variable:
/// `24 m²`.
fn without_raised_unit(text: &str) -> Option<&str> {
    let raised = ["²", "³", "^2", "^3", "^{2}", "^{3}"]
        .iter()
        .any(|power| text.trim().ends_with(power));
    without_unit(text).filter(|_| raised)
}

/// Returns a box, the number of its Chinese sentence, and its number without the unit of an area.
fn with_number_of_box(candidate: Candidate<'_>) -> Vec<Candidate<'_>> {
    let text = candidate.text.clone();
    let area = without_raised_unit(&text).map(str::to_owned);
    with_others(candidate, [prose::of_chinese(&text), area])
}

/// Returns the announced line, and the line without the words behind its number.
fn with_cut(candidate: Candidate<'_>) -> Vec<Candidate<'_>> {
    let text = candidate.text.clone();
    let others = [
        prose::of_chinese(&text),
        number_words::bare(&text).map(|number| number.to_string()),
        prose::without_prose(&text).map(str::to_owned),
        // Outside a formula a letter behind a number is a unit: `4 m`, `$4$ K`.
        without_unit(&text).map(str::to_owned),
        prose::without_rate(&text).map(str::to_owned),
        candidate.exclaimed().map(str::to_owned),
    ];
    with_others(candidate, others)
}

/// Returns an answer, and its other readings.
fn with_others<const N: usize>(candidate: Candidate<'_>, others: [Option<String>; N]) -> Vec<Candidate<'_>> {
    let place = candidate.place;
    let others = others.into_iter().flatten().map(|text| Candidate {
        place,
        text: Cow::Owned(text),
    });
    std::iter::once(candidate).chain(others).collect()
}

/// Returns true for a sentence between tags, in which the last value may be the answer.
fn is_sentence(text: &str) -> bool {
    text.split_whitespace().nth(FEW_WORDS).is_some() && !is_formula(text)
}

fn last_of(candidate: Candidate<'_>) -> Candidate<'_> {
    let text = denied::undenied(aside::without_reason(&candidate.text))
        .filter(|text| !text.contains(|c: char| c.is_ascii_digit()) || undecided::is_decided(text))
        .and_then(last::value)
        .map(str::to_owned);
    Candidate {
        place: candidate.place,
        text: text.map_or(candidate.text, Cow::Owned),
    }
}

fn is_usable(answer: &str) -> bool {
    !answer.trim().is_empty() && (answer.len() <= LONGEST || digits::long(answer).is_some())
}

/// Returns true for a text that is read as more than words.
pub(super) fn is_formula(text: &str) -> bool {
    is_usable(text) && !matches!(Answer::parse(text, Side::Answer), Answer::Words(_))
}
