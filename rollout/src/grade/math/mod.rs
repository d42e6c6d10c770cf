//! Mathematical answers: found in text, read, compared by what they mean.
//!
//! Numbers are compared as exact fractions where they are that, formulas with variables by their values at fixed points. A value
//! without digits, too small for floating point or lost on the way, is the same as nothing. Sets, tuples, intervals and their unions,
//! matrices, equations and inequalities are compared part by part. Units are not.

mod answer;
mod budget;
mod complex;
mod expr;
mod functions;
mod gamma;
mod interval;
mod lexer;
mod locate;
mod number;
mod numerals;
mod parser;
mod residue;
mod same;
mod unit;
mod vulgar;

use serde_json::Value;

use self::answer::Answer;
use self::budget::Budget;
use self::locate::found;
use self::locate::last::number as last_number;
use self::same::same;
use super::answer::boxed;
use super::answer::wide::narrow_numbers;
use super::label_text;

/// Longest answer that is compared, in bytes.
const LONGEST: usize = 512;

/// Whether the answer in `text` equals the label.
pub(super) fn right(text: &str, label: &Value) -> bool {
    let Some(label) = label_text(label) else { return false };
    let label = boxed::last(&label).unwrap_or(&label);
    readings(&narrow_numbers(text)).any(|answer| equal(answer, label))
}

/// What a text may have for its answer and can be compared.
fn readings(text: &str) -> impl Iterator<Item = &str> {
    let usable = |answer: &&str| !answer.trim().is_empty() && answer.len() <= LONGEST;
    found(text).into_iter().flatten().filter(usable)
}

/// Whether the answers in two texts are there and equal.
pub(super) fn same_answer(a: &str, b: &str) -> bool {
    let (a, b) = (narrow_numbers(a), narrow_numbers(b));
    readings(&a).any(|a| readings(&b).any(|b| equal(a, b)))
}

/// Whether the numbers that two GSM8K texts give are there and equal.
pub(super) fn same_number(a: &str, b: &str) -> bool {
    gsm8k_number(a).zip(gsm8k_number(b)).is_some_and(|(a, b)| equal(&a, &b))
}

/// A label must be a text or a number with something in it.
pub(super) fn is_label(label: &Value) -> bool {
    label_text(label).is_some_and(|text| !text.trim().is_empty() && text.len() <= LONGEST)
}

/// Equal as text, or in what it means as far as [`budget::MOST_STEPS`] show it.
pub(super) fn equal(answer: &str, label: &str) -> bool {
    equal_within(answer, label, &Budget::new())
}

fn equal_within(answer: &str, label: &str, budget: &Budget) -> bool {
    if answer.trim() == label.trim() {
        return true;
    }
    let (a, b) = (Answer::parse(answer), Answer::parse(label));
    let words = matches!(a, Answer::Words(_)) || matches!(b, Answer::Words(_));
    let in_words = |text: &str| Some(answer::plain_words(text)).filter(|text| text.contains(char::is_alphabetic));
    same(&a, &b, budget) || (words && in_words(answer).is_some_and(|text| Some(text) == in_words(label)))
}

/// The number that a GSM8K text gives: after the last `####`, else the boxed or the last one.
fn gsm8k_number(text: &str) -> Option<String> {
    let text = &*narrow_numbers(text);
    let after = text.rfind("####").map(|at| &text[at + 4..]);
    let found = match after
        .and_then(|rest| rest.lines().next())
        .filter(|line| !line.trim().is_empty())
    {
        Some(line) => last_number(line)?,
        None => boxed::last(text).or_else(|| last_number(text))?,
    };
    let number: String = found.chars().filter(|c| !['$', ',', ' '].contains(c)).collect();
    let is_number = number.bytes().any(|b| b.is_ascii_digit());
    (is_number && number.len() <= LONGEST).then(|| number.trim_end_matches('.').to_owned())
}

/// Whether the answer's number is the label's, by value.
pub(super) fn gsm8k(text: &str, label: &Value) -> bool {
    let label = label_text(label).and_then(|label| gsm8k_number(&label));
    label
        .zip(gsm8k_number(text))
        .is_some_and(|(label, found)| equal(&found, &label))
}

pub(super) fn is_gsm8k_label(label: &Value) -> bool {
    label_text(label).and_then(|label| gsm8k_number(&label)).is_some()
}
