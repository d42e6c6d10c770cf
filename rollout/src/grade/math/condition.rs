//! Drops conditions behind a formula: `\frac{1}{x}, x \ne 0`, `2n-1 \text{ for } n \ge 1`.

use std::collections::BTreeSet;

use super::expr::Expr;
use super::op::op;
use super::pieces::{is_command, top_level};
use crate::grade::normal::token::Token;

/// Words before a condition.
const WORDS: [&str; 6] = ["for", "where", "with", "for all", "for every", "for any"];
/// Words before the value of a variable: `18 \text{ when } x=9`.
const AT: [&str; 4] = ["when", "at", "for", "where"];
/// Words for all the numbers of a kind.
const NUMBERS: [&str; 14] = [
    "real",
    "reals",
    "numbers",
    "number",
    "integers",
    "integer",
    "complex",
    "rational",
    "natural",
    "positive",
    "negative",
    "nonnegative",
    "values",
    "of",
];

/// Returns the formula before words and a condition on its variables.
pub(super) fn before_words(tokens: &[Token]) -> Option<&[Token]> {
    let is_word = |token: &Token| words(token).is_some_and(|words| WORDS.contains(&words) || AT.contains(&words));
    if let Some(at) = top_level(tokens, is_for_all)
        && is_all_of(&tokens[at + 1..])
        && at > 0
    {
        return Some(&tokens[..at]);
    }
    let at = top_level(tokens, is_word)?;
    let (formula, rest) = (&tokens[..at], &tokens[at + 1..]);
    let formula = formula.strip_suffix(&[Token::Symbol(',')]).unwrap_or(formula);
    let single =
        top_level(rest, is_word).is_none() && top_level(formula, |token| *token == Token::Symbol(',')).is_none();
    let restricts = words(&tokens[at]) != Some("when") && words(&tokens[at]) != Some("at") && restricts(formula, rest);
    (single && (restricts || is_value_at(formula, rest))).then_some(formula)
}

/// Returns the words of a text without the commas around them.
fn words(token: &Token) -> Option<&str> {
    match token {
        Token::Text(words) => Some(words.trim().trim_matches(',').trim()),
        _ => None,
    }
}

/// Returns true for `for all real numbers`, which restricts nothing.
fn is_for_all(token: &Token) -> bool {
    let kind = words(token).and_then(|words| {
        let all = ["for all", "for every", "for any", "for each"];
        all.iter().find_map(|all| words.strip_prefix(all))
    });
    kind.is_some_and(|kind| kind.split_whitespace().all(|word| NUMBERS.contains(&word)))
}

/// Returns true for what may follow `for all`: nothing, a variable, or a variable in the reals.
fn is_all_of(rest: &[Token]) -> bool {
    match rest {
        [] | [Token::Letter(_)] => true,
        [Token::Letter(_), member, reals] => is_command(member, "in") && is_command(reals, "reals"),
        _ => false,
    }
}

/// Returns true for a number and the value of a variable at which it is taken.
fn is_value_at(formula: &[Token], rest: &[Token]) -> bool {
    let number = |tokens: &[Token]| {
        let mut names = BTreeSet::new();
        Expr::parse(tokens).is_some_and(|expr| {
            expr.variables(&mut names);
            names.is_empty()
        })
    };
    matches!(rest, [Token::Letter(_), Token::Symbol('='), value @ ..] if number(value)) && number(formula)
}

/// Returns the formula of a list in which all other elements are conditions on its variables, or
/// the relation of a list that else only says
/// `x \in \mathbb{R}`.
pub(super) fn of_list<'a>(pieces: &[&'a [Token]]) -> Option<&'a [Token]> {
    let real = |piece: &&[Token]| matches!(piece, [Token::Letter(_), member, reals] if is_command(member, "in") && is_command(reals, "reals"));
    if let Some(at) = pieces.iter().position(|piece| !real(piece))
        && pieces.iter().filter(|piece| !real(piece)).count() == 1
        && top_level(pieces[at], |token| op(token).is_some()).is_some()
    {
        return Some(pieces[at]);
    }
    let (first, rest) = pieces.split_first()?;
    let excludes = |piece: &&[Token]| {
        let unequal = |token: &Token| is_command(token, "ne");
        let member = matches!(piece, [Token::Letter(_), member, ..] if is_command(member, "in"));
        (top_level(piece, unequal).is_some() || member) && restricts(first, piece)
    };
    rest.iter().all(excludes).then_some(first)
}

