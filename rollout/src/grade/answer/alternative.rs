//! Finds numbers of which none is chosen, `18 or 20`, and one value in two spellings:
//! `0.667 or 2/3`.

use super::last;
use crate::grade::math::are_apart;
use crate::grade::normal::minus;

/// Words between two alternatives.
const OR: [&str; 9] = ["or else", "and/or", "or", "oder", "ou", "o", "или", "或者", "或"];
/// Words between `or` and its number.
pub(super) const DOUBTS: [&str; 7] = [
    "maybe",
    "perhaps",
    "possibly",
    "even",
    "it could be",
    "it might be",
    "it may be",
];
/// Most words of a unit before `or`.
const MOST_WORDS: usize = 3;

/// Returns true if `or` joins the last number of a text to another value, `It is 18 or maybe 20`,
/// or repeats one value of a list: `4, 2.5 or 5/2`.
pub(crate) fn is_alternative(text: &str) -> bool {
    let Some((before, other, number)) = joined(text) else {
        return false;
    };
    let Some(values) = value(other).zip(value(number)) else {
        return false;
    };
    // `x = 2/3 or y = 0.667`
    let start = number.as_ptr().addr() - text.as_ptr().addr();
    let named = text[..start].trim_end().ends_with('=');
    let rounded = !named && (is_rounded(other, number) || is_rounded(number, other));
    let one = rounded || !differ(&[values.0, values.1]);
    // In `3.5 or 5` the grader `integer` can use only one number.
    let alike = (values.0.fract() == 0.0) == (values.1.fract() == 0.0);
    if one { ends_in_list(before) } else { alike }
}

/// Returns true if a text ends with a value and a comma, so that the next value belongs to a list.
pub(super) fn ends_in_list(text: &str) -> bool {
    let earlier = text.trim_end_matches([' ', '$', '*']).strip_suffix(',');
    earlier.is_some_and(|earlier| earlier.ends_with(|c: char| c.is_ascii_digit() || "$)}".contains(c)))
}

/// Returns two numbers that `or` joins at the end of a text, behind what stands before both.
fn joined(text: &str) -> Option<(&str, &str, &str)> {
    let number = last::number(text)?;
    let at = number.as_ptr().addr() - text.as_ptr().addr();
    let mut before = unsigned(unnamed(&text[..at]));
    while let Some(rest) = DOUBTS.iter().find_map(|word| before.strip_suffix(word)) {
        before = unsigned(rest);
    }
    let before = without_or(before)?;
    let left = unsigned(before);
    let unit = left.trim_end_matches(|c: char| c.is_alphabetic() || c == ' ').len();
    let (left, measure) = left.split_at(unit);
    let few = measure.split_whitespace().nth(MOST_WORDS).is_none();
    let other = last::number(left).filter(|other| left.ends_with(other))?;
    // `18 dollars or 20 dollars` are alternatives. `90 minutes or 1.5 hours` are one amount:
    // between units, the factor is nearly 2 at least.
    let behind = text[at + number.len()..].trim_start();
    let named = measure.is_empty() || behind.starts_with(measure.trim()) || !behind.starts_with(char::is_alphabetic);
    let (a, b) = value(other).zip(value(number))?;
    let unit =
        |number: &str, behind: &str| format!("{number} {}", behind.split_whitespace().next().unwrap_or_default());
    let apart = are_apart(&unit(other, measure), &unit(number, behind.trim_end_matches('.')));
    (few && (named || apart || (a / b).max(b / a) <= 1.9)).then(|| (&left[..left.len() - other.len()], other, number))
}

/// Removes the word `or` from the end of a text, also of `18. Or` and `18 \text{ or }`.
fn without_or(text: &str) -> Option<&str> {
    let text = text.trim_end_matches(['}', ' ']);
    let without = |word: &str| {
        let at = text.len().checked_sub(word.len())?;
        let found = text.get(at..)?.eq_ignore_ascii_case(word);
        let apart = !word.is_ascii() || !text[..at].ends_with(char::is_alphanumeric);
        (found && apart).then(|| &text[..at])
    };
    let before = OR.iter().find_map(|word| without(word))?;
    let set = before.trim_end().strip_suffix('{');
    Some(set.and_then(|set| set.strip_suffix("\\text")).unwrap_or(before))
}

