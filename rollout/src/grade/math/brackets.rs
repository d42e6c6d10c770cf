//! Brackets and commas as Europe writes them.

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
