//! Reads labels: the known answers that graders compare with.

use std::slice;

use broker::codec::Decimal;
use serde_json::{Number, Value};

use super::answer::{Place, marks};
use super::normal::wide::narrow_numbers;

/// Returns the label as text, if it is a text or a number.
pub(super) fn text(label: &Value) -> Option<String> {
    match label {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(digits(number)),
        _ => None,
    }
}

/// Spells a number in digits, without an exponent. A table may have made floats of whole numbers,
/// so `1995.0` is `1995`.
fn digits(number: &Number) -> String {
    let float = number.as_f64().filter(|_| number.is_f64());
    float.map_or_else(|| number.to_string(), |value| value.to_string())
}

/// Returns the parts of a label: those of a list, or the whole label.
fn parts(label: &Value) -> &[Value] {
    match label {
        Value::Array(list) => list,
        one => slice::from_ref(one),
    }
}

/// Returns the texts that a label accepts: one text, or a list of them.
pub(super) fn texts(label: &Value) -> Vec<String> {
    parts(label).iter().filter_map(text).collect()
}

/// Returns the spellings that the file of a number may have: with an exponent, with more zeros.
pub(super) fn spellings(number: &Number) -> Vec<String> {
    let mut spellings = vec![digits(number), number.to_string()];
    if let Some(value) = number.as_f64().filter(|_| number.is_f64()) {
        let zero = if value.fract() == 0.0 { ".0" } else { "0" };
        spellings.extend([format!("{value}{zero}"), format!("{value:e}")]);
    }
    spellings
}

/// Returns true if a text spells a number of the label: `12.50` for 12.5. Texts in a label are
/// compared as texts.
pub(super) fn spells_number(text: &str, label: &Value) -> bool {
    let numbers = parts(label).iter().filter(|part| part.is_number());
    let mut known = numbers.filter_map(|number| Decimal::read(&number.to_string()));
    Decimal::read(text.trim()).is_some_and(|found| known.any(|known| known == found))
}

/// Returns the texts of a label. A text that is a list of texts counts as that list. `1995.0`,
/// as CSV tables write whole numbers, counts as `1995` too.
pub(super) fn listed(label: &Value) -> Vec<String> {
    let mut listed = match label {
        Value::String(text) => list(text).unwrap_or_else(|| vec![text.clone()]),
        other => texts(other),
    };
    let whole: Vec<String> = listed.iter().filter_map(|text| whole(text)).collect();
    listed.extend(whole);
    listed
}

/// Returns a whole number without its decimal zero: `1995` for `1995.0`.
fn whole(text: &str) -> Option<String> {
    let digits = text.trim().strip_suffix(".0")?;
    let unsigned = digits.strip_prefix('-').unwrap_or(digits);
    let is_whole = !unsigned.is_empty() && unsigned.bytes().all(|byte| byte.is_ascii_digit());
    is_whole.then(|| digits.to_owned())
}

/// Most digits of a rounded label with a short fraction. A longer one was written by hand.
const MOST_DIGITS: usize = 12;
/// Fewest decimals of a fraction that never ends: `33.333333333333336`.
const ENDLESS: usize = 8;

/// Returns a decimal that a table of floats wrote, at 15 significant digits: `70.00000000000001` is
/// 70. Floats have 15 to 17 digits; longer decimals are written by hand.
pub(super) fn rounded(text: &str) -> Option<String> {
    let text = text.trim();
    let unsigned = text.strip_prefix('-').unwrap_or(text);
    let (whole, fraction) = unsigned.split_once('.')?;
    let plain = [whole, fraction].concat();
    let decimal = !whole.is_empty() && !fraction.is_empty() && plain.bytes().all(|byte| byte.is_ascii_digit());
    let digits = plain.trim_start_matches('0').len();
    let value: f64 = text.parse().ok().filter(|_| decimal && (15..=17).contains(&digits))?;
    let value: f64 = format!("{value:.14e}").parse().ok()?;
    let rounded = value.to_string();
    let digits = rounded.bytes().filter(u8::is_ascii_digit).count();
    (rounded != text && (digits <= MOST_DIGITS || fraction.len() >= ENDLESS)).then_some(rounded)
}

/// Returns the texts of a list that stands in a text: `["34"]` of JSON, or one text of Python. A
/// list of numbers is a formula.
fn list(text: &str) -> Option<Vec<String>> {
    json_list(text).or_else(|| Some(vec![single_of_python(text)?]))
}

/// Returns the text of a Python list or tuple of one text: `['34']`, `('34',)`.
fn single_of_python(text: &str) -> Option<String> {
    let text = text.trim();
    let list = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let inside = list.or_else(|| text.strip_prefix('(')?.strip_suffix(",)"))?;
    let one = inside.trim().strip_prefix('\'')?.strip_suffix('\'')?;
    (!one.is_empty() && !one.contains('\'')).then(|| one.replace("\\\\", "\\"))
}

fn json_list(text: &str) -> Option<Vec<String>> {
    let text = text.trim();
    let list = text.starts_with('[') && text.ends_with(']') && text.contains('"');
    let list: Vec<String> = serde_json::from_str(text).ok().filter(|_| list)?;
    (!list.is_empty()).then_some(list)
}

/// Returns true if one of the label's texts holds more than white space, so that an answer can
/// match it.
pub(super) fn has_text(label: &Value) -> bool {
    texts(label).iter().any(|text| !text.trim().is_empty())
}

/// Returns the part of a label that is the answer, as an answer is read: behind `####`, in a tag or
/// a box, announced, or the whole text. `usable` decides whether a part is an answer.
pub(super) fn find(label: &Value, usable: impl Fn(&str, Place) -> bool) -> Option<String> {
    let text = text(label)?;
    let text = match list(&text) {
        Some(list) => match <[String; 1]>::try_from(list) {
            Ok([one]) => one,
            Err(_) => return None,
        },
        None => text,
    };
    let text = narrow_numbers(&text);
    let marks = marks(&text);
    let trust = |place: Place| if place == Place::Hashes { 0 } else { 1 };
    let mut candidates = marks.candidates;
    candidates.sort_by_key(|candidate| trust(candidate.place));
    let found = candidates
        .into_iter()
        .find(|candidate| usable(&candidate.text, candidate.place));
    match found {
        Some(found) => Some(found.text.into_owned()),
        None => usable(&text, Place::Last).then(|| text.into_owned()),
    }
}
