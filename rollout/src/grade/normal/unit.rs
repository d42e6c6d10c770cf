//! Drops units of measure from a number, and reads words of scale. `math/measure.rs` compares
//! units.

use super::raised::{exponent, of_sun, ordinal};
use super::token::Token;
use super::unit_names::is_han_unit;
use super::wide::is_han;
use super::{currency, numeral, scale};

/// Drops words next to mathematics that do not change it: units with exponents and quotients,
/// ordinals, currencies. A word of scale becomes a factor. A word that changes the number stays,
/// and then nothing reads the tokens as a formula.
pub(crate) fn stripped(tokens: &[Token]) -> Vec<Token> {
    let mathematics = |token: &Token| !matches!(token, Token::Text(_));
    if !tokens.iter().any(mathematics) {
        return tokens.to_vec();
    }
    let mut out: Vec<Token> = Vec::with_capacity(tokens.len());
    let mut at = 0;
    while at < tokens.len() {
        let rest = &tokens[at..];
        let used = if ends_operand(&out) {
            behind(&mut out, rest)
        } else {
            before(&mut out, rest)
        };
        if used == 0 {
            out.push(tokens[at].clone());
        }
        at += used.max(1);
    }
    out
}

/// Returns true if a unit may follow.
fn ends_operand(out: &[Token]) -> bool {
    match out.last() {
        Some(Token::Number(..) | Token::Letter(_) | Token::Set('}')) => true,
        Some(Token::Symbol(c)) => [')', ']', '}', '!', '%', '\''].contains(c),
        Some(Token::Command(name)) => name.chars().all(|c| c.is_ascii_alphabetic()),
        _ => false,
    }
}

/// Reads words before mathematics. Returns the number of tokens used.
fn before(out: &mut Vec<Token>, rest: &[Token]) -> usize {
    let Some(Token::Text(words)) = rest.first() else {
        return 0;
    };
    if let Some(number) = numeral::read(words.trim()).filter(|number| number.length == words.trim().len()) {
        out.push(Token::Number(number.digits, false));
        return 1;
    }
    let inner = words.trim().trim_matches(['(', ')']);
    let mut letters = inner.chars();
    if let (Some(letter), None) = (letters.next(), letters.next())
        && letter.is_alphabetic()
        && is_letter_here(out, letter)
    {
        // A single letter is a choice, a constant, or a variable set upright.
        out.push(Token::Letter(letter));
        return 1;
    }
    let name = matches!(rest.get(1), Some(Token::Symbol('=' | ':')))
        || rest.get(1).is_some_and(|next| next.is_command("approx"));
    if ["negative", "minus"].contains(&words.trim().to_lowercase().as_str()) {
        out.push(Token::Symbol('-'));
        return 1;
    }
    let sentence = [" is", " are", " equals"]
        .iter()
        .any(|verb| words.trim_end().ends_with(verb));
    let neutral = name || sentence || words.trim_end().ends_with([':', '=']) || is_neutral(words);
    usize::from(is_unit(words) && neutral)
}

/// Words before a number that say nothing about it.
const NEUTRAL: [&str; 37] = [
    "about",
    "approximately",
    "approx",
    "around",
    "roughly",
    "nearly",
    "exactly",
    "only",
    "just",
    "total",
    "sum",
    "area",
    "volume",
    "length",
    "width",
    "height",
    "perimeter",
    "distance",
    "time",
    "cost",
    "price",
    "profit",
    "value",
    "answer",
    "result",
    "number",
    "average",
    "mean",
    "probability",
    "is",
    "the",
    "a",
    "of",
    "final",
    "there",
    "are",
    "at",
];

/// Returns true for words before a number that say nothing about it, and for currencies.
fn is_neutral(words: &str) -> bool {
    let mut parts = words
        .split(|c: char| !c.is_alphabetic())
        .filter(|word| !word.is_empty());
    parts.all(|word| {
        NEUTRAL.contains(&word.to_lowercase().as_str()) || currency::is_code(word) || currency::is_command(word)
    })
}

/// Returns true if a single letter set upright is mathematics at this place.
fn is_letter_here(out: &[Token], letter: char) -> bool {
    out.is_empty() || is_constant(letter)
}

fn is_constant(letter: char) -> bool {
    ['i', 'e'].contains(&letter)
}

