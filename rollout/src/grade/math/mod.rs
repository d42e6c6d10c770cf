//! The grader `math`: finds answers in texts, reads them, and compares their meaning.
//!
//! Numbers are compared as exact fractions where possible. Formulas with variables are compared by
//! their values at fixed points. A value that underflowed or lost its digits equals no other value.
//! Sets, tuples, intervals and their unions, matrices, equations and inequalities are compared part
//! by part. Units are ignored.

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
mod pieces;
mod same;
mod unit;
mod vulgar;

use serde_json::Value;

use self::answer::Answer;
use self::budget::Budget;
pub(super) use self::budget::LONGEST;
use self::locate::candidates;
pub(super) use self::locate::last_number;
use self::same::same;
use super::answer::boxed;
use super::answer::wide::narrow_numbers;
use super::label;

/// Returns true if the answer in `text` equals the label.
pub(super) fn is_right(text: &str, label: &Value) -> bool {
    let Some(label) = label::text(label) else { return false };
    let label = boxed::last(&label).unwrap_or(&label);
    readings(&narrow_numbers(text)).any(|answer| equal(answer, label))
}

/// Returns true if both texts have an answer and the answers are equal.
pub(super) fn is_same(a: &str, b: &str) -> bool {
    let (a, b) = (narrow_numbers(a), narrow_numbers(b));
    readings(&a).any(|a| readings(&b).any(|b| equal(a, b)))
}

/// Returns true if the label is a number, or a text that is neither blank nor too long.
pub(super) fn is_label(label: &Value) -> bool {
    label::text(label).is_some_and(|text| is_usable(&text))
}

/// Returns the possible answers in a text that are short enough to be compared.
fn readings(text: &str) -> impl Iterator<Item = &str> {
    let found = candidates(text).into_iter().flatten();
    found.filter(|answer| is_usable(answer))
}

fn is_usable(answer: &str) -> bool {
    !answer.trim().is_empty() && answer.len() <= LONGEST
}

/// Returns true if two answers are equal as text, or in meaning within [`budget::MOST_STEPS`].
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
