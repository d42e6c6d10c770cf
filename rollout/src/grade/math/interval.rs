//! Intervals and their unions as stretches of the real line.

use super::answer::{Answer, Op, Relation};
use super::expr::{Expr, is_constant};
use super::number::Number;

/// The interval that `1 < x <= 2` or `x > 1` is.
pub(super) fn interval(chain: &[Relation]) -> Option<Answer> {
    let (mut low, mut high, mut name) = (None, None, None);
    for Relation { left, op, right } in chain {
        let closed = match op {
            Op::Less => false,
            Op::AtMost => true,
            Op::Equal | Op::Unequal => return None,
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
    name?;
    let (low, low_closed) = low.unwrap_or((Expr::Negative(Box::new(Expr::Infinity)), false));
    let (high, high_closed) = high.unwrap_or((Expr::Infinity, false));
    let open = if low_closed { '[' } else { '(' };
    let close = if high_closed { ']' } else { ')' };
    Some(Answer::Tuple(
        open,
        close,
        vec![Answer::Value(low, false), Answer::Value(high, false)],
    ))
}

/// A stretch of the real line.
#[derive(Debug, Clone, Copy)]
struct Stretch {
    low: f64,
    low_closed: bool,
    high: f64,
    high_closed: bool,
}

/// Whether two unions of intervals, or one and an interval, cover the same; `None` if one of them is something else, or has a
/// bound without a real value.
pub(super) fn cover_the_same(a: &Answer, b: &Answer) -> Option<bool> {
    let (a, b) = (stretches(a)?, stretches(b)?);
    // Of an infinite bound every finite one would be within any part.
    let close = |a: f64, b: f64| {
        let finite = a.is_finite() && b.is_finite();
        a == b || (finite && (a - b).abs() <= 1e-9 * a.abs().max(b.abs()).max(1.0))
    };
    let same = |(a, b): (&Stretch, &Stretch)| {
        close(a.low, b.low) && close(a.high, b.high) && (a.low_closed, a.high_closed) == (b.low_closed, b.high_closed)
    };
    Some(a.len() == b.len() && a.iter().zip(&b).all(same))
}

/// The stretches of a union of intervals, merged and in order; `None` if a bound has no real value.
fn stretches(answer: &Answer) -> Option<Vec<Stretch>> {
    let parts = match answer {
        Answer::Union(parts) => parts.as_slice(),
        one => std::slice::from_ref(one),
    };
    let mut all: Vec<Stretch> = parts.iter().map(stretch).collect::<Option<_>>()?;
    all.sort_by(|a, b| a.low.total_cmp(&b.low));
    let mut merged: Vec<Stretch> = Vec::new();
    for next in all {
        match merged.last_mut() {
            Some(last) if next.low < last.high || (next.low == last.high && (next.low_closed || last.high_closed)) => {
                last.low_closed |= next.low == last.low && next.low_closed;
                if next.high > last.high || (next.high == last.high && next.high_closed) {
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
        Answer::Value(expr, false) => expr.value(&|_| f64::NAN).and_then(Number::as_real),
        _ => None,
    };
    let [low, high] = bounds.as_slice() else { return None };
    let (low, high) = (bound(low)?, bound(high)?);
    (low <= high).then_some(Stretch {
        low,
        low_closed: *open == '[',
        high,
        high_closed: *close == ']',
    })
}

#[cfg(test)]
mod tests {
    use crate::grade::math::equal;

    #[test]
    fn stretches_are_the_same_where_all_their_ends_are() {
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
        ] {
            assert_eq!(equal(one, other), same, "{one} and {other}");
            assert_eq!(equal(other, one), same, "{other} and {one}");
        }
    }
}
