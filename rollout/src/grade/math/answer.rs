//! Reads an answer: a value, a set, a tuple or interval, a union, a matrix, a relation, or words.

use super::expr::Expr;
use super::lexer::{Token, tokens};
use super::pieces::{grouped, is_command, is_separator, signed, split, trimmed};

/// Deepest nesting of sets and tuples.
const DEEPEST: usize = 6;

/// An answer as it was written.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Answer {
    /// A formula, and true if a percent sign followed it.
    Value(Expr, bool),
    /// Elements without an order: `\{..\}`, a bare list, both signs of `\pm`.
    Set(Vec<Answer>),
    /// A tuple or an interval, with its brackets.
    Tuple(char, char, Vec<Answer>),
    Union(Vec<Answer>),
    Matrix(Vec<Vec<Answer>>),
    Relation(Vec<Relation>),
    /// A name and its value, as in `x = 5`. Also the relation, if both sides are formulas.
    Named(Vec<Token>, Box<Answer>, Option<Relation>),
    /// Anything else, in lower case.
    Words(String),
}

/// `left OP right`. Greater is written as less.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Relation {
    pub(super) left: Expr,
    pub(super) op: Op,
    pub(super) right: Expr,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Op {
    Equal,
    Unequal,
    Less,
    AtMost,
}

impl Answer {
    /// Reads a text as an answer. A text that is nothing else is [`Self::Words`].
    pub(super) fn parse(text: &str) -> Self {
        let text = text.trim();
        let words = || Self::Words(plain_words(text));
        match tokens(text) {
            Some(_) if is_word(text) => words(),
            Some(tokens) => read(&tokens, 0).unwrap_or_else(words),
            None => words(),
        }
    }
}

/// Returns true for a word of letters that is not a product of variables.
fn is_word(text: &str) -> bool {
    let function = super::lexer::PLAIN.iter().any(|name| text.contains(name));
    !function && text.chars().count() >= 4 && text.chars().all(char::is_alphabetic)
}

/// Returns words in lower case with single spaces. Brackets around a single letter are dropped:
/// `(B)` becomes `b`.
pub(super) fn plain_words(text: &str) -> String {
    let mut text = text.replace('$', "");
    for command in [
        "\\textbf",
        "\\textit",
        "\\textrm",
        "\\text",
        "\\mbox",
        "\\mathrm",
        "\\mathbf",
        "\\operatorname",
    ] {
        text = text.replace(command, "");
    }
    let text: String = text.chars().filter(|c| !['{', '}', '\\'].contains(c)).collect();
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase();
    let text = text.trim_end_matches(['.', ',', ';']).trim();
    let inner = text.strip_prefix('(').and_then(|rest| rest.strip_suffix(')'));
    match inner {
        Some(inner) if inner.chars().count() == 1 => inner.to_owned(),
        _ => text.to_owned(),
    }
}

fn read(tokens: &[Token], depth: usize) -> Option<Answer> {
    if depth > DEEPEST {
        return None;
    }
    let tokens = trimmed(tokens);
    if let [Token::Text(words)] = tokens {
        return Some(match super::unit::without(words) {
            Some(number) if depth == 0 => Answer::parse(number),
            _ => Answer::Words(plain_words(words)),
        });
    }
    let merged = grouped(tokens);
    let tokens = merged.as_deref().unwrap_or(tokens);
    let pieces = split(tokens, is_separator)?;
    if pieces.len() > 1 {
        return elements(&pieces, depth).map(Answer::Set);
    }
    let cleaned = super::unit::stripped(tokens);
    let tokens = trimmed(&cleaned);
    if let Some(at) = tokens.iter().position(|t| is_command(t, "in")) {
        return read(&tokens[at + 1..], depth + 1);
    }
    let pieces = split(tokens, |t| is_command(t, "cup"))?;
    if pieces.len() > 1 {
        return list(&pieces, depth).map(Answer::Union);
    }
    if tokens.iter().any(|t| op(t).is_some()) {
        return relation(tokens, depth);
    }
    if has_both_signs(tokens) {
        return Some(Answer::Set(vec![
            read(&signed(tokens, '+'), depth + 1)?,
            read(&signed(tokens, '-'), depth + 1)?,
        ]));
    }
    collection(tokens, depth).or_else(|| value(tokens))
}