/// Reads words, units and ordinals behind mathematics. Returns the number of tokens used.
fn behind(out: &mut Vec<Token>, rest: &[Token]) -> usize {
    if let Some(used) = ordinal(out, rest) {
        return used;
    }
    match rest {
        [Token::Text(words), ..] => {
            let mut letters = words.trim().chars();
            if let (Some(letter), None) = (letters.next(), letters.next())
                && is_constant(letter)
            {
                // A constant set upright: 2\mathrm{i}.
                out.push(Token::Letter(letter));
                return 1;
            }
            text(out, words, rest)
        }
        [Token::Symbol(c), ..] if is_han(*c) && matches!(out.last(), Some(Token::Number(..))) => han(out, rest),
        [Token::Symbol('/' | '*'), Token::Text(words), ..] if is_unit(words) => run(rest),
        [Token::Symbol('(' | '['), ..] => bracketed(rest),
        [Token::Letter('M' | 'R' | 'L'), Token::Symbol('_'), sun @ ..]
            if matches!(out.last(), Some(Token::Number(..))) =>
        {
            of_sun(sun)
        }
        [Token::Command(name), ..] if name == "frac" => quotient(rest),
        [Token::Command(name), after @ ..] if ["mu", "Omega", "AA", "Delta"].contains(&name.as_str()) => {
            let number = matches!(out.last(), Some(Token::Number(..)));
            let unit = matches!(after.first(), Some(Token::Text(words)) if is_unit(words));
            if let ([Token::Letter('m' | 'g' | 's' | 'L' | 'F' | 'A' | 'V')], "mu", true) =
                (after, name.as_str(), number)
            {
                return 2;
            }
            let alone = after.is_empty() && ["Omega", "AA"].contains(&name.as_str());
            usize::from(number && (unit || alone))
        }
        _ => 0,
    }
}

/// Reads words behind mathematics: scale and percent first, then a unit.
fn text(out: &mut Vec<Token>, words: &str, rest: &[Token]) -> usize {
    let mut left = words.trim();
    // `2-million`
    let compound = left.strip_prefix('-').filter(|rest| begins_with_scale(rest));
    left = compound.unwrap_or(left);
    while let Some(word) = left.split(' ').next().filter(|word| !word.is_empty()) {
        let Some(tokens) = scale::tokens(word.trim_matches(['.', ',', '(', ')'])) else {
            break;
        };
        out.extend(tokens);
        left = left[word.len()..].trim_start();
    }
    if left.is_empty() || ["points", "point"].contains(&left) {
        return 1;
    }
    if !is_unit(left) {
        return 0;
    }
    let used = 1 + exponent(&rest[1..]);
    let used = used + joined(&rest[used..]);
    // A unit between two numbers, as in `2 hours 30 minutes`, is not dropped.
    if begins_operand(&rest[used..]) { 0 } else { used }
}

fn begins_with_scale(words: &str) -> bool {
    words.split(' ').next().is_some_and(scale::is_factor)
}

fn begins_operand(tokens: &[Token]) -> bool {
    match tokens.first() {
        Some(Token::Number(..) | Token::Letter(_)) => true,
        Some(Token::Symbol('(')) => bracketed(tokens) == 0,
        Some(Token::Command(name)) => ["sqrt", "frac", "pi"].contains(&name.as_str()),
        _ => false,
    }
}

/// Returns the length of a unit with its exponents, and of the parts that signs join to it.
fn run(tokens: &[Token]) -> usize {
    let first = match tokens {
        [Token::Text(words), ..] if is_unit(words) => 1,
        [Token::Symbol('/' | '*'), Token::Text(words), ..] if is_unit(words) => 2,
        _ => return 0,
    };
    let first = first + exponent(&tokens[first..]);
    first + joined(&tokens[first..])
}

/// Returns the length of the units behind another unit.
fn joined(tokens: &[Token]) -> usize {
    let mut at = 0;
    loop {
        at += match &tokens[at..] {
            [Token::Text(words), ..] if is_unit(words) => 1,
            [Token::Symbol('/' | '*'), Token::Text(words), ..] if is_unit(words) => 2,
            // `light-years`, `person-hours`
            [Token::Symbol('-'), Token::Text(words), ..] if is_unit(words) && is_word(words) => 2,
            [Token::Symbol('/' | '*'), bracket @ ..] if bracketed(bracket) > 0 => 1 + bracketed(bracket),
            bracket if bracketed(bracket) > 0 => bracketed(bracket),
            _ => return at,
        };
        at += exponent(&tokens[at..]);
    }
}

/// Returns the length of brackets that hold only units.
fn bracketed(tokens: &[Token]) -> usize {
    let close = |token: &Token| matches!(token, Token::Symbol(')' | ']'));
    match tokens {
        [Token::Symbol('(' | '['), rest @ ..] => match rest.iter().position(close) {
            Some(end) if end > 0 && is_all_unit(&rest[..end]) => end + 2,
            _ => 0,
        },
        _ => 0,
    }
}

