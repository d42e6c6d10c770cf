//! Reads formulas that are written in plain text with spaces: `So f(x) = x^2 + 1`.

use std::ops::Range;

use super::sentence;
use crate::grade::normal::minus;
use crate::grade::normal::names::PLAIN;

/// Signs between two operands.
const OPERATORS: [&str; 21] = [
    "+", "*", "**", "/", "=", "<", ">", "<=", ">=", "≤", "≥", "×", "·", "÷", "±", "≈", "\\approx", "choose", "\\cdot",
    "\\times", "\\div",
];
/// Operators with which numbers are one value, whatever stands before them.
const JOINING: [&str; 3] = ["≈", "\\approx", "choose"];
/// Signs of an inequality.
const INEQUALITIES: [char; 4] = ['<', '>', '≤', '≥'];
/// Usual variables that are no units.
pub(super) const VARIABLES: [char; 5] = ['x', 'y', 'z', 'n', 'k'];
/// Most operands of such a formula.
const MOST: usize = 16;

/// Returns the whole formula around one of its operands, if the operand alone would say something
/// else: the formula is a computation, or holds a variable or a function behind its name. In
/// `x = 5` the last number counts.
pub(super) fn formula(text: &str, operand: Range<usize>) -> Option<&str> {
    let start = text[..operand.start].rfind('\n').map_or(0, |at| at + 1);
    let end = text[operand.end..].find('\n').map_or(text.len(), |at| operand.end + at);
    let (name, behind) = first_word(&text[operand.end..end]);
    let pi = is_number(&text[operand.clone()])
        && ["pi", "π"].contains(&name.trim_end_matches(['.', ',', ';', ':', '!', '?', '*']));
    let (mut from, mut to) = (
        start + before_factors(&text[start..operand.start], &text[operand.clone()]).len(),
        if pi { end - behind.len() } else { operand.end },
    );
    let factors = from < operand.start || pi;
    for _ in 0..MOST {
        let (rest, sign) = last_word(&text[start..from]);
        let (before, left) = last_word(rest);
        let rounded = ["≈", "\\approx"].contains(&sign);
        let number = if rounded { left.trim_matches('$') } else { left };
        let chooses = sign != "choose" || left.bytes().all(|byte| byte.is_ascii_digit());
        let exact = !rounded || is_exact(before, number, &text[operand.clone()]);
        if !is_operator(sign) || !is_operand(number) || !chooses || !exact {
            break;
        }
        // `3 m + 2`, `Group A - 5`
        let unit = left.len() == 1
            && left.contains(char::is_alphabetic)
            && before.trim_end().ends_with(|c: char| c.is_ascii_digit());
        let name = left.chars().all(|c| c.is_ascii_uppercase()) && sign.chars().all(minus::is_sign);
        if unit || name {
            return None;
        }
        from = start + before_factors(before, left).len();
    }
    for _ in 0..MOST {
        let (sign, rest) = first_word(&text[to..end]);
        let (right, behind) = first_word(rest);
        let clause = text[operand.start..to].ends_with([',', ';', ':', '.']);
        let rounded = ["≈", "\\approx"].contains(&sign);
        if clause
            || rounded
            || !is_operator(sign)
            || !is_operand(right.trim_end_matches(['.', ',', ';', ':', '!', '?']))
        {
            break;
        }
        to = end - behind.len();
    }
    let formula = text[from..to].trim();
    let value = formula.rsplit('=').next().unwrap_or(formula).trim();
    let letters = |text: &str| text.contains(|c: char| c.is_ascii_alphabetic() || "√π∛".contains(c));
    let several = value.split_whitespace().any(is_operator) && letters(value);
    let variable = value.len() < formula.len() && value.trim_end_matches('.').ends_with(VARIABLES);
    let inequality = formula.contains(INEQUALITIES) && letters(formula);
    // In `Room 5 - 18 dollars` a sign only sets two things apart.
    let (_, verb) = last_word(&text[start..from]);
    let whole = is_verb(verb) || verb.ends_with([':', '=']) || value.len() < formula.len();
    let joined = value.split_whitespace().any(|word| JOINING.contains(&word));
    let computed = (whole || joined) && value.split_whitespace().any(is_operator) && !formula.contains(INEQUALITIES);
    (several || variable || inequality || computed || factors).then_some(formula)
}

/// Returns a text before an operand without the names and the numbers that white space multiplies
/// to the operand: those of `3 ln 2`, `2 sqrt(3)`, `9 pi` and `± 3`.
fn before_factors<'a>(before: &'a str, operand: &str) -> &'a str {
    let named = PLAIN.iter().any(|name| operand.starts_with(name)) || operand.starts_with(['√', 'π']);
    let (rest, name) = last_word(before);
    let (_, word) = last_word(rest);
    let base = name.strip_prefix("log_").unwrap_or_default();
    let function = (PLAIN.contains(&name) && !["pi", "infinity", "infty"].contains(&name)) || is_number(base);
    // `He cut the log 5 times.`
    let value = is_verb(word) || is_operator(word) || is_number(word) || word.ends_with([':', '=']);
    let (function, before) = if function && value {
        (true, rest)
    } else {
        (false, before)
    };
    let (rest, factor) = last_word(before);
    let before = if (function || named) && is_number(factor) {
        rest
    } else {
        before
    };
    let (rest, sign) = last_word(before);
    let single = ["±", "\\pm"].contains(&sign) && !is_operand(last_word(rest).1);
    if single { rest } else { before }
}

