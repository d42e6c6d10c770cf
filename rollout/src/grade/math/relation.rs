//! Reads equations, inequalities and computations.

use std::collections::BTreeSet;

use super::answer::{Answer, Context, Named, Side};
use super::computation::{self, number};
use super::expr::Expr;
use super::names::{has_matrix, is_name, is_opaque_name, name_of_points};
use super::op::{Op, op};
use crate::grade::normal::token::Token;

/// `left OP right`. Greater is written as less.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Relation {
    pub(super) left: Expr,
    pub(super) op: Op,
    pub(super) right: Expr,
}

/// The name of what a relation without a left side speaks of.
const UNNAMED: &str = "unnamed";

impl Relation {
    /// Returns the relation with this name, if it leaves its own out: `\ge 3` with the x of
    /// `x \ge 3`.
    pub(super) fn with_name(&self, name: &str) -> Option<Self> {
        let unnamed = |side: &Expr| matches!(side, Expr::Variable(name) if name == UNNAMED);
        let named = |side: &Expr| match unnamed(side) {
            true => Expr::Variable(name.to_owned()),
            false => side.clone(),
        };
        (unnamed(&self.left) || unnamed(&self.right)).then(|| Self {
            left: named(&self.left),
            op: self.op,
            right: named(&self.right),
        })
    }
}

/// The sides of a chain, and the relations between them.
struct Chain<'a> {
    sides: Vec<&'a [Token]>,
    ops: Vec<(Op, bool)>,
}

/// Splits a chain at the relations outside brackets.
fn chain(tokens: &[Token]) -> Chain<'_> {
    let (mut sides, mut ops, mut start, mut depth) = (Vec::new(), Vec::new(), 0, 0usize);
    for (at, token) in tokens.iter().enumerate() {
        match token {
            Token::Symbol('(' | '[' | '{') | Token::Set('{') => depth += 1,
            Token::Symbol(')' | ']' | '}') | Token::Set('}') => depth = depth.saturating_sub(1),
            token => {
                if let Some(op) = op(token).filter(|_| depth == 0) {
                    sides.push(&tokens[start..at]);
                    ops.push(op);
                    start = at + 1;
                }
            }
        }
    }
    sides.push(&tokens[start..]);
    Chain { sides, ops }
}

/// Reads `x = 5` and chains, for example `1 < x <= 2`. If units were dropped, the sides may be the
/// same in different units.
pub(super) fn read(tokens: &[Token], has_units: bool, context: Context) -> Option<Answer> {
    let Chain { mut sides, mut ops } = chain(tokens);
    if sides.first().is_some_and(|first| first.is_empty()) && matches!(ops.first(), Some((Op::Equal | Op::Approx, _))) {
        sides.remove(0);
        ops.remove(0);
    }
    let bare = sides.len() == 2 && sides[0].is_empty() && !matches!(ops[0].0, Op::Equal | Op::Approx);
    if sides.iter().any(|side| side.iter().any(is_condition))
        || sides.iter().skip(usize::from(bare)).any(|side| side.is_empty())
    {
        return None;
    }
    // The order of the points says which of them correspond; a product would lose this order.
    let triangle = |side: &&&[Token]| name_of_points(side).is_some_and(|name| name.starts_with("triangle"));
    if sides.iter().filter(triangle).count() > 1 {
        return None;
    }
    if let [one] = sides.as_slice() {
        return super::answer::read(one, context.deeper());
    }
    if ops.iter().all(|(op, _)| matches!(op, Op::Equal | Op::Approx)) {
        let ops: Vec<Op> = ops.iter().map(|(op, _)| *op).collect();
        return equation(&sides, &ops, has_units, context);
    }
    // `x = -12 < 0` gives the value, with a remark about it.
    if let Some(value) = before_remark(&sides, &ops, context) {
        let ops: Vec<Op> = ops[..value].iter().map(|(op, _)| *op).collect();
        return equation(&sides[..=value], &ops, has_units, context);
    }
    // `\ge 3` leaves out what it speaks of.
    let unnamed = [Token::Command(UNNAMED.to_owned())];
    if sides.len() == 2 && sides[0].is_empty() {
        sides[0] = &unnamed;
    }
    (0..ops.len())
        .map(|at| between(sides[at], ops[at], sides[at + 1]))
        .collect::<Option<_>>()
        .map(Answer::Relation)
}

