//! Tells a formula without delimiters from a number in a sentence, by the signs next to the number.

use super::spaced::{VARIABLES, is_verb};
use crate::grade::normal::names::PLAIN;
use crate::grade::normal::scale::of_money;
use crate::grade::normal::{minus, vulgar};

/// Returns true if stars between these texts raise to a power: `2**10`, `x**2`, `(1+x)**n`.
fn is_power(before: &str, behind: &str) -> bool {
    let base = before.chars().rev().take_while(char::is_ascii_alphabetic).count();
    let raised = base == 1 || (base == 0 && before.ends_with(|c: char| c.is_ascii_digit() || c == ')'));
    raised && behind.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '(' || minus::is_sign(c))
}

/// Returns true for `2*3`, `10+4`, `2*x` and `20!/18!`. Between numbers a minus may be a dash.
fn is_computed(text: &str) -> bool {
    let joins = |(at, sign): (usize, &str)| {
        let (before, behind) = (&text[..at], &text[at + sign.len()..]);
        let base = before.chars().rev().take_while(char::is_ascii_alphabetic).count();
        let operand = |c: char| c.is_ascii_digit() || c == '!';
        let operand = base == 1 || (base == 0 && before.ends_with(operand) && (sign != "/" || before.ends_with('!')));
        let factor = behind.bytes().take_while(u8::is_ascii_alphabetic).count();
        operand && (factor == 1 || behind.starts_with(|c: char| c.is_ascii_digit()))
    };
    !text.contains('=') && text.match_indices(['+', '*', '×', '·', '÷', '/']).any(joins)
}

/// Returns true for a product or a choice of two numbers: `3x6`, `7P3`.
pub(super) fn is_product(text: &str) -> bool {
    let plain = |digits: &str| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    text.split_once(['x', 'C', 'P'])
        .is_some_and(|(one, other)| plain(one) && plain(other))
}

/// Returns true for `1e3` and `-1.5E-3`.
fn is_scientific(text: &str) -> bool {
    let digits = |digits: &str| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let power = text.split_once(['e', 'E']);
    power.is_some_and(|(number, power)| {
        let number = number.trim_start_matches(minus::is_sign).replacen('.', "", 1);
        digits(&number) && digits(power.trim_start_matches(['-', '+']))
    })
}

/// Returns true if signs next to the number change its value.
pub(super) fn is_formula(text: &str) -> bool {
    let mut names = text.split(|c: char| !c.is_ascii_alphabetic());
    let power = text
        .match_indices("**")
        .any(|(at, sign)| is_power(&text[..at], &text[at + sign.len()..]));
    let coefficient = text
        .strip_suffix(VARIABLES)
        .is_some_and(|number| number.parse::<f64>().is_ok());
    power
        || coefficient
        || is_computed(text)
        || is_scientific(text)
        || is_product(text)
        || text
            .strip_suffix('!')
            .is_some_and(|number| number.ends_with(|c: char| c.is_ascii_digit()))
        || text.contains(vulgar::is_fraction)
        || text.contains(['\\', '^', '_', '{', '}', '√', '∛', 'π', 'θ', '±'])
        || text.contains(|c: char| "⁰¹²³⁴⁵⁶⁷⁸⁹₀₁₂₃₄₅₆₇₈₉".contains(c))
        || names.any(|name| name.len() > 1 && PLAIN.contains(&name))
}

/// Returns true if groups of three digits stand behind a verb, a sign or no word at all: `It is
/// 1 800`. Behind another word they may be two numbers: `In row 3 400 people`.
pub(super) fn is_grouped(before: &str, groups: &str, number: &str) -> bool {
    let mut digits = groups.strip_suffix(' ').unwrap_or_default().split(' ');
    let first = digits.next().unwrap_or_default();
    let begins = (1..=3).contains(&first.len()) && !first.starts_with('0');
    let last = number.split('.').next().unwrap_or_default();
    let threes = digits.clone().all(|group| group.len() == 3) && last.len() == 3;
    let before = before.trim_end_matches(' ');
    let word = before.rsplit([' ', '\n']).next().unwrap_or_default();
    // `Scores: 100 200 300` may be a list.
    let one = digits.next().is_none() || first.len() < 3;
    let value = one && (is_verb(word) || word.ends_with(['=', ':', '≈', '#', '$', '€', '£']));
    begins && threes && last.bytes().all(|byte| byte.is_ascii_digit()) && value
}

/// Returns true for the minutes of a time, `3:30`, and for the last term of a ratio.
pub(in crate::grade) fn is_of_time(text: &str, number: &str) -> bool {
    let before = &text[..number.as_ptr().addr() - text.as_ptr().addr()];
    let hour = before
        .strip_suffix(':')
        .filter(|hour| hour.ends_with(|c: char| c.is_ascii_digit()));
    // `Q1:15` answers a question.
    let word = hour.map(|hour| hour.trim_end_matches(|c: char| c.is_ascii_digit()));
    word.is_some_and(|word| !word.ends_with(char::is_alphabetic)) && number.bytes().all(|byte| byte.is_ascii_digit())
}

/// Returns an amount of money with the letter of its scale: the `$15M` of a sentence.
pub(super) fn scaled_money<'a>(text: &'a str, number: &str) -> Option<&'a str> {
    let start = number.as_ptr().addr() - text.as_ptr().addr();
    let digits = number.trim_end_matches(|c: char| c.is_ascii_alphabetic()).len();
    let sign = text[..start].chars().next_back().filter(|c| "$€£₹".contains(*c))?;
    let behind = &text[start + digits..];
    let letters = behind.bytes().take_while(u8::is_ascii_alphabetic).count();
    of_money(&behind[..letters])?;
    Some(&text[start - sign.len_utf8()..start + digits + letters])
}