/// Returns true for a value that a decimal only rounds: `36π`, `e^2`, `\sqrt{2}`, the 2 of `ln 2`,
/// and `1/3` if the decimal has places. Rounded arithmetic is an answer: `37 / 5 = 7.4 ≈ 8`.
fn is_exact(before: &str, value: &str, rounded: &str) -> bool {
    let (_, word) = last_word(before);
    let symbol =
        value.contains(['π', '√', '∛', '\\']) || value.contains("e^") || PLAIN.iter().any(|name| value.contains(name));
    let fraction = is_number(value) && value.contains('/') && (word == "=" || !is_operator(word));
    symbol
        || PLAIN.contains(&word)
        || word.starts_with("log_")
        || (fraction && rounded.trim_end_matches('.').contains('.'))
}

/// Returns true for the digits of a number or a fraction with its sign.
fn is_number(word: &str) -> bool {
    let digits = word.trim_start_matches(minus::is_sign);
    !digits.is_empty()
        && digits
            .bytes()
            .all(|byte| byte.is_ascii_digit() || b"./".contains(&byte))
}

/// Returns true for a verb before a value, and for no word.
pub(super) fn is_verb(word: &str) -> bool {
    // `rows 3 400` are two numbers.
    let singular =
        !word.ends_with('s') || ["is", "was", "has", "equals", "gives", "makes", "costs", "leaves"].contains(&word);
    word.is_empty() || ["so", "thus"].contains(&word.to_lowercase().as_str()) || (singular && sentence::is_verb(word))
}

fn is_operator(word: &str) -> bool {
    OPERATORS.contains(&word) || (word.chars().count() == 1 && word.chars().all(minus::is_sign))
}

/// Returns true for a piece of a formula without words: `f(x)`, `2x^2`, `sqrt(2)`.
fn is_operand(word: &str) -> bool {
    let sign = |c: char| c.is_ascii_alphanumeric() || "()[]{}^_/.|\\√∛π∞²³*+!".contains(c) || minus::is_sign(c);
    let mut names = word.split(|c: char| !c.is_ascii_alphabetic());
    let short = names.all(|name| name.len() < 2 || PLAIN.contains(&name) || word.contains('\\'));
    word.contains(|c: char| c.is_alphanumeric() || c == '∞') && word.chars().all(sign) && short && !word.ends_with('.')
}

/// Returns the text before the last word, and the word.
fn last_word(text: &str) -> (&str, &str) {
    let text = text.trim_end();
    let word = text.rsplit(char::is_whitespace).next().unwrap_or(text);
    text.split_at(text.len() - word.len())
}

/// Returns the first word, and the text behind it.
fn first_word(text: &str) -> (&str, &str) {
    let text = text.trim_start();
    text.split_at(text.find(char::is_whitespace).unwrap_or(text.len()))
}

#[cfg(test)]
mod tests {
    use super::formula;

    #[test]
    fn a_formula_with_a_variable_is_taken_whole() {
        for (text, operand, found) in [
            ("So, f(x) = x^2 + 1.", "1.", Some("f(x) = x^2 + 1.")),
            ("f(x) = 2x + 3 is the answer", "3", Some("f(x) = 2x + 3")),
            ("It is 3x + y.", "3x", Some("3x + y.")),
            ("Hence x > 3.", "3.", Some("x > 3.")),
            ("The area is 4 + sqrt(2).", "sqrt(2).", Some("4 + sqrt(2).")),
            ("We get y = 2x.", "2x.", Some("y = 2x.")),
            ("so x = sqrt(2)", "sqrt(2)", None),
            ("so x = 5", "5", None),
            ("It is 12 - 3.", "3.", Some("12 - 3.")),
            ("12 - 3", "3", Some("12 - 3")),
            ("Room 12 - 3 dollars", "3", None),
            ("He earns 4 x 3 dollars", "3", None),
            ("3 m + 2 m", "2", None),
            ("Group A - 5", "5", None),
            ("5 m = 500 cm", "500", None),
            ("t = 5h", "5h", None),
            ("A total of 12", "12", None),
            ("The volume is 36π ≈ 113.1.", "113.1.", Some("36π ≈ 113.1.")),
            ("It is $\\frac{1}{3}$ ≈ 0.33", "0.33", Some("$\\frac{1}{3}$ ≈ 0.33")),
            ("So I = 3 ln 2 ≈ 2.08", "2.08", Some("I = 3 ln 2 ≈ 2.08")),
            ("The area is 9 pi square units.", "9", Some("9 pi")),
            ("It is 1 + 2 sqrt(3).", "sqrt(3).", Some("1 + 2 sqrt(3).")),
            ("So x = ± 12.", "12.", Some("x = ± 12.")),
            ("It is 5 ± 2.", "2.", Some("5 ± 2.")),
            ("We get 5 choose 2 ways", "2", Some("5 choose 2")),
            ("I choose 2", "2", None),
            ("He cut the log 5 times", "5", None),
            ("They ate 4 pies", "4", None),
        ] {
            let at = text.find(operand).unwrap();
            assert_eq!(formula(text, at..at + operand.len()), found, "{text}");
        }
    }
}