/// Returns true if a condition names a variable of the formula, which is not a condition itself.
fn restricts(formula: &[Token], condition: &[Token]) -> bool {
    let value = match top_level(formula, |token| *token == Token::Symbol('=')) {
        Some(at) => &formula[at + 1..],
        None => formula,
    };
    let Some(expr) = Expr::parse(&without_signs(value)) else {
        return false;
    };
    let mut names = BTreeSet::new();
    expr.variables(&mut names);
    let is_condition = |token: &Token| op(token).is_some() || is_command(token, "in");
    matches!(condition, [Token::Letter(name), ..] if names.contains(&name.to_string()))
        && top_level(condition, is_condition).is_some()
}

/// Returns tokens with a plus for `\pm`.
fn without_signs(tokens: &[Token]) -> Vec<Token> {
    super::pieces::signed(tokens, '+')
}

/// Returns the coordinates of a point behind its name: `P(3,-2)`.
pub(super) fn point(tokens: &[Token]) -> Option<(Token, &[Token])> {
    match tokens {
        [name @ Token::Letter(c), rest @ ..] if c.is_ascii_uppercase() => {
            let whole = matches!(rest, [Token::Symbol('('), .., Token::Symbol(')')]);
            whole.then(|| (name.clone(), rest))
        }
        _ => None,
    }
}

/// Returns true if two names stand for the same: `x_1` and `x`.
pub(super) fn is_same_name(a: &[Token], b: &[Token]) -> bool {
    a == b || without_index(a) == Some(b) || without_index(b) == Some(a)
}

/// Returns the letter of `x_1`, and `None` without an index.
fn without_index(tokens: &[Token]) -> Option<&[Token]> {
    match tokens {
        [Token::Letter(_), Token::Symbol('_'), Token::Number(..)]
        | [
            Token::Letter(_),
            Token::Symbol('_'),
            Token::Symbol('{'),
            Token::Number(..),
            Token::Symbol('}'),
        ] => Some(&tokens[..1]),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use crate::grade::math::equal;

    #[test]
    fn conditions_are_no_part_of_a_formula() {
        for (answer, label, same) in [
            ("\\frac{x+2}{x-1}, x \\ne 1", "\\frac{x+2}{x-1}", true),
            ("\\frac{x+2}{x-1}", "\\frac{x+2}{x-1}, x \\neq 1", true),
            ("a_n = 2n-1 \\text{ for } n \\ge 1", "2n-1", true),
            ("2n-1, \\text{ where } n \\ge 1", "2n-1", true),
            (
                "x = \\frac{\\pi}{4} + k\\pi, k \\in \\mathbb{Z}",
                "\\frac{\\pi}{4} + k\\pi",
                true,
            ),
            ("x \\in \\mathbb{R}, x \\ne 0", "x \\ne 0", true),
            ("18 \\text{ when } x=9", "18", true),
            ("f(x) = 2x \\text{ for all real numbers } x", "2x", true),
            ("18 \\text{ when } x=9", "9", false),
            ("18 \\text{ when } x=9, 20 \\text{ when } x=8", "18", false),
            ("x^2 \\text{ when } x > 0", "x^2", false),
            ("\\text{all real numbers } x", "x", false),
            ("\\frac{x+2}{x-1}, x \\ne 1", "\\frac{x-2}{x-1}", false),
            ("3, x \\ne 1", "3", false),
            ("x, y \\ne 1", "x", false),
            ("x > 1, x \\ne 2", "x > 1", false),
            ("x \\text{ for } x > 0, -x \\text{ for } x < 0", "x", false),
        ] {
            assert_eq!(equal(answer, label), same, "{answer} and {label}");
        }
    }

    #[test]
    fn names_that_stand_for_the_same_are_equal() {
        for (answer, label, same) in [
            ("x_1 = 2, x_2 = -5", "x = 2 \\text{ or } x = -5", true),
            ("x_1 = 2, x_2 = 5", "x = 2 \\text{ or } x = -5", false),
            ("x_1 = 2", "x_2 = 2", false),
            ("P(3,-2)", "(3,-2)", true),
            ("P(3,-2)", "(-2,3)", false),
            ("f(3,-2)", "(3,-2)", false),
        ] {
            assert_eq!(equal(answer, label), same, "{answer} and {label}");
        }
    }
}
