//! Intervals and their unions as stretches of the real line.

use super::answer::Answer;
use super::collection::except;
use super::expr::{Expr, is_constant};
use super::number::Number;
use super::op::Op;
use super::relation::Relation;

/// Returns the interval of a chain: `1 < x <= 2` or `x > 1`. If the chain excludes values, returns
/// the union of what is left: `x > 1` with `x != 2`.
pub(super) fn interval(chain: &[Relation]) -> Option<Answer> {
    let (holes, bounds): (Vec<Relation>, Vec<Relation>) = chain.iter().cloned().partition(|one| one.op == Op::Unequal);
    let found: Vec<(&String, f64, &Expr)> = holes.iter().map(hole).collect::<Option<_>>()?;
    let Some((name, ..)) = found.first() else {
        return bounded(&bounds).map(|(_, interval)| interval);
    };
    if found.iter().any(|(other, ..)| other != name) {
        return None;
    }
    let holes = found.iter().map(|(_, value, hole)| (*value, (*hole).clone())).collect();
    if bounds.is_empty() {
        return except(holes);
    }
    bounded(&bounds)
        .filter(|(other, _)| other == *name)
        .and_then(|(_, interval)| with_holes(interval, holes))
}

/// Returns the variable of `x != 1` and its excluded value.
fn hole(one: &Relation) -> Option<(&String, f64, &Expr)> {
    match (&one.left, &one.right) {
        (Expr::Variable(name), hole) | (hole, Expr::Variable(name)) if !is_constant(name) => {
            Some((name, hole.number()?.as_real()?, hole))
        }
        _ => None,
    }
}

/// Splits an interval at excluded values. Returns `None` if a value is not inside it.
fn with_holes(interval: Answer, mut holes: Vec<(f64, Expr)>) -> Option<Answer> {
    let Answer::Tuple(mut open, close, ends) = interval else {
        return None;
    };
    let [mut low, high] = <[Answer; 2]>::try_from(ends).ok()?;
    holes.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut parts = Vec::with_capacity(holes.len() + 1);
    for (_, hole) in holes {
        let hole = Answer::Value(hole, false);
        let part = Answer::Tuple(open, ')', vec![low, hole.clone()]);
        stretch(&part)?;
        parts.push(part);
        (open, low) = ('(', hole);
    }
    let part = Answer::Tuple(open, close, vec![low, high]);
    stretch(&part)?;
    parts.push(part);
    Some(Answer::Union(parts))
}

/// Returns the variable of a chain of bounds, and its interval.
fn bounded(chain: &[Relation]) -> Option<(String, Answer)> {
    let (mut low, mut high, mut name) = (None, None, None);
    for Relation { left, op, right } in chain {
        let closed = match op {
            Op::Less => false,
            Op::AtMost => true,
            Op::Equal | Op::Approx | Op::Unequal => return None,
        };
        let (variable, bound, place) = match (left, right) {
            (Expr::Variable(variable), bound) if !is_constant(variable) => (variable, bound, &mut high),
            (bound, Expr::Variable(variable)) if !is_constant(variable) => (variable, bound, &mut low),
            _ => return None,
        };
        if place.is_some() || name.get_or_insert(variable) != &variable {
            return None;
        }
        *place = Some((bound.clone(), closed));
    }
    let name = name?.clone();
    let (low, low_closed) = low.unwrap_or((Expr::Negative(Box::new(Expr::Infinity)), false));
    let (high, high_closed) = high.unwrap_or((Expr::Infinity, false));
    let open = if low_closed { '[' } else { '(' };
    let close = if high_closed { ']' } else { ')' };
    let ends = vec![Answer::Value(low, false), Answer::Value(high, false)];
    Some((name, Answer::Tuple(open, close, ends)))
}

/// A stretch of the real line, by the values of its ends.
#[derive(Debug, Clone)]
struct Stretch {
    low: Number,
    low_closed: bool,
    high: Number,
    high_closed: bool,
}

impl Stretch {
    fn begins(&self) -> f64 {
        self.low.approx.re
    }

    fn ends(&self) -> f64 {
        self.high.approx.re
    }
}

