//! Reads sets, tuples, intervals and matrices.

use super::answer::{Answer, Context, elements, list, read};
use super::brackets::decimal_commas;
use super::expr::Expr;
use super::pieces::{is_command, is_separator, split};
use crate::grade::normal::token::Token;

/// Returns all real numbers.
fn reals() -> Answer {
    interval(Expr::Negative(Box::new(Expr::Infinity)), Expr::Infinity)
}

fn interval(low: Expr, high: Expr) -> Answer {
    Answer::Tuple('(', ')', vec![Answer::Value(low, false), Answer::Value(high, false)])
}

/// Reads sets, tuples, intervals and matrices.
pub(super) fn collection(tokens: &[Token], context: Context) -> Option<Answer> {
    match tokens {
        [one] if is_command(one, "emptyset") => Some(Answer::Set(Vec::new())),
        [Token::Set('{'), Token::Set('}')] => Some(Answer::Set(Vec::new())),
        [one] if is_command(one, "reals") => Some(reals()),
        [Token::Symbol('{'), inside @ .., Token::Symbol('}')] => {
            // Without its backslashes a set looks like a group. A list or a condition makes it a
            // set.
            let several = split(inside, is_separator)?.len() > 1 || condition(inside).is_some();
            several.then(|| collection(&escaped(inside), context)).flatten()
        }
        [Token::Set('{'), inside @ .., Token::Set('}')] => match condition(inside) {
            Some(condition) => read(condition, context.deeper()),
            None => elements(&split(inside, is_separator)?, context).map(Answer::Set),
        },
        [
            Token::Symbol(open @ ('(' | '[')),
            inside @ ..,
            Token::Symbol(close @ (')' | ']')),
        ] => tuple(*open, inside, *close, context),
        [begin, inside @ .., end] if is_command(begin, "begin matrix") && is_command(end, "end matrix") => {
            let rows = split(inside, |t| is_command(t, "\\"))?;
            let rows = rows.iter().filter(|row| !row.is_empty());
            let cells = |row: &&[Token]| list(&split(row, |t| *t == Token::Symbol('&'))?, context);
            rows.map(cells).collect::<Option<_>>().map(Answer::Matrix)
        }
        _ => None,
    }
}

/// Returns the set with these elements.
fn escaped(inside: &[Token]) -> Vec<Token> {
    let mut set = vec![Token::Set('{')];
    set.extend_from_slice(inside);
    set.push(Token::Set('}'));
    set
}

fn tuple(open: char, inside: &[Token], close: char, context: Context) -> Option<Answer> {
    let semicolon = |token: &Token| *token == Token::Symbol(';');
    if split(inside, semicolon)?.len() > 1 {
        let inside = decimal_commas(inside);
        let pieces = list(&split(&inside, is_separator)?, context)?;
        return Some(Answer::Tuple(open, close, pieces));
    }
    let pieces = split(inside, is_separator)?;
    if pieces.len() > 1 {
        return list(&pieces, context).map(|pieces| Answer::Tuple(open, close, pieces));
    }
    // Brackets around a matrix have no meaning.
    collection(inside, context).filter(|one| matches!(one, Answer::Matrix(_)))
}

/// Returns the condition of a set of real numbers: `x > 2` of `\{x \mid x > 2\}`.
fn condition(inside: &[Token]) -> Option<&[Token]> {
    let is_bar = |token: &Token| matches!(token, Token::Symbol('|' | ':')) || is_command(token, "mid");
    let [Token::Letter(_), rest @ ..] = inside else {
        return None;
    };
    let rest = match rest {
        [of, reals, rest @ ..] if is_command(of, "in") && is_command(reals, "reals") => rest,
        rest => rest,
    };
    let (first, condition) = rest.split_first()?;
    (is_bar(first) && !condition.is_empty()).then_some(condition)
}

/// Reads the real numbers without some: `\mathbb{R}\setminus\{3\}`.
pub(super) fn without(tokens: &[Token], context: Context) -> Option<Answer> {
    let [all, minus, set @ ..] = tokens else { return None };
    let is_minus = is_command(minus, "setminus") || matches!(minus, Token::Symbol('-' | '\\'));
    if !(is_command(all, "reals") && is_minus) {
        return None;
    }
    let set = match set {
        [Token::Symbol('{'), inside @ .., Token::Symbol('}')] => escaped(inside),
        set => set.to_vec(),
    };
    let holes = match collection(&set, context.deeper())? {
        Answer::Set(holes) => holes,
        Answer::Tuple(open, close, ends) => return outside(open, &ends, close),
        _ => return None,
    };
    let hole = |hole: Answer| match hole {
        Answer::Value(expr, false) => Some((expr.number()?.as_real()?, expr)),
        _ => None,
    };
    let holes: Option<Vec<(f64, Expr)>> = holes.into_iter().map(hole).collect();
    except(holes?)
}

/// Returns the real numbers outside an interval.
fn outside(open: char, ends: &[Answer], close: char) -> Option<Answer> {
    let [low, high] = ends else { return None };
    let infinity = |expr| Answer::Value(expr, false);
    let below = vec![infinity(Expr::Negative(Box::new(Expr::Infinity))), low.clone()];
    let above = vec![high.clone(), infinity(Expr::Infinity)];
    let before = if open == '(' { ']' } else { ')' };
    let behind = if close == ')' { '[' } else { '(' };
    Some(Answer::Union(vec![
        Answer::Tuple('(', before, below),
        Answer::Tuple(behind, ')', above),
    ]))
}

/// Returns the real numbers without some values.
pub(super) fn except(mut holes: Vec<(f64, Expr)>) -> Option<Answer> {
    if holes.is_empty() || holes.iter().any(|(value, _)| !value.is_finite()) {
        return None;
    }
    holes.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut low = Expr::Negative(Box::new(Expr::Infinity));
    let mut parts = Vec::with_capacity(holes.len() + 1);
    for (_, hole) in holes {
        parts.push(interval(std::mem::replace(&mut low, hole.clone()), hole));
    }
    parts.push(interval(low, Expr::Infinity));
    Some(Answer::Union(parts))
}
