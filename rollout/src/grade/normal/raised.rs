//! Reads the exponents and the indices of units, and the endings of ordinals.

use super::token::Token;

/// Returns the length of a unit of astronomy with the letter and the stroke before it:
/// `M_{\odot}`.
pub(super) fn of_sun(index: &[Token]) -> usize {
    match index {
        [sun, ..] if sun.is_command("odot") => 3,
        [Token::Symbol('{'), sun, Token::Symbol('}'), ..] if sun.is_command("odot") => 5,
        _ => 0,
    }
}

/// Returns the number of tokens of an ordinal's ending: `12^{\text{th}}`, `90^{o}`.
pub(super) fn ordinal(out: &[Token], rest: &[Token]) -> Option<usize> {
    out.last().filter(|last| last.is_number())?;
    let ending = |words: &str| ["st", "nd", "rd", "th", "o"].contains(&words.trim());
    match rest {
        [Token::Symbol('^'), Token::Text(words), ..] if ending(words) => Some(2),
        [
            Token::Symbol('^'),
            Token::Symbol('{'),
            Token::Text(words),
            Token::Symbol('}'),
            ..,
        ] if ending(words) => Some(4),
        [
            Token::Symbol('^'),
            Token::Symbol('{'),
            Token::Letter(a),
            Token::Letter(b),
            Token::Symbol('}'),
            ..,
        ] if ending(&format!("{a}{b}")) => Some(5),
        [
            Token::Symbol('^'),
            Token::Symbol('{'),
            Token::Letter('o'),
            Token::Symbol('}'),
            ..,
        ] => Some(4),
        [Token::Symbol('^'), Token::Letter('o'), ..] => Some(2),
        _ => None,
    }
}

/// Returns the number of tokens of a unit's exponent; 0 without one.
pub(super) fn exponent(tokens: &[Token]) -> usize {
    match tokens {
        [Token::Symbol('^'), Token::Number(..), ..] => 2,
        [Token::Symbol('^'), Token::Symbol('-'), Token::Number(..), ..] => 3,
        [
            Token::Symbol('^'),
            Token::Symbol('{'),
            Token::Number(..),
            Token::Symbol('}'),
            ..,
        ] => 4,
        [
            Token::Symbol('^'),
            Token::Symbol('{'),
            Token::Symbol('-'),
            Token::Number(..),
            Token::Symbol('}'),
            ..,
        ] => 5,
        _ => 0,
    }
}