/// Returns the length of a fraction that holds only units: `\frac{\text{m}}{\text{s}}`.
fn quotient(tokens: &[Token]) -> usize {
    let Some((above, rest)) = group(&tokens[1..]) else {
        return 0;
    };
    let Some((below, rest)) = group(rest) else { return 0 };
    let units = is_all_unit(above) && is_all_unit(below);
    if units { tokens.len() - rest.len() } else { 0 }
}

/// Returns the content of a group without groups in it but exponents, and what follows.
fn group(tokens: &[Token]) -> Option<(&[Token], &[Token])> {
    let [Token::Symbol('{'), inside @ ..] = tokens else {
        return None;
    };
    let mut depth = 1usize;
    let end = inside.iter().position(|token| {
        match token {
            Token::Symbol('{') => depth += 1,
            Token::Symbol('}') => depth -= 1,
            _ => {}
        }
        depth == 0
    })?;
    Some((&inside[..end], &inside[end + 1..]))
}

fn is_all_unit(tokens: &[Token]) -> bool {
    !tokens.is_empty() && run(tokens) == tokens.len()
}

/// Returns true for words that are no mathematics and change none.
fn is_unit(words: &str) -> bool {
    if scale::is_rounding(words) {
        return true;
    }
    let digits = words.char_indices().filter(|(_, c)| c.is_ascii_digit());
    let exponents = digits.clone().all(|(at, _)| {
        let before = words[..at].trim_end_matches(['-', '{', '−']);
        before.ends_with(|c: char| c.is_alphabetic() || c == '^')
    });
    let changing = words
        .split(|c: char| !(c.is_alphanumeric() || c == '\''))
        .filter(|word| !word.is_empty())
        .any(scale::changes);
    exponents && !changing && !words.contains(['=', '<', '>', '+', '?'])
}

/// Returns true for words that can be no product of variables.
fn is_word(words: &str) -> bool {
    words.chars().take_while(|c| c.is_alphabetic()).count() > 3
}

/// Reads Chinese words of scale and units.
fn han(out: &mut Vec<Token>, rest: &[Token]) -> usize {
    let unit_sign = |token: &&Token| matches!(token, Token::Symbol(c) if *c == '/' || is_han(*c));
    let text: String = rest
        .iter()
        .take_while(unit_sign)
        .map(|token| if let Token::Symbol(c) = token { *c } else { '/' })
        .collect();
    let first: String = text.chars().take(1).collect();
    if let Some(tokens) = scale::tokens(&first) {
        let behind: String = text.chars().skip(1).collect();
        let ends = behind.is_empty() || is_han_unit(&behind);
        let whole = ends && text.chars().count() == rest.len();
        if whole {
            out.extend(tokens);
            return rest.len();
        }
    }
    let used = text.chars().count();
    let after = used + exponent(&rest[used..]);
    if is_han_unit(&text) && after == rest.len() {
        after
    } else {
        0
    }
}

#[cfg(test)]
mod tests {
    use crate::grade::math::equal;

    #[test]
    fn a_unit_is_dropped_and_an_upright_constant_is_kept() {
        for (one, other, same) in [
            ("1+2\\mathrm{i}", "1+2i", true),
            ("1+2\\mathrm{i}", "3", false),
            ("2\\mathrm{e}^2", "2e^2", true),
            ("2\\mathrm{e}", "2", false),
            ("5\\mathrm{ m}", "5", true),
            ("\\text{3-2}", "1", false),
            ("\\text{-3 cm}", "-3", true),
            ("\\text{−3 cm}", "-3", true),
            ("5米", "5", true),
            ("x=5平方米。", "5", true),
            ("1,000元", "1000", true),
            ("60千米/小时", "60", true),
            ("5 light-years", "5", true),
            ("12 \\text{ person-hours}", "12", true),
            ("12 \\text{foot}-\\text{pounds}", "12", true),
            ("12 light-years", "13", false),
            ("12 \\text{foot}-x", "12", false),
            ("5米^2", "5", true),
            ("5米", "6", false),
            ("5万", "5", false),
            ("5万米", "5", false),
            ("5万", "50000", true),
            ("5万元", "50000", true),
            ("2分之1", "2", false),
            ("5米3", "5", false),
            ("\\text{5 cm}", "5", true),
        ] {
            assert_eq!(equal(one, other), same, "{one} and {other}");
            assert_eq!(equal(other, one), same, "{other} and {one}");
        }
    }
}
