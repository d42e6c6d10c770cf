//! Finds one amount in two spellings, of which each is an answer: `180 minutes, or 3 hours`, `half
//! of 24, or 12`.

use super::alternative::value;
use super::last;

/// Units in the plural, each with a common smaller unit and the number of those in it.
const UNITS: [(&str, &str, f64); 24] = [
    ("seconds", "seconds", 1.0),
    ("minutes", "seconds", 60.0),
    ("hours", "seconds", 3600.0),
    ("days", "seconds", 86_400.0),
    ("weeks", "seconds", 604_800.0),
    ("months", "months", 1.0),
    ("years", "months", 12.0),
    ("cents", "cents", 1.0),
    ("dollars", "cents", 100.0),
    ("inches", "inches", 1.0),
    ("feet", "inches", 12.0),
    ("yards", "inches", 36.0),
    ("millimeters", "mm", 1.0),
    ("centimeters", "mm", 10.0),
    ("cm", "mm", 10.0),
    ("meters", "mm", 1000.0),
    ("kilometers", "mm", 1e6),
    ("km", "mm", 1e6),
    ("grams", "grams", 1.0),
    ("kilograms", "grams", 1000.0),
    ("kg", "grams", 1000.0),
    ("liters", "ml", 1000.0),
    ("ounces", "ounces", 1.0),
    ("pounds", "ounces", 16.0),
];
/// Words before a number with their factor.
const FACTORS: [(&str, f64); 6] = [
    ("half of ", 0.5),
    ("half ", 0.5),
    ("third of ", 1.0 / 3.0),
    ("quarter of ", 0.25),
    ("twice ", 2.0),
    ("double ", 2.0),
];
/// Signs around a number.
const SIGNS: [char; 3] = ['$', '*', '\\'];

/// Returns the text, or the texts that name its last amount once, if it names it twice.
pub(in crate::grade) fn once(text: &str) -> Vec<String> {
    let found = [" (or ", " or ", " ("].iter().find_map(|sign| {
        let at = text.rfind(sign)?;
        twice(text[..at].trim_end_matches([' ', ',']), &text[at + sign.len()..])
    });
    found.unwrap_or_else(|| vec![text.to_owned()])
}

/// Returns the texts with one of two spellings, if both are the same amount.
fn twice(before: &str, behind: &str) -> Option<Vec<String>> {
    let number = behind.find(' ').unwrap_or(behind.len());
    let unit = behind[number..]
        .trim_start_matches(' ')
        .bytes()
        .take_while(u8::is_ascii_alphabetic)
        .count();
    let other = &behind[..behind.len().min(number + 1 + unit)];
    let other = other.trim_end_matches(|c: char| !c.is_alphanumeric());
    let rest = behind[other.len()..].trim_start_matches(')');
    let (kind, size, value) = amount(other)?;
    let same = |known: f64, other: f64| (known - other).abs() <= 1e-9 * other.abs();
    let start = last::number(before)?.as_ptr().addr() - before.as_ptr().addr();
    let with_other = |from: usize| format!("{}{other}{rest}", before[..from].trim_end_matches(SIGNS));
    if let Some((known, from)) = computed(before, start) {
        return same(known, value).then(|| vec![with_other(from)]);
    }
    let from = before[..start].trim_end_matches(SIGNS).len();
    let (unit, known, _) = amount(&before[from..])?;
    let converted = !unit.is_empty() && unit == kind && same(known, size);
    converted.then(|| vec![format!("{before}{rest}"), with_other(from)])
}

/// Returns the value of a product in words before and behind a number, and where it begins:
/// `25% of 80`, `3 boxes of 4`, `half of 24`.
fn computed(before: &str, start: usize) -> Option<(f64, usize)> {
    let number = value(before[start..].split([' ', '*']).next()?)?;
    let words = before[..start].trim_end_matches(SIGNS);
    if let Some((word, factor)) = FACTORS.iter().find(|(word, _)| words.ends_with(word)) {
        let words = words[..words.len() - word.len()].trim_end_matches("a ");
        return Some((number * factor, words.trim_end_matches("one ").len()));
    }
    let factor = last::number(words)?;
    let from = factor.as_ptr().addr() - words.as_ptr().addr();
    let between = &words[from + factor.len()..];
    let product = between.ends_with(" of ") || between == " times ";
    let product = product && between.split(' ').nth(4).is_none() && !between.contains(['.', ',', '\n']);
    let share = if between.starts_with('%') { 0.01 } else { 1.0 };
    product.then_some((value(factor)? * share * number, from))
}

/// Returns the smallest unit of an amount, its size in that unit, and its number.
fn amount(text: &str) -> Option<(&'static str, f64, f64)> {
    let (number, unit) = text
        .trim_start_matches(['*', '\\'])
        .split_once(' ')
        .unwrap_or((text, ""));
    let money = number.trim_start_matches(['*', '\\']).strip_prefix('$');
    let unit = if money.is_some() { "dollars" } else { unit };
    let number = value(money.unwrap_or(number).trim_matches('*'))?;
    let known = |plural: &str| plural == unit || plural.strip_suffix('s') == Some(unit);
    let found = UNITS.iter().find(|(plural, ..)| known(plural));
    Some(found.map_or(("", number, number), |(_, unit, size)| (*unit, number * size, number)))
}
