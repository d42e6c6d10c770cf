//! Merges the digits of a number that commas or spaces group. Both may also separate a list, so
//! they group digits only if nothing but units stands around the number.

use super::pieces::is_unit_sign;
use crate::grade::normal::token::Token;

/// Merges `1,234,567.8`, `1 234 567`, `1,00,000`, `1.234,50` and `12,50` euros into one number.
pub(super) fn merged(tokens: &[Token]) -> Option<Vec<Token>> {
    let is_before = |token: &&Token| matches!(token, Token::Symbol('-' | '+') | Token::Text(_));
    let relation = |token: &Token| *token == Token::Symbol('=') || token.is_command("approx");
    let side = tokens.iter().rposition(relation).map_or(0, |at| at + 1);
    if tokens[..side]
        .iter()
        .any(|token| matches!(token, Token::Symbol(',' | ';')))
    {
        return None;
    }
    let start = side + tokens[side..].iter().take_while(is_before).count();
    let (digits, used) = by_comma(&tokens[start..])
        .or_else(|| by_space(&tokens[start..]))
        .or_else(|| european(tokens, start))?;
    let behind = &tokens[start + used..];
    let only_units = behind
        .iter()
        .all(|t| matches!(t, Token::Text(_) | Token::Letter(_) | Token::Symbol('%')) || is_unit_sign(t));
    if !only_units {
        return None;
    }
    let mut merged = tokens[..start].to_vec();
    merged.push(Token::Number(digits, false));
    merged.extend_from_slice(behind);
    Some(merged)
}

/// Merges all groups of three digits behind commas, if every comma may group digits.
pub(super) fn all_merged(tokens: &[Token]) -> Option<Vec<Token>> {
    let mut merged = Vec::with_capacity(tokens.len());
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        match (token, by_comma(&tokens[at..])) {
            (Token::Number(first, spaced), Some((digits, used))) if !first.starts_with('0') => {
                merged.push(Token::Number(digits, *spaced));
                at += used;
            }
            (Token::Symbol(',' | ';'), _) => return None,
            _ => {
                merged.push(token.clone());
                at += 1;
            }
        }
    }
    (merged.len() < tokens.len()).then_some(merged)
}

/// Returns the whole part of a group's digits.
fn whole(digits: &str) -> &str {
    digits.split('.').next().unwrap_or_default()
}

/// Returns true for one to three digits, with which a grouped number begins.
fn begins(digits: &str) -> bool {
    (1..=3).contains(&digits.len()) && !digits.contains('.')
}

/// Merges groups behind commas, of three digits, or of two with three at the end.
fn by_comma(tokens: &[Token]) -> Option<(String, usize)> {
    let [Token::Number(first, _), ..] = tokens else {
        return None;
    };
    let mut groups: Vec<&str> = Vec::new();
    while let [Token::Symbol(','), Token::Number(group, false), ..] = &tokens[1 + 2 * groups.len()..] {
        groups.push(group);
    }
    let (last, middle) = groups.split_last()?;
    let threes = middle.iter().all(|group| group.len() == 3) && whole(last).len() == 3;
    // The Indian system: a group that begins with a zero is no element of a list.
    let twos = !middle.is_empty() && middle.iter().all(|group| group.len() == 2) && whole(last).len() == 3;
    let lakh = twos && first.len() <= 2 && middle.iter().any(|group| group.starts_with('0'));
    let plain = middle.iter().all(|group| !group.contains('.'));
    (begins(first) && plain && (threes || lakh)).then(|| {
        let digits = format!("{first}{}", groups.concat());
        (digits, 1 + 2 * groups.len())
    })
}

/// Merges groups of three digits behind spaces. Behind them a comma may begin the decimals.
fn by_space(tokens: &[Token]) -> Option<(String, usize)> {
    let [Token::Number(first, _), ..] = tokens else {
        return None;
    };
    let mut digits = first.clone();
    let mut used = 1;
    while let Some(Token::Number(group, true)) = tokens.get(used) {
        if whole(group).len() != 3 || digits.contains('.') {
            return None;
        }
        digits.push_str(group);
        used += 1;
    }
    if used == 1 || !begins(first) || first.starts_with('0') {
        return None;
    }
    if let [Token::Symbol(','), Token::Number(decimals, false), ..] = &tokens[used..]
        && !digits.contains('.')
        && decimals.len() != 3
        && !decimals.contains('.')
    {
        digits = format!("{digits}.{decimals}");
        used += 2;
    }
    Some((digits, used))
}

/// Merges `1.234,50`, and `12,50` with a currency other than dollars.
fn european(tokens: &[Token], start: usize) -> Option<(String, usize)> {
    let [
        Token::Number(first, _),
        Token::Symbol(','),
        Token::Number(decimals, false),
        ..,
    ] = &tokens[start..]
    else {
        return None;
    };
    if decimals.contains('.') || decimals.len() == 3 {
        return None;
    }
    if let Some((thousands, group)) = first.split_once('.') {
        let grouped = begins(thousands) && !thousands.starts_with('0') && group.len() == 3;
        return grouped.then(|| (format!("{thousands}{group}.{decimals}"), 3));
    }
    let currency = |token: &Token| matches!(token, Token::Text(sign) if ["€", "EUR", "kr", "euro", "Euro", "euros", "zł", "₽"].contains(&sign.trim()));
    let money = tokens.iter().any(currency) && decimals.len() == 2;
    money.then(|| (format!("{first}.{decimals}"), 3))
}