fn list(pieces: &[&[Token]], depth: usize) -> Option<Vec<Answer>> {
    pieces.iter().map(|piece| read(piece, depth + 1)).collect()
}

/// Reads the elements of a set. An element with both signs gives two elements.
fn elements(pieces: &[&[Token]], depth: usize) -> Option<Vec<Answer>> {
    let mut all = Vec::with_capacity(pieces.len());
    for piece in pieces {
        match read(piece, depth + 1)? {
            Answer::Set(both) if has_both_signs(piece) => all.extend(both),
            one => all.push(one),
        }
    }
    Some(all)
}

/// Returns true if `\pm` or `\mp` is there, unless a set may hold it in an element.
fn has_both_signs(tokens: &[Token]) -> bool {
    let sign = tokens.iter().any(|t| is_command(t, "pm") || is_command(t, "mp"));
    sign && !tokens.contains(&Token::Set('{'))
}

fn value(tokens: &[Token]) -> Option<Answer> {
    let (percent, tokens) = match tokens {
        [before @ .., Token::Symbol('%')] => (true, before),
        all => (false, all),
    };
    // A ratio of two numbers is their quotient.
    if let [Token::Number(..), Token::Symbol(':'), Token::Number(..)] = tokens {
        let mut tokens = tokens.to_vec();
        tokens[1] = Token::Symbol('/');
        return Expr::parse(&tokens).map(|expr| Answer::Value(expr, percent));
    }
    Expr::parse(tokens).map(|expr| Answer::Value(expr, percent))
}

/// Reads sets, tuples, intervals and matrices.
fn collection(tokens: &[Token], depth: usize) -> Option<Answer> {
    match tokens {
        [one] if is_command(one, "emptyset") => Some(Answer::Set(Vec::new())),
        [Token::Set('{'), Token::Set('}')] => Some(Answer::Set(Vec::new())),
        [one] if is_command(one, "reals") => {
            let bounds = [Expr::Negative(Box::new(Expr::Infinity)), Expr::Infinity];
            let bounds = bounds.map(|bound| Answer::Value(bound, false));
            Some(Answer::Tuple('(', ')', bounds.to_vec()))
        }
        [Token::Set('{'), inside @ .., Token::Set('}')] => {
            let pieces = split(inside, is_separator)?;
            elements(&pieces, depth).map(Answer::Set)
        }
        [
            Token::Symbol(open @ ('(' | '[')),
            inside @ ..,
            Token::Symbol(close @ (')' | ']')),
        ] => {
            let pieces = split(inside, is_separator)?;
            let tuple = |pieces| Answer::Tuple(*open, *close, pieces);
            if pieces.len() > 1 {
                list(&pieces, depth).map(tuple)
            } else {
                // Brackets around a matrix have no meaning.
                collection(inside, depth).filter(|one| matches!(one, Answer::Matrix(_)))
            }
        }
        [begin, inside @ .., end] if is_command(begin, "begin matrix") && is_command(end, "end matrix") => {
            let rows = split(inside, |t| is_command(t, "\\"))?;
            let rows = rows.iter().filter(|row| !row.is_empty());
            let cells = |row: &&[Token]| list(&split(row, |t| *t == Token::Symbol('&'))?, depth);
            rows.map(cells).collect::<Option<_>>().map(Answer::Matrix)
        }
        _ => None,
    }
}

