//! Numbers in digits that are longer than any other answer may be.

use super::budget::LONGEST;
use super::expr::Expr;
use super::numerals::decimal;
use crate::grade::normal::minus;

/// Most digits of a number that is compared with formulas too. A longer one equals only the same
/// digits.
const MOST: usize = 4900;

/// Returns the digits of a long number with its sign, without zeros at its beginning and at the end
/// of its decimals. Commas may group them.
pub(super) fn long(text: &str) -> Option<String> {
    if text.len() <= LONGEST {
        return None;
    }
    let text = text.trim_matches(|c: char| c.is_whitespace() || "$\\*".contains(c));
    let text = text.strip_suffix('.').unwrap_or(text);
    let unsigned = text.strip_prefix(|c| c == '+' || minus::is_sign(c)).unwrap_or(text);
    let (whole, decimals) = unsigned.split_once('.').unwrap_or((unsigned, ""));
    let groups: Vec<&str> = whole.split(',').collect();
    let (first, others) = groups.split_first()?;
    let grouped = others.is_empty() || ((1..=3).contains(&first.len()) && others.iter().all(|group| group.len() == 3));
    let whole = groups.concat();
    let plain = whole.bytes().chain(decimals.bytes()).all(|byte| byte.is_ascii_digit());
    if !grouped || !plain || whole.is_empty() {
        return None;
    }
    let (whole, decimals) = (whole.trim_start_matches('0'), decimals.trim_end_matches('0'));
    if whole.is_empty() && decimals.is_empty() {
        return Some("0".to_owned());
    }
    let sign = if text.starts_with(minus::is_sign) { "-" } else { "" };
    let point = if decimals.is_empty() { "" } else { "." };
    Some(format!("{sign}{whole}{point}{decimals}"))
}

/// Returns the value of a long number's digits, unless they are too many.
pub(super) fn value(digits: &str) -> Option<Expr> {
    let unsigned = digits.strip_prefix('-').unwrap_or(digits);
    let number = Some(unsigned).filter(|digits| digits.len() <= MOST).and_then(decimal)?;
    let is_negative = unsigned.len() < digits.len();
    Some(if is_negative {
        Expr::Negative(Box::new(number))
    } else {
        number
    })
}
