//! The grader `gsm8k`: the number after the last `####`, else the boxed or the last number,
//! compared by value. Labels are read in the same way.

use serde_json::Value;

use super::answer::{boxed, wide};
use super::{label, math};

/// Returns true if the answer's number has the value of the label's number.
pub(super) fn is_right(text: &str, label: &Value) -> bool {
    label::text(label).is_some_and(|label| is_same(text, &label))
}

/// Returns true if both texts give a number and the numbers are equal.
pub(super) fn is_same(a: &str, b: &str) -> bool {
    number(a).zip(number(b)).is_some_and(|(a, b)| math::equal(&a, &b))
}

pub(super) fn is_label(label: &Value) -> bool {
    label::text(label).and_then(|label| number(&label)).is_some()
}

/// Returns the number that a text gives, without dollar signs, commas and spaces.
fn number(text: &str) -> Option<String> {
    let text = &*wide::narrow_numbers(text);
    let after = text.rfind("####").map(|at| &text[at + 4..]);
    let line = after.and_then(|rest| rest.lines().next());
    let found = match line.filter(|line| !line.trim().is_empty()) {
        Some(line) => math::last_number(line)?,
        None => boxed::last(text).or_else(|| math::last_number(text))?,
    };
    let number: String = found.chars().filter(|c| !['$', ',', ' '].contains(c)).collect();
    let is_number = number.bytes().any(|b| b.is_ascii_digit());
    (is_number && number.len() <= math::LONGEST).then(|| number.trim_end_matches('.').to_owned())
}
