//! Reads the minus before a number, in every way that people type it.

use std::borrow::Cow;
use std::ops::Range;

/// Signs that can only be a minus before a number: the hyphen, hyphens that do not break a line,
/// the minus itself, its small and its wide form.
const HYPHENS: [char; 6] = ['-', '\u{2010}', '\u{2011}', '\u{2212}', '\u{fe63}', '\u{ff0d}'];
/// Dashes that people type for a minus, and also between two things.
const DASHES: [char; 2] = ['\u{2012}', '\u{2013}'];

/// Other ends of operands, after which a dash is not a minus.
const CLOSING: [char; 6] = ['%', ']', '}', '°', '²', '³'];

/// Returns true if a character may be a minus.
pub(crate) fn is_sign(c: char) -> bool {
    HYPHENS.contains(&c) || DASHES.contains(&c)
}

/// Returns the text before the minus at the end of a text. A dash is a minus only if no operand
/// stands before it.
pub(crate) fn before(text: &str) -> Option<&str> {
    let sign = text.chars().next_back().filter(|c| is_sign(*c))?;
    let before = &text[..text.len() - sign.len_utf8()];
    (HYPHENS.contains(&sign) || !(ends_with_operand(before) || before.trim_end().ends_with(CLOSING))).then_some(before)
}

/// Returns true if a text ends with an operand of a subtraction: a number, a closing bracket, or a
/// letter without white space after it.
pub(crate) fn ends_with_operand(text: &str) -> bool {
    let operand = text.trim_end();
    match operand.as_bytes().last() {
        Some(b')' | b'0'..=b'9') => true,
        Some(last) => last.is_ascii_alphabetic() && operand.len() == text.len(),
        None => false,
    }
}

/// Signs of money before a number.
const MONEY: [char; 4] = ['$', '€', '£', '₹'];
/// Words for a minus.
const WORDS: [&str; 4] = ["minus ", "Minus ", "negative ", "Negative "];
/// Words behind which `minus` is the sign of a number. Behind other words it subtracts.
const VERBS: [&str; 20] = [
    "is",
    "was",
    "are",
    "be",
    "now",
    "about",
    "approximately",
    "exactly",
    "equals",
    "get",
    "gets",
    "got",
    "gives",
    "have",
    "has",
    "becomes",
    "to",
    "of",
    "at",
    "",
];

/// Bytes before a word for a minus in which its verb is looked for.
const NEAR: usize = 64;

