//! Brackets and commas as Europe writes them, and the brackets of vectors.

use crate::grade::normal::token::Token;

/// Returns `(0,1)` for `]0,1[`, also within a union. Returns `None` if no bracket is turned.
pub(super) fn european(tokens: &[Token]) -> Option<Vec<Token>> {
    let turned = tokens.first() == Some(&Token::Symbol(']')) || tokens.last() == Some(&Token::Symbol('['));
    if !turned {
        return None;
    }
    let mut inside = false;
    let turn = |token: &Token| {
        let next = match (token, inside) {
            (Token::Symbol(']'), false) => Token::Symbol('('),
            (Token::Symbol('['), true) => Token::Symbol(')'),
            (token, _) => token.clone(),
        };
        match token {
            Token::Symbol('[' | ']') => inside = !inside,
            Token::Symbol('(') => inside = true,
            Token::Symbol(')') => inside = false,
            _ => {}
        }
        next
    };
    Some(tokens.iter().map(turn).collect())
}

/// Returns `(1,2,3)` for `\langle 1,2,3\rangle` and `<1,2,3>`, and a matrix of one row for two
/// elements, because `(1,2)` may be an interval. Without a comma the brackets mean something else.
pub(super) fn with_brackets(tokens: &[Token]) -> Option<Vec<Token>> {
    let start = tokens
        .iter()
        .rposition(|token| *token == Token::Symbol('='))
        .map_or(0, |at| at + 1);
    let [open, inside @ .., close] = &tokens[start..] else {
        return None;
    };
    let pair = |one: &str, other: &str| open.is_command(one) && close.is_command(other);
    let sign = |token: &Token| ["<", ">", "langle", "rangle"].iter().any(|sign| token.is_command(sign));
    let vector = (pair("langle", "rangle") || pair("<", ">")) && !inside.iter().any(sign);
    let is_comma = |token: &&Token| **token == Token::Symbol(',');
    let count = inside.iter().filter(is_comma).count();
    let command = |name: &str| Token::Command(name.to_owned());
    let brackets = match count {
        1 => [command("begin matrix"), command("end matrix")],
        _ => [Token::Symbol('('), Token::Symbol(')')],
    };
    let comma = if count == 1 {
        Token::Symbol('&')
    } else {
        Token::Symbol(',')
    };
    let put = |token: &Token| if is_comma(&token) { comma.clone() } else { token.clone() };
    (vector && count > 0).then(|| {
        let [open, close] = brackets;
        let inside = inside.iter().map(put);
        let vector = std::iter::once(open).chain(inside).chain([close]);
        tokens[..start].iter().cloned().chain(vector).collect()
    })
}

/// Returns `[0.5; 1.5]` for `[0,5; 1,5]`: between semicolons, commas begin decimals.
pub(super) fn decimal_commas(tokens: &[Token]) -> Vec<Token> {
    let mut out: Vec<Token> = Vec::with_capacity(tokens.len());
    let mut at = 0;
    while at < tokens.len() {
        if let [
            Token::Number(whole, spaced),
            Token::Symbol(','),
            Token::Number(decimals, false),
            ..,
        ] = &tokens[at..]
            && !whole.contains('.')
            && !decimals.contains('.')
        {
            out.push(Token::Number(format!("{whole}.{decimals}"), *spaced));
            at += 3;
        } else {
            out.push(tokens[at].clone());
            at += 1;
        }
    }
    out
}
