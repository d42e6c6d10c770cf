//! Reads words in a formula: numbers, letters of choices, verbs and conjunctions.

use super::expr::Expr;
use super::number::Number;
use super::op::op;
use super::pieces::top_level;
use crate::grade::normal::number_words::{parts, spelled_out};
use crate::grade::normal::token::Token;
use crate::grade::normal::words::plain_words;

/// Returns the number that words spell, also with its sign: `negative two`.
pub(super) fn in_words(text: &str) -> Option<Expr> {
    let number = |text: &str| {
        spelled_out(text)
            .and_then(Number::whole)
            .map(|number| Expr::Number(number, 0))
    };
    let whole = number(text);
    whole.or_else(|| {
        let plain = plain_words(text);
        let rest = ["negative ", "minus "].iter().find_map(|sign| plain.strip_prefix(sign));
        rest.and_then(number)
            .map(|number| Expr::Negative(Box::new(number)))
            .or_else(|| in_parts(&plain))
            .or_else(|| money(&plain, text.contains('$')))
    })
}

/// Reads a fraction in words, alone or behind a whole number: `two-thirds`, `one and a half`.
fn in_parts(words: &str) -> Option<Expr> {
    let fraction = |words: &str| {
        let (count, part) = words.rsplit_once([' ', '-'])?;
        let count = if count == "a" { 1 } else { spelled_out(count)? };
        quotient(count, parts(part)?)
    };
    match words.rsplit_once(" and ") {
        Some((whole, rest)) => {
            let whole = Expr::Number(Number::whole(spelled_out(whole)?)?, 0);
            Some(Expr::Sum(Box::new(whole), Box::new(fraction(rest)?)))
        }
        None => fraction(words),
    }
}

/// Reads an amount of money in two parts: `85 dollars and 50 cents`, `$85 and 50 cents`.
fn money(words: &str, has_sign: bool) -> Option<Expr> {
    let words: Vec<&str> = words.split(' ').filter(|word| *word != "and").collect();
    let (large, unit, small, cents) = match words.as_slice() {
        [large, unit, small, cents] => (large, unit, small, cents),
        [large, small, cents] if has_sign => (large, &"dollars", small, cents),
        _ => return None,
    };
    let money = ["dollar", "dollars", "euro", "euros"].contains(unit) && ["cent", "cents"].contains(cents);
    let large: u64 = large.trim_start_matches('$').replace(',', "").parse().ok()?;
    let small: u64 = small.parse().ok().filter(|small| money && *small < 100)?;
    quotient(large.checked_mul(100)?.checked_add(small)?, 100)
}

fn quotient(above: u64, below: u64) -> Option<Expr> {
    let number = |number| Some(Box::new(Expr::Number(Number::whole(number)?, 0)));
    Some(Expr::Quotient(number(above)?, number(below)?))
}

/// Returns the letters or the Roman numerals of choices: `(A), (C)`, `I and III`.
pub(super) fn letters(words: &str) -> Option<Vec<String>> {
    let pieces = words
        .split([',', ';', ' '])
        .map(|piece| piece.trim_matches(['(', ')', '.']));
    let pieces: Vec<&str> = pieces.filter(|piece| !piece.is_empty() && *piece != "and").collect();
    let numeral = |piece: &str| piece.bytes().all(|byte| b"IVX".contains(&byte));
    let single =
        |piece: &&str| (piece.len() == 1 || numeral(piece)) && piece.bytes().all(|byte| byte.is_ascii_uppercase());
    let several = pieces.len() > 1 && (words.contains([',', ';']) || words.contains(" and "));
    (several && pieces.iter().all(single)).then(|| pieces.iter().map(|piece| piece.to_lowercase()).collect())
}

/// Returns the relations that `\lor` and `\land` join with the words for these signs. Between
/// statements of logic the signs stay.
pub(super) fn with_joined_relations(tokens: &[Token]) -> Option<Vec<Token>> {
    let word = |token: &Token| match token {
        Token::Command(name) if name == "lor" => Some("or"),
        Token::Command(name) if name == "land" => Some("and"),
        _ => None,
    };
    let relates = tokens.iter().any(|token| op(token).is_some());
    (relates && tokens.iter().any(|token| word(token).is_some())).then(|| {
        let put = |token: &Token| word(token).map_or_else(|| token.clone(), |word| Token::Text(word.into()));
        tokens.iter().map(put).collect()
    })
}

/// Returns `N = 11` for `N\text{ is }11`.
pub(super) fn with_equals_signs(tokens: &[Token]) -> Option<Vec<Token>> {
    const EQUALS: [&str; 4] = ["is", "equals", "is equal to", "are"];
    let is_sign = |token: &Token| matches!(token, Token::Text(words) if EQUALS.contains(&words.trim()));
    let at = top_level(tokens, is_sign)?;
    let number = |token: &Token| token.is_number() || *token == Token::Symbol('-');
    let stands = at > 0 && !tokens[at - 1].is_number() && tokens.get(at + 1).is_some_and(number);
    stands.then(|| {
        let mut changed = tokens.to_vec();
        changed[at] = Token::Symbol('=');
        changed
    })
}

#[cfg(test)]
mod tests {
    use crate::grade::math::equal;

    #[test]
    fn words_in_a_formula_have_their_meaning() {
        for (answer, label, same) in [
            ("negative two", "-2", true),
            ("minus one", "-1", true),
            ("\\text{negative }8", "-8", true),
            ("\\text{negative two}", "2", false),
            ("\\text{twelve hundred}", "1200", true),
            ("17 \\text{ (mod } 20)", "17", true),
            ("17 \\pmod{20}", "17 \\pmod{30}", false),
            ("17", "17 \\pmod{20}", false),
            ("1204 \\equiv 204 \\pmod{1000}", "204", true),
            ("x \\equiv 3 \\pmod 5", "3", false),
            ("\\text{(A), (C)}", "A, C", true),
            ("\\text{A and C}", "\\text{C, A}", true),
            ("\\text{A and C}", "A, B", false),
            ("\\text{II and III}", "II, III", true),
            ("\\text{II and III}", "I, III", false),
            ("\\text{one half}", "1/2", true),
            ("\\text{two-thirds}", "2/3", true),
            ("three quarters", "0.75", true),
            ("two and a half", "2.5", true),
            ("one fifth", "5", false),
            ("85\\text{ dollars and }50\\text{ cents}", "85.5", true),
            ("3 dollars and 5 cents", "3.5", false),
            ("\\$15 and 20 cents", "15.2", true),
            ("3 dollars and 5 cents", "\\$3.05", true),
            ("x \\le -3 \\lor x \\ge 2", "(-\\infty,-3]\\cup[2,\\infty)", true),
            ("x > 1 \\land x < 4", "(1,4)", true),
            ("x > 1 \\land x < 4", "(-\\infty,4)\\cup(1,\\infty)", false),
            ("p \\lor q", "p \\land q", false),
            ("N\\text{ is }11", "11", true),
            ("\\text{minimum value is }11", "11", true),
            ("\\text{at most }11", "11", false),
        ] {
            assert_eq!(equal(answer, label), same, "{answer} and {label}");
        }
    }
}
