//! The grader `integer`: whole numbers in text, of any length.

use configs::Take;
use serde_json::Value;

use super::answer::converted::once;
use super::answer::{Place, marks, undecided};
use super::normal::minus;
use super::normal::setting::plain_text;
use super::{gsm8k, label, math};

/// Formats a whole number in its shortest form: no plus sign, no sign for zero, no leading zeros,
/// no commas.
fn canonical(negative: bool, digits: &str) -> String {
    let digits = digits.trim_start_matches('0');
    match (digits.is_empty(), negative) {
        (true, _) => "0".to_owned(),
        (false, true) => format!("-{digits}"),
        (false, false) => digits.to_owned(),
    }
}

/// Reads a text that consists of one whole number, of any length.
fn whole(text: &str) -> Option<String> {
    let text = text.trim().trim_matches('$').trim();
    let text = text.strip_suffix('.').unwrap_or(text);
    let (negative, digits) = match text.strip_prefix(minus::is_sign) {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let digits = digits.strip_suffix(".0").unwrap_or(digits);
    let is_number = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    is_number.then(|| canonical(negative, digits))
}

/// Returns the digits of a text that is a whole number, with its currency, its unit and its name,
/// or a computation that gives one.
fn read(text: &str) -> Option<String> {
    whole(text).or_else(|| math::whole(text))
}

/// Returns true if the answer's number is the label.
pub(super) fn is_right(text: &str, label: &Value, take: Take) -> bool {
    let known = read_label(label);
    let found = |text: &str| answer(text, take).is_some_and(|(_, found)| Some(&found) == known.as_ref());
    match take {
        Take::First => found(text),
        Take::Last => once(text).iter().any(|text| found(text)),
    }
}

/// Returns true if both texts give the same number.
pub(super) fn is_same(a: &str, b: &str, take: Take) -> bool {
    let number = |text: &str| answer(text, take).map(|(_, number)| number);
    number(a).is_some_and(|found| Some(found) == number(b))
}

pub(super) fn is_label(label: &Value) -> bool {
    read_label(label).is_some()
}

/// Returns the label as a whole number.
pub(super) fn read_label(label: &Value) -> Option<String> {
    let of = |text: &str| read(text).or_else(|| read(&label::rounded(text)?));
    let usable = |text: &str| text.contains(char::is_numeric) && of(text).is_some();
    of(&label::find(label, |text, _| usable(text))?)
}

/// Returns the number that is marked, else the last number, if it is whole of the text; or, with
/// [`Take::First`], its first number.
pub(super) fn answer(text: &str, take: Take) -> Option<(Place, String)> {
    let text = &*plain_text(text);
    if take == Take::First {
        return first_integer(text).map(|number| (Place::Last, number));
    }
    let marks = marks(text);
    let found = marks.candidates.iter().find_map(|candidate| {
        let number = candidate.forms().iter().find_map(|text| read(text))?;
        Some((candidate.place, number))
    });
    let last = || gsm8k::last_number(text).and_then(|found| Some((Place::Last, read(&found.text)?)));
    found.or_else(|| {
        let closed = marks.closed || undecided::ends_undecided(text, &marks.candidates);
        if closed { None } else { last() }
    })
}

/// Returns the first number, with commas between groups of three digits. A minus right before it
/// counts, whatever stands before the minus. Returns `None` for a number with a fraction other than
/// zeros.
fn first_integer(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let start = bytes.iter().position(u8::is_ascii_digit)?;
    let mut end = start + 1;
    while end < bytes.len() && (bytes[end].is_ascii_digit() || is_group_comma(bytes, end)) {
        end += 1;
    }
    if let Some(fraction) = bytes[end..].strip_prefix(b".") {
        let mut digits = fraction.iter().take_while(|byte| byte.is_ascii_digit());
        if digits.any(|digit| *digit != b'0') {
            return None;
        }
    }
    Some(canonical(
        minus::before(&text[..start]).is_some(),
        &text[start..end].replace(',', ""),
    ))
}

/// Returns true at a comma with a digit before it and exactly three digits after it.
fn is_group_comma(bytes: &[u8], at: usize) -> bool {
    let digits = bytes[at + 1..].iter().take_while(|b| b.is_ascii_digit()).count();
    bytes[at] == b',' && digits == 3 && at > 0 && bytes[at - 1].is_ascii_digit()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minus_between_numbers_is_an_operator_else_a_sign() {
        for (text, number) in [
            ("The answer is -5", "-5"),
            ("it is -5.", "-5"),
            ("-5", "-5"),
            ("= -5", "-5"),
            ("10 - 7", "3"),
            ("10 -5", "5"),
            ("(7)-5", "5"),
            ("x-5", "5"),
            ("Answer:-5", "-5"),
            ("The answer is −5", "-5"),
            ("The answer is –5", "-5"),
            ("The answer is \u{2011}5", "-5"),
            ("答案是－5", "-5"),
            ("答案是-5", "-5"),
            ("10−5", "5"),
            ("10 − 7", "3"),
            ("x−5", "5"),
            ("pages 3–5", "5"),
            ("pages 3 –5", "5"),
            ("(7)–5", "5"),
            ("so – 5", "5"),
            ("\\boxed{−5}", "-5"),
            ("\\boxed{–5}", "-5"),
        ] {
            assert_eq!(answer(text, Take::Last).unwrap().1, number, "{text}");
        }
    }

    /// MinT's recipe reads answers in this way, but compares text instead of values.
    #[test]
    fn take_first_reads_the_first_number() {
        for (text, number) in [
            ("5", Some("5")),
            ("2 + 3 = 5", Some("2")),
            ("5 ... 10", Some("5")),
            ("It is 10, not \\boxed{5}", Some("10")),
            ("\\boxed{5} and 3 more", Some("5")),
            ("1,234 or 7", Some("1234")),
            ("1,23", Some("1")),
            ("1,2345", Some("1")),
            ("-5 or 5", Some("-5")),
            ("x-5", Some("-5")),
            ("x−5", Some("-5")),
            ("–5 or 5", Some("-5")),
            ("x–5", Some("5")),
            ("- 5", Some("5")),
            ("-0", Some("0")),
            ("005", Some("5")),
            ("5. Then 6", Some("5")),
            ("5.0 or 6", Some("5")),
            ("5.0.7", Some("5")),
            ("3.5 or 5", None),
            ("none", None),
            ("", None),
        ] {
            assert_eq!(
                answer(text, Take::First).map(|found| found.1).as_deref(),
                number,
                "{text}"
            );
        }
    }
}