/// Returns the place of a value behind equals signs. True inequalities between numbers stand behind
/// it.
fn before_remark(sides: &[&[Token]], ops: &[(Op, bool)], context: Context) -> Option<usize> {
    let equals = |(op, _): &(Op, bool)| matches!(op, Op::Equal | Op::Approx);
    let at = ops.iter().position(|op| !equals(op)).filter(|at| *at > 0)?;
    let real = |side: &&[Token]| number(side, context)?.1.as_real();
    let values: Vec<f64> = sides[at..].iter().map(real).collect::<Option<_>>()?;
    let holds = |(pair, (op, flipped)): (&[f64], &(Op, bool))| {
        let (left, right) = if *flipped {
            (pair[1], pair[0])
        } else {
            (pair[0], pair[1])
        };
        match op {
            Op::Less => left < right,
            Op::AtMost => left <= right,
            _ => false,
        }
    };
    values.windows(2).zip(&ops[at..]).all(holds).then_some(at)
}

/// Returns true for a word between two relations of which one is a condition: `x = 2 when y = 3`.
fn is_condition(token: &Token) -> bool {
    const WORDS: [&str; 5] = ["when", "if", "unless", "where", "whenever"];
    matches!(token, Token::Text(words) if WORDS.contains(&words.trim().trim_matches(',').trim()))
}

fn between(left: &[Token], (op, flipped): (Op, bool), right: &[Token]) -> Option<Relation> {
    let (mut left, mut right) = (Expr::parse(left)?, Expr::parse(right)?);
    if flipped {
        std::mem::swap(&mut left, &mut right);
    }
    Some(Relation { left, op, right })
}

/// Reads a chain of equal terms: a name with its value, a computation, or an equation.
fn equation(sides: &[&[Token]], ops: &[Op], has_units: bool, context: Context) -> Option<Answer> {
    let (first, last) = (sides.first()?, sides.last()?);
    let whole = || between(first, (Op::Equal, false), last);
    let named = |name: &[Token], value: Answer, stands: bool| {
        Answer::Named(Named {
            name: name.to_vec(),
            value: Box::new(value),
            relation: whole(),
            stands,
        })
    };
    let rest = || value(&sides[1..], &ops[1..], has_units, context);
    // `\pi \approx 3.14` is a number, and `e = 5` is a name with its value.
    let computed = computation::read(sides, ops, has_units, context);
    if computed.is_some() {
        return computed;
    }
    if is_name(first) {
        return Some(named(first, rest()?, true));
    }
    // `\ln 2` is no name on the right of a formula with variables.
    let names = is_name(last) && (number(last, context).is_none() || number(first, context).is_some());
    if let ([left, right], true) = (sides, names) {
        return Some(named(right, super::answer::read(left, context.deeper())?, true));
    }
    if number(first, context).is_some() {
        return last_has_variables(last).then(|| relations(sides)).flatten();
    }
    // A sum, an integral or a limit with its value.
    if has_matrix(first) || (is_opaque_name(first) && !is_opaque_name(last)) {
        return rest().map(|value| named(first, value, true));
    }
    Expr::parse(first)?;
    if last_has_variables(last) {
        return relations(sides);
    }
    Some(named(first, rest()?, context.side == Side::Answer))
}

fn has_variables(expr: &Expr) -> bool {
    let mut names = BTreeSet::new();
    expr.variables(&mut names);
    !names.is_empty()
}

fn last_has_variables(tokens: &[Token]) -> bool {
    Expr::parse(tokens).is_some_and(|expr| has_variables(&expr))
}

fn relations(sides: &[&[Token]]) -> Option<Answer> {
    sides
        .windows(2)
        .map(|pair| between(pair[0], (Op::Equal, false), pair[1]))
        .collect::<Option<_>>()
        .map(Answer::Relation)
}

/// Returns the value behind a name: a computation, or the last term.
fn value(sides: &[&[Token]], ops: &[Op], has_units: bool, context: Context) -> Option<Answer> {
    let read = |side: &[Token]| super::answer::read(side, context.deeper());
    if let [one] = sides {
        return read(one);
    }
    if sides.iter().all(|side| number(side, context).is_some()) {
        return computation::read(sides, ops, has_units, context);
    }
    // The terms before the first rounded one are exact.
    let exact = ops.iter().position(|op| *op == Op::Approx).unwrap_or(sides.len() - 1);
    read(sides[exact])
}