/// Returns a text with `-12` for `minus 12`, and with `$-7` for `-$7`.
pub(crate) fn in_signs(text: Cow<'_, str>) -> Cow<'_, str> {
    let text = replaced(text, spelled);
    replaced(text, before_money)
}

fn replaced(text: Cow<'_, str>, find: impl Fn(&str) -> Vec<(Range<usize>, String)>) -> Cow<'_, str> {
    let found = find(&text);
    if found.is_empty() {
        return text;
    }
    let (mut made, mut kept) = (String::with_capacity(text.len()), 0);
    for (place, with) in found {
        made.push_str(&text[kept..place.start]);
        made.push_str(&with);
        kept = place.end;
    }
    made.push_str(&text[kept..]);
    Cow::Owned(made)
}

/// Returns the words that are the sign of the number behind them, or subtract it from a number.
fn spelled(text: &str) -> Vec<(Range<usize>, String)> {
    let sign = |(at, word): (usize, &str)| {
        let number = text[at + word.len()..].trim_start_matches(['$', '*', '\\', '(', ' ']);
        let near = &text[text.floor_char_boundary(at.saturating_sub(NEAR))..at];
        let line = near.rsplit('\n').next().unwrap_or_default();
        let before = line.trim_end_matches([' ', '*', '_', '$', '(']);
        let last = before.rsplit(' ').next().unwrap_or_default();
        let verb = last.ends_with(['=', ':', '≈'])
            || ["it's", "that's", "there's"].contains(&last.to_ascii_lowercase().as_str())
            || (VERBS.contains(&last) && (at == 0 || !before.is_empty()));
        let negative = word.ends_with("ative ") && !before.ends_with(" or");
        let operand = line
            .strip_suffix(' ')
            .is_some_and(|line| line.ends_with(|c: char| c.is_ascii_digit()));
        let apart = !text[..at].ends_with(|c: char| c.is_alphanumeric() || is_sign(c));
        // `40 minus 4, which is 36` goes on to its value.
        let behind = number.trim_start_matches(|c: char| c.is_ascii_digit() || ",.".contains(c));
        let ends = (behind.starts_with(" or ") && !number.contains('$'))
            || behind.trim_matches(['*', '_', ' ', '$', '.']).is_empty();
        let sign = match operand {
            true => (word == "minus " && ends).then_some("- "),
            false => (verb || negative).then_some("-"),
        };
        let sign = sign.filter(|_| apart && number.starts_with(|c: char| c.is_ascii_digit()))?;
        Some((at..at + word.len(), sign.to_owned()))
    };
    let mut found: Vec<(usize, &str)> = WORDS.iter().flat_map(|word| text.match_indices(*word)).collect();
    found.sort_unstable();
    found.into_iter().filter_map(sign).collect()
}

/// Returns the signs of money with a minus before them. A letter behind the amount may be its
/// scale, which is read only behind the sign of money: `-$2M`.
fn before_money(text: &str) -> Vec<(Range<usize>, String)> {
    let signed = |(at, sign): (usize, &str)| {
        let amount = &text[at + sign.len()..];
        let behind = amount.trim_start_matches(|c: char| c.is_ascii_digit() || ",.".contains(c));
        let escape = if text[..at].ends_with('\\') { "\\" } else { "" };
        let rest = before(&text[..at - escape.len()])?;
        let number = amount.starts_with(|c: char| c.is_ascii_digit()) && !behind.starts_with(char::is_alphabetic);
        let free = !ends_with_operand(rest) && !rest.ends_with(CLOSING) && !rest.ends_with('$');
        (number && free).then(|| (rest.len()..at + sign.len(), format!("{escape}{sign}-")))
    };
    text.match_indices(MONEY).filter_map(signed).collect()
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::{before, in_signs};

    #[test]
    fn a_minus_in_words_or_before_money_is_a_sign() {
        for (text, with) in [
            ("It is minus 12.", "It is -12."),
            ("minus $12", "$-12"),
            ("It is **negative 12**", "It is **-12**"),
            ("It is -$7", "It is $-7"),
            ("\\boxed{−\\$7}", "\\boxed{\\$-7}"),
            ("x = -$7$", "x = $-7$"),
            ("a loss of -€1,234.50", "a loss of €-1,234.50"),
            ("It is 20 minus 12.", "It is 20 - 12."),
            ("20 eggs minus 12", "20 eggs minus 12"),
            ("the sum minus 12", "the sum minus 12"),
            ("positive or negative 12", "positive or negative 12"),
            ("non-negative 12", "non-negative 12"),
            ("$3-$7, $10 -$7", "$3-$7, $10 -$7"),
            ("$3$-$7$", "$3$-$7$"),
            ("-$2M", "-$2M"),
            ("- $7", "- $7"),
        ] {
            assert_eq!(in_signs(Cow::Borrowed(text)), with, "{text}");
        }
    }

    #[test]
    fn a_dash_after_an_operand_is_not_a_minus() {
        for sign in ['-', '\u{2010}', '\u{2011}', '−', '\u{fe63}', '－'] {
            for text in ["", "it is ", "10 ", "x", "é"] {
                assert_eq!(before(&format!("{text}{sign}")), Some(text), "{text}{sign}");
            }
        }
        for sign in ['\u{2012}', '–'] {
            for (text, minus) in [("", true), ("it is ", true), ("(", true), ("是", true)] {
                assert_eq!(before(&format!("{text}{sign}")), minus.then_some(text), "{text}{sign}");
            }
            for text in [
                "10",
                "10 ",
                "10\u{a0}",
                "(x)",
                "x",
                "3%",
                "[1] ",
                "\\frac{1}{2}",
                "10°",
                "5²",
            ] {
                assert_eq!(before(&format!("{text}{sign}")), None, "{text}{sign}");
            }
        }
        for text in ["", "5", "so —", "- "] {
            assert_eq!(before(text), None, "{text}");
        }
    }
}
