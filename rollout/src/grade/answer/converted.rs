//! Finds one amount in two spellings, of which each is an answer: `180 minutes, or 3 hours`, `half
//! of 24, or 12`.

use super::alternative::{ends_in_list, is_rounded, value};
use super::last;
use crate::grade::math::{Quantity, amount};

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
    let found = [" (or ", " (i.e. ", " (= ", " or ", " ("].iter().find_map(|sign| {
        let at = text.rfind(sign)?;
        twice(
            text[..at].trim_end_matches([' ', ',']),
            &text[at + sign.len()..],
            sign.contains('('),
        )
    });
    found.unwrap_or_else(|| vec![text.to_owned()])
}

/// Returns the texts with one of two spellings, if both are the same amount.
fn twice(before: &str, behind: &str, bracket: bool) -> Option<Vec<String>> {
    let number = behind.find(' ').unwrap_or(behind.len());
    let unit = behind[number..]
        .trim_start_matches(' ')
        .bytes()
        .take_while(u8::is_ascii_alphabetic)
        .count();
    let other = &behind[..behind.len().min(number + 1 + unit)];
    let other = other.trim_end_matches(|c: char| !(c.is_alphanumeric() || c == '%'));
    let rest = &behind[other.len()..];
    let rest = if bracket { rest.strip_prefix(')')? } else { rest };
    if let Some(inner) = other.strip_prefix("\\boxed{") {
        let one = same(value(last::number(before)?)?, value(inner)?);
        return one.then(|| vec![format!("{before}{}", rest.trim_start_matches('}'))]);
    }
    let formula = last::value(before).filter(|_| before.ends_with(['$', ')']));
    let start = formula.or_else(|| last::number(before))?.as_ptr().addr() - before.as_ptr().addr();
    let with_other = |from: usize| format!("{}{other}{rest}", before[..from].trim_end_matches(SIGNS));
    if let Some((known, from)) = computed(before, start) {
        return same(known, number_of(other)?).then(|| vec![with_other(from)]);
    }
    let from = before[..start].trim_end_matches(SIGNS).len();
    let known = before[from..].trim_matches('*');
    // `4 squared` says the same as 16, but is no number.
    let power = other.replace(" squared", "^2").replace(" cubed", "^3");
    let mut found = vec![format!("{before}{rest}")];
    found.extend((power == other).then(|| with_other(from)));
    (are_one(known, &power) && !ends_in_list(&before[..from])).then_some(found)
}

/// Returns true if two amounts are equal, or one is the other, rounded.
fn are_one(a: &str, b: &str) -> bool {
    let sizes = amount(a).zip(amount(b));
    let converted = sizes.is_some_and(|((kind, a), (other, b))| kind == other && same(a, b));
    let equal = || Some(Quantity::read(a)?.is_same(&Quantity::read(b)?));
    converted || equal() == Some(true) || is_rounded(a, b) || is_rounded(b, a)
}

fn same(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * b.abs()
}

/// Returns the value of words with a number behind them, and where they begin: `25% of 80`,
/// `3 boxes of 4`, `half of 24`, `15 minus 5`.
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
    let share = if between.starts_with('%') { 0.01 } else { 1.0 };
    let near = between.split(' ').nth(4).is_none() && !between.contains(['.', ',', '\n']);
    let factor = value(factor)? * share;
    let result = match between.trim() {
        "minus" | "-" => factor - number,
        "plus" | "+" => factor + number,
        "times" | "*" | "x" | "×" => factor * number,
        _ if near && between.ends_with(" of ") => factor * number,
        _ => return None,
    };
    Some((result, from))
}

/// Returns the number of an amount.
fn number_of(amount: &str) -> Option<f64> {
    value(amount.split(' ').next()?.trim_matches(SIGNS))
}

#[cfg(test)]
mod tests {
    use super::once;

    #[test]
    fn an_amount_is_named_once() {
        for (text, found) in [
            ("180 minutes, or 3 hours.", &["180 minutes.", "3 hours."] as &[&str]),
            ("10 cents ($0.10)", &["10 cents", "$0.10"]),
            (
                "That is 12 inches, or 1 foot.",
                &["That is 12 inches.", "That is 1 foot."],
            ),
            ("24 inches (or 2 feet) long", &["24 inches long", "2 feet long"]),
            ("half of 24, or 12", &["12"]),
            ("25% of $80, or $20.", &["$20."]),
            ("It is 0.667 or 2/3", &["It is 0.667", "It is 2/3"]),
            ("0.4 or 40%", &["0.4", "40%"]),
            ("16, or 4 squared", &["16"]),
            ("\\boxed{79}, or \\boxed{79.0}", &["\\boxed{79}"]),
            ("180 minutes, or 4 hours", &["180 minutes, or 4 hours"]),
            ("1, 0.667 or 2/3", &["1, 0.667 or 2/3"]),
            ("12 (12 = 3 * 4)", &["12 (12 = 3 * 4)"]),
            ("or ", &["or "]),
        ] {
            assert_eq!(once(text), found, "{text}");
        }
    }
}
