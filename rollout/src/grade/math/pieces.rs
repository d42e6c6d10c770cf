//! Lists of tokens: trimmed, split, merged and signed.

use super::lexer::Token;
use crate::grade::answer::wide::is_han;

pub(super) fn is_command(token: &Token, wanted: &str) -> bool {
    matches!(token, Token::Command(name) if name == wanted)
}

pub(super) fn is_separator(token: &Token) -> bool {
    match token {
        Token::Symbol(c) => *c == ',' || *c == ';',
        Token::Text(words) => ["and", "or"].contains(&words.trim().trim_matches(',').trim()),
        _ => false,
    }
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
        && (stop(first) || *first == Token::Symbol('='))
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

/// Merges `1,234,567.8` into one number, if only a sign, units and a percent sign stand next to it.
pub(super) fn grouped(tokens: &[Token]) -> Option<Vec<Token>> {
    let start = usize::from(matches!(tokens.first(), Some(Token::Symbol('-' | '+'))));
    let Token::Number(first, spaced) = tokens.get(start)? else {
        return None;
    };
    let (mut digits, mut at) = (first.clone(), start + 1);
    while let (Some(Token::Symbol(',')), Some(Token::Number(group, false))) = (tokens.get(at), tokens.get(at + 1)) {
        let whole = group.split('.').next().unwrap_or_default();
        if whole.len() != 3 || digits.contains('.') {
            return None;
        }
        digits.push_str(group);
        at += 2;
    }
    let only_units = tokens[at..]
        .iter()
        .all(|t| matches!(t, Token::Text(_) | Token::Letter(_) | Token::Symbol('%')) || is_unit_sign(t));
    if at == start + 1 || first.len() > 3 || first.contains('.') || !only_units {
        return None;
    }
    let mut merged = tokens[..start].to_vec();
    merged.push(Token::Number(digits, *spaced));
    merged.extend_from_slice(&tokens[at..]);
    Some(merged)
}

/// Returns true for a sign that occurs in Chinese units.
fn is_unit_sign(token: &Token) -> bool {
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
