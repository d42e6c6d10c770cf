//! Reads accents of letters, `\vec a`, `\hat{\theta}`, `\overrightarrow{AB}`, and products of
//! vectors.

use super::expr::Expr;
use super::number::Number;
use super::parser::{Parser, boxed};
use crate::grade::normal::greek;
use crate::grade::normal::token::Token;

const ACCENTS: [&str; 8] = [
    "vec",
    "overleftarrow",
    "overleftrightarrow",
    "hat",
    "widehat",
    "bar",
    "tilde",
    "dot",
];

pub(super) fn is_accent(name: &str) -> bool {
    ACCENTS.contains(&name)
}

/// Returns tokens as text, without their braces.
pub(super) fn text(tokens: &[Token]) -> String {
    let text = tokens.iter().map(|token| match token {
        Token::Number(text, _) | Token::Command(text) | Token::Text(text) => text.clone(),
        Token::Letter(c) => c.to_string(),
        Token::Symbol('{' | '}') => String::new(),
        Token::Symbol(c) | Token::Set(c) => c.to_string(),
    });
    text.collect()
}

impl Parser<'_> {
    /// Reads an accent with what it stands on as one variable. The letters of a vector have an
    /// order.
    pub(super) fn accented(&mut self, accent: &str) -> Expr {
        let length = match self.rest {
            [Token::Letter(_), ..] => 1,
            [Token::Command(name), ..] if greek::is_name(name) => 1,
            [Token::Symbol('{'), ..] => group(self.rest),
            _ => 0,
        };
        let (on, rest) = self.rest.split_at(length);
        self.rest = rest;
        self.variable(format!("{accent} {}", text(on)))
    }
}

/// Returns the product of the last factor with a vector, as `times (a^3 - b^3)^3`: it changes its
/// sign when the two change places. No other formula has the variable `times`.
pub(super) fn vector_product(factors: Expr, right: Expr) -> Option<Expr> {
    if let Expr::Product(others, left) = factors {
        return Some(Expr::Product(others, boxed(vector_product(*left, right)?)));
    }
    let cube = |expr| Some(Expr::Power(boxed(expr), boxed(Expr::Number(Number::whole(3)?, 0))));
    let difference = Expr::Sum(boxed(cube(factors)?), boxed(Expr::Negative(boxed(cube(right)?))));
    Some(Expr::Product(
        boxed(Expr::Variable("times".to_owned())),
        boxed(cube(difference)?),
    ))
}

/// Returns the length of the group in braces with which tokens begin, or 0 if it has no end.
fn group(tokens: &[Token]) -> usize {
    let mut depth = 0usize;
    for (at, token) in tokens.iter().enumerate() {
        match token {
            Token::Symbol('{') => depth += 1,
            Token::Symbol('}') => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at + 1;
        }
    }
    0
}
