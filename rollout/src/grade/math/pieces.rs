//! Lists of tokens: trimmed, split, merged and signed.

use crate::grade::normal::token::Token;
use crate::grade::normal::wide::is_han;

pub(super) fn is_command(token: &Token, wanted: &str) -> bool {
    token.is_command(wanted)
}

/// Words between the elements of a list.
const JOINING: [&str; 13] = [
    "and",
    "or",
    "und",
    "oder",
    "y",
    "o",
    "et",
    "ou",
    "или",
    "as well as",
    "and also",
    "&",
    "\\&",
];

pub(super) fn is_separator(token: &Token) -> bool {
    match token {
        Token::Symbol(c) => [',', ';', '和', '或'].contains(c),
        Token::Text(words) => words.trim() == "," || JOINING.contains(&words.trim().trim_matches(',').trim()),
        _ => false,
    }
}

/// Returns the tokens with each `&` between two elements as a separator. Next to a relation it only
/// aligns the rows of a display, and is left out.
pub(super) fn with_ampersands(tokens: &[Token], is_relation: impl Fn(&Token) -> bool) -> Option<Vec<Token>> {
    let is_ampersand = |token: &Token| *token == Token::Symbol('&') || is_command(token, "&");
    let aligns = |at: Option<usize>| at.and_then(|at| tokens.get(at)).is_none_or(&is_relation);
    let mut depth = 0usize;
    let mut changed = Vec::with_capacity(tokens.len());
    for (at, token) in tokens.iter().enumerate() {
        match token {
            Token::Command(name) if name.starts_with("begin ") => depth += 1,
            Token::Command(name) if name.starts_with("end ") => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > 0 || !is_ampersand(token) {
            changed.push(token.clone());
        } else if !aligns(at.checked_sub(1)) && !aligns(Some(at + 1)) {
            changed.push(Token::Symbol(','));
        }
    }
    (changed != tokens).then_some(changed)
}

/// Removes full stops and similar signs at both ends.
pub(super) fn trimmed(mut tokens: &[Token]) -> &[Token] {
    let stop = |token: &Token| matches!(token, Token::Symbol('.' | ',' | ';' | ':'));
    while let [before @ .., last] = tokens
        && (stop(last) || is_command(last, "\\"))
    {
        tokens = before;
    }
    while let [first, after @ ..] = tokens
        && (stop(first) || *first == Token::Symbol('=') || is_command(first, "implies"))
    {
        tokens = after;
    }
    tokens
}

/// Splits at the separators outside brackets. Returns `None` if the brackets do not match. Any
/// opening bracket matches any closing one, because of half-open intervals.
pub(super) fn split(tokens: &[Token], separator: impl Fn(&Token) -> bool) -> Option<Vec<&[Token]>> {
    let (mut pieces, mut depth, mut start) = (Vec::new(), 0usize, 0);
    for (at, token) in tokens.iter().enumerate() {
        match token {
            Token::Symbol('(' | '[' | '{') | Token::Set('{') => depth += 1,
            Token::Symbol(')' | ']' | '}') | Token::Set('}') => depth = depth.checked_sub(1)?,
            Token::Command(name) if name.starts_with("begin ") => depth += 1,
            Token::Command(name) if name.starts_with("end ") => depth = depth.checked_sub(1)?,
            token if depth == 0 && separator(token) => {
                pieces.push(&tokens[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    pieces.push(&tokens[start..]);
    // Between two separators (`1, and 2`) there is no element.
    if pieces.len() > 1 {
        pieces.retain(|piece| !piece.is_empty());
    }
    (depth == 0).then_some(pieces)
}

/// Returns true for a sign that occurs in Chinese units.
pub(super) fn is_unit_sign(token: &Token) -> bool {
    matches!(token, Token::Symbol(c) if is_han(*c))
}

/// Replaces every `\pm` with `sign`, and every `\mp` with the opposite sign.
pub(super) fn signed(tokens: &[Token], sign: char) -> Vec<Token> {
    let other = if sign == '+' { '-' } else { '+' };
    let put = |token: &Token| match token {
        Token::Command(name) if name == "pm" => Token::Symbol(sign),
        Token::Command(name) if name == "mp" => Token::Symbol(other),
        token => token.clone(),
    };
    tokens.iter().map(put).collect()
}

/// Returns the place of the first such token outside brackets.
pub(super) fn top_level(tokens: &[Token], wanted: impl Fn(&Token) -> bool) -> Option<usize> {
    let mut depth = 0usize;
    tokens.iter().position(|token| {
        match token {
            Token::Symbol('(' | '[' | '{') | Token::Set('{') => depth += 1,
            Token::Symbol(')' | ']' | '}') | Token::Set('}') => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth == 0 && wanted(token)
    })
}
