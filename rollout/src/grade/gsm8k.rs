//! The grader `gsm8k`: the number after the last `####` if no other mark follows, else the marked
//! or the last number, compared by value. Labels are read in the same way.

use std::borrow::Cow;

use serde_json::Value;

use super::answer::converted::once;
use super::answer::listed::is_list;
use super::answer::{Candidate, Place, aside, denied, last, marks, signs, undecided, unmarked};
use super::math::Quantity;
use super::normal::setting::plain_text;
use super::{label, math};

/// Returns true if the answer's number has the value of the label's number.
pub(super) fn is_right(text: &str, label: &Value) -> bool {
    let Some(known) = read_label(label) else { return false };
    let spellings = [label::rounded(&known), Some(known)].into_iter().flatten();
    let mut known = spellings.filter_map(|label| Quantity::read(&label));
    let found: Vec<Quantity> = once(text).iter().filter_map(|text| value(text)).collect();
    known.any(|known| found.iter().any(|found| found.is_same(&known)))
}

/// Returns true if both texts give a number and the numbers are equal.
pub(super) fn is_same(a: &str, b: &str) -> bool {
    value(a).zip(value(b)).is_some_and(|(a, b)| a.is_same(&b))
}

fn value(text: &str) -> Option<Quantity> {
    number(&plain_text(text)).and_then(|found| Quantity::read(&found.text))
}

pub(super) fn is_label(label: &Value) -> bool {
    read_label(label).is_some()
}

/// Returns the text of the label's number.
pub(super) fn read_label(label: &Value) -> Option<String> {
    let marked = label::find(label, |text, _| {
        text.contains(char::is_numeric) && Quantity::read(text).is_some()
    });
    marked.or_else(|| {
        let text = label::text(label)?;
        let text = &*plain_text(&text);
        let found =
            number(text).filter(|found| found.place != Place::Last || text.contains('=') || !has_several(text))?;
        Some(found.text.into_owned())
    })
}

/// Returns true for a label with different numbers of which no mark names one:
/// `6 apples and 7 pears`.
pub(super) fn is_ambiguous(label: &Value) -> bool {
    let text = label::text(label).filter(|_| read_label(label).is_none());
    text.is_some_and(|text| has_several(&plain_text(&text)))
}

/// Returns true if a text has different numbers.
fn has_several(text: &str) -> bool {
    let inside = |c: char| c.is_ascii_digit() || ",./".contains(c);
    let mut numbers = text
        .split(|c| !inside(c))
        .map(|number| number.trim_matches([',', '.', '/']).replace(',', ""))
        .filter(|number| !number.is_empty());
    let first = numbers.next();
    numbers.any(|number| Some(number) != first)
}

/// Returns the number that a text gives, and its place.
pub(super) fn number(text: &str) -> Option<Candidate<'_>> {
    let marks = marks(text);
    let is_hashes = |candidate: &&Candidate<'_>| candidate.place == Place::Hashes && marks.hashes_end;
    let (hashes, others): (Vec<_>, Vec<_>) = marks.candidates.iter().partition(is_hashes);
    let found = hashes.into_iter().chain(others).find_map(number_of);
    found.or_else(|| {
        let closed = marks.closed || undecided::ends_undecided(text, &marks.candidates);
        if closed { None } else { last_number(text) }
    })
}

/// Returns the number of a candidate: all of it, or without the words behind it.
fn number_of<'a>(candidate: &Candidate<'a>) -> Option<Candidate<'a>> {
    let forms = candidate.forms();
    let found = forms.iter().find(|text| Quantity::read(text).is_some())?;
    Some(Candidate {
        place: candidate.place,
        text: Cow::Owned(found.to_string()),
    })
}

/// Returns the last formula that is a number, or the last number.
pub(super) fn last_number(text: &str) -> Option<Candidate<'_>> {
    let text = denied::undenied(aside::without_reason(last::before_step(text)))?;
    let computation = last::computation(text);
    if is_list(text) {
        return None;
    }
    if let Some(value) = unmarked::value(text) {
        let text = Cow::Borrowed(value?);
        let place = Place::Last;
        return Some(Candidate { place, text });
    }
    let number = last::number(text);
    if number.is_some_and(|number| signs::is_of_time(text, number)) {
        return None;
    }
    let whole = number
        .map(|number| last::whole_number(text, number))
        .filter(|whole| Some(*whole) != number);
    let alone = number.filter(|number| last::around(text, number, math::is_formula).is_none());
    let found = [computation, whole, last::value(text), alone];
    let found = found
        .into_iter()
        .flatten()
        .map(|text| text.trim_end_matches(['.', ',']))
        .find(|text| Quantity::read(text).is_some())?;
    Some(Candidate {
        place: Place::Last,
        text: Cow::Borrowed(found),
    })
}