/// Returns true if two unions of intervals cover the same numbers. A single interval counts as a
/// union. Returns `None` if an argument is something else or has a bound without a real value.
pub(super) fn cover_the_same(a: &Answer, b: &Answer) -> Option<bool> {
    let (a, b) = (stretches(a)?, stretches(b)?);
    let same = |(a, b): (&Stretch, &Stretch)| {
        let ends = Number::equal(&a.low, &b.low) && Number::equal(&a.high, &b.high);
        ends && (a.low_closed, a.high_closed) == (b.low_closed, b.high_closed)
    };
    Some(a.len() == b.len() && a.iter().zip(&b).all(same))
}

/// Returns the merged stretches of a union of intervals, in order. Returns `None` if a bound has no
/// real value.
fn stretches(answer: &Answer) -> Option<Vec<Stretch>> {
    let parts = match answer {
        Answer::Union(parts) => parts.as_slice(),
        one => std::slice::from_ref(one),
    };
    let mut all: Vec<Stretch> = parts.iter().map(stretch).collect::<Option<_>>()?;
    all.sort_by(|a, b| a.begins().total_cmp(&b.begins()));
    let mut merged: Vec<Stretch> = Vec::new();
    for next in all {
        let touches = merged.last().is_some_and(|last| {
            let closed = next.low_closed || last.high_closed;
            next.begins() < last.ends() || (next.begins() == last.ends() && closed)
        });
        match merged.last_mut() {
            Some(last) if touches => {
                last.low_closed |= next.begins() == last.begins() && next.low_closed;
                if next.ends() > last.ends() || (next.ends() == last.ends() && next.high_closed) {
                    (last.high, last.high_closed) = (next.high, next.high_closed);
                }
            }
            _ => merged.push(next),
        }
    }
    Some(merged)
}

fn stretch(answer: &Answer) -> Option<Stretch> {
    let Answer::Tuple(open, close, bounds) = answer else {
        return None;
    };
    let bound = |answer: &Answer| match answer {
        Answer::Value(expr, false) => expr.number().filter(|value| value.as_real().is_some()),
        _ => None,
    };
    let [low, high] = bounds.as_slice() else { return None };
    let stretch = Stretch {
        low: bound(low)?,
        low_closed: *open == '[',
        high: bound(high)?,
        high_closed: *close == ']',
    };
    (stretch.begins() <= stretch.ends()).then_some(stretch)
}

#[cfg(test)]
mod tests {
    use crate::grade::math::equal;

    #[test]
    fn unions_are_equal_if_all_their_ends_are() {
        for (one, other, same) in [
            ("(0,\\infty)\\cup(-2,-1)", "(-2,-1)\\cup(0,5)", false),
            ("(-\\infty,1)\\cup(2,3)", "(-7,1)\\cup(2,3)", false),
            ("(-\\infty,1)\\cup(2,\\infty)", "(2,\\infty)\\cup(-\\infty,1)", true),
            ("(-\\infty,1)\\cup(2,\\infty)", "(-\\infty,1)\\cup(2,-\\infty)", false),
            ("(1,2)\\cup[1,3]", "[1,3]", true),
            ("(1,2)\\cup[1,3]", "(1,3]", false),
            ("[1,3]\\cup(1,2)", "[1,3]", true),
            ("(1,2]\\cup[1,1]", "[1,2]", true),
            ("\\pi<x<2\\pi", "(\\pi,2\\pi)", true),
            ("\\pi<x<2\\pi", "(\\pi,3\\pi)", false),
            ("x>e", "(e,\\infty)", true),
            ("x\\le\\pi", "(-\\infty,\\pi]", true),
            ("k>-2 \\text{ and } k\\neq 0", "(-2,0)\\cup(0,\\infty)", true),
            ("k>-2 \\text{ and } k\\neq 0", "(-2,\\infty)", false),
            ("k>-2 \\text{ and } k\\neq -3", "(-2,\\infty)", false),
            ("k>-2 \\text{ and } x\\neq 0", "(-2,0)\\cup(0,\\infty)", false),
        ] {
            assert_eq!(equal(one, other), same, "{one} and {other}");
            assert_eq!(equal(other, one), same, "{other} and {one}");
        }
    }
}