fn op(token: &Token) -> Option<(Op, bool)> {
    match token {
        Token::Symbol('=') => Some((Op::Equal, false)),
        Token::Command(name) => match name.as_str() {
            "ne" => Some((Op::Unequal, false)),
            "<" => Some((Op::Less, false)),
            "<=" => Some((Op::AtMost, false)),
            ">" => Some((Op::Less, true)),
            ">=" => Some((Op::AtMost, true)),
            _ => None,
        },
        _ => None,
    }
}

/// Reads `x = 5` and chains, for example `1 < x <= 2`.
fn relation(tokens: &[Token], depth: usize) -> Option<Answer> {
    let ops: Vec<(Op, bool)> = tokens.iter().filter_map(op).collect();
    let sides = split(tokens, |t| op(t).is_some())?;
    if sides.len() != ops.len() + 1 {
        return None;
    }
    let between = |left: &[Token], (op, flipped): (Op, bool), right: &[Token]| {
        let (mut left, mut right) = (Expr::parse(left)?, Expr::parse(right)?);
        if flipped {
            std::mem::swap(&mut left, &mut right);
        }
        Some(Relation { left, op, right })
    };
    if ops.iter().all(|(op, _)| *op == Op::Equal) {
        // In a chain of equal terms the last term is the answer.
        let (first, last) = (sides.first()?, sides.last()?);
        let named = |name: &[Token], value: &[Token]| {
            let value = read(value, depth + 1)?;
            let relation = between(first, (Op::Equal, false), last);
            Some(Answer::Named(name.to_vec(), Box::new(value), relation))
        };
        if is_name(first) {
            return named(first, last);
        }
        if ops.len() == 1 && is_name(last) {
            return named(last, first);
        }
        if first.is_empty() {
            return read(last, depth + 1);
        }
    }
    (0..ops.len())
        .map(|at| between(sides[at], ops[at], sides[at + 1]))
        .collect::<Option<_>>()
        .map(Answer::Relation)
}

/// Returns true for the name of a value: letters, with brackets and commas, without numbers and
/// signs.
fn is_name(tokens: &[Token]) -> bool {
    let part = |token: &Token| match token {
        Token::Letter(_) | Token::Text(_) => true,
        Token::Command(name) => name.chars().all(|c| c.is_ascii_alphabetic()) && name != "frac" && name != "sqrt",
        Token::Symbol(c) => ['(', ')', ',', '_', '{', '}', '\''].contains(c),
        // The number of a subscript.
        Token::Number(digits, _) => digits.len() == 1,
        Token::Set(_) => false,
    };
    let letter = tokens.first().is_some_and(|t| !matches!(t, Token::Number(..)));
    let bracketed = tokens
        .iter()
        .any(|t| *t == Token::Symbol('(') || is_command(t, "angle"));
    letter && tokens.len() <= 9 && tokens.iter().all(part) && (letters(tokens) <= 1 || bracketed)
}

/// Counts letters and commands outside subscripts.
fn letters(tokens: &[Token]) -> usize {
    let (mut count, mut at) = (0, 0);
    while at < tokens.len() {
        at += match &tokens[at..] {
            [Token::Symbol('_'), Token::Symbol('{'), rest @ ..] => {
                2 + rest.iter().position(|t| *t == Token::Symbol('}')).unwrap_or(rest.len())
            }
            [Token::Symbol('_'), _, ..] => 2,
            [Token::Letter(_) | Token::Command(_), ..] => {
                count += 1;
                1
            }
            _ => 1,
        };
    }
    count
}

#[cfg(test)]
mod tests {
    use crate::grade::math::equal;

    #[test]
    fn the_last_term_of_an_equation_chain_is_the_value() {
        for (one, other, same) in [
            ("x = 5 = 3", "x = 5", false),
            ("x = 5 = 3", "x = 3", true),
            ("x = \\frac{10}{2} = 5", "x = 5", true),
            ("S = n(n+1) = n^2+n", "S = n^2+n", true),
            ("5 = x", "x = 5", true),
        ] {
            assert_eq!(equal(one, other), same, "{one} and {other}");
            assert_eq!(equal(other, one), same, "{other} and {one}");
        }
    }
}