/// Removes white space, brackets and formula signs from the end of a text.
fn unsigned(text: &str) -> &str {
    text.trim_end_matches(|c: char| " $*_(\\,;[])".contains(c) || c == '.')
}

/// Removes the letter and the sign of equality at the end of a text: `18 or x =`, `18 or x_2 =`.
fn unnamed(text: &str) -> &str {
    let named = || {
        let name = text.trim_end_matches([' ', '$', '*']).strip_suffix('=')?.trim_end();
        let before = without_index(name).strip_suffix(|c: char| c.is_ascii_alphabetic())?;
        let alone = !before.ends_with(|c: char| c.is_alphanumeric() || "\\_^".contains(c));
        alone.then_some(before)
    };
    named().unwrap_or(text)
}

/// Removes the index of a letter: `x` of `x_1`, `x_{1}`, `x₁` and `x1`.
pub(super) fn without_index(name: &str) -> &str {
    let index = |c: char| c.is_ascii_digit() || "{}₀₁₂₃₄₅₆₇₈₉".contains(c);
    let letter = name.trim_end_matches(index);
    let glued = letter.ends_with(char::is_alphabetic) && !name[letter.len()..].contains(['{', '}']);
    match letter.strip_suffix('_') {
        Some(bare) => bare,
        None if glued => letter,
        None => name,
    }
}

/// Returns true if a decimal is a fraction, rounded or truncated to two places or more: `0.67 (or
/// 2/3)`.
pub(super) fn is_rounded(decimal: &str, fraction: &str) -> bool {
    let places = decimal.split_once('.').map_or(0, |(_, places)| places.len());
    let unit = 10f64.powi(-i32::try_from(places).unwrap_or(i32::MAX));
    let (Some(rounded), Some(exact)) = (value(decimal), value(fraction)) else {
        return false;
    };
    let cut = (exact - rounded) * exact.signum();
    places >= 2 && fraction.contains('/') && !decimal.contains('/') && cut >= -0.5 * unit * (1.0 + 1e-9) && cut < unit
}

pub(super) fn differ(values: &[f64]) -> bool {
    values.windows(2).any(|pair| (pair[0] - pair[1]).abs() > 1e-9)
}

/// Returns the value of a number or a fraction in digits.
pub(super) fn value(number: &str) -> Option<f64> {
    let number = number.trim_matches([',', '.', '/']).replace(',', "");
    let number = number.replace(minus::is_sign, "-");
    match number.split_once('/') {
        Some((above, below)) => Some(above.parse::<f64>().ok()? / below.parse::<f64>().ok()?),
        None => number.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::is_alternative;

    #[test]
    fn an_alternative_to_another_number_is_no_answer() {
        for text in [
            "It is 18 or 20.",
            "It is $18 or maybe $20",
            "18 (or 20 dollars)",
            "18, or 20",
            "So x = 18 or x = 20.",
            "So **x = 18** or $x=20$",
            "Either a=18 or b = **20**",
            "x_1 = 18 or x_{2} = 20",
            "x₁ = 18 or x₂ = 20",
            "x1 = 18 or x2 = 20",
            "12 or −12",
            "x = 2/3 or y = 0.667",
            "x = 18 dollars or x = 20 dollars",
            "18 OR 20",
            "\\(x=18\\) or \\(x=20\\)",
            "It is 18. Or 20",
            "$18 \\text{ or } 20$",
            "4, 2.5 or 5/2",
            "17 oder 18",
            "17或18",
            "17, or else even 18",
            "17 and/or 18",
            "17; or 18",
            "18 apples or 20 oranges",
            "That is 14 days or 3 weeks.",
        ] {
            assert!(is_alternative(text), "{text}");
        }
        for text in [
            "It is 3/4 or 0.75.",
            "For 20",
            "90 minutes or 1.5 hours",
            "It is 2.5 or 5/2",
            "18 for 20",
            "18 or 20, so 5",
            "3.5 or 5",
            "It is 18, so x = 20",
            "x = 18 or max = 20",
            "20",
            "",
        ] {
            assert!(!is_alternative(text), "{text}");
        }
    }
}
