//! Decides whether two answers are the same.
//!
//! Two formulas without variables are the same if their exact values are equal. With variables,
//! they are the same if they agree at fixed points, which no author of an answer chose. This is the
//! identity test of Schwartz and Zippel, with floating-point points because formulas have roots and
//! sines.

use std::collections::BTreeSet;

use super::answer::{Answer, Named};
use super::budget::Budget;
use super::clock::Clock;
use super::condition::is_same_name;
use super::exact;
use super::expr::Expr;
use super::interval::{cover_the_same, interval};
use super::number::Number;
use super::op::Op;
use super::relation::Relation;
use crate::grade::normal::token::Token;
use crate::shuffle::SplitMix;

/// Points at which formulas with variables are compared. At least `ENOUGH` of them must give
/// values.
const POINTS: u64 = 8;
const ENOUGH: usize = 3;
/// Relative tolerance between the ratios at two points.
const TOLERANCE: f64 = 1e-8;
/// Largest sets that are compared, because the comparison is quadratic.
const LARGEST: usize = 64;
/// A decimal with at least this many places also stands for the numbers that it rounds or
/// truncates.
const ROUNDED: usize = 6;
/// The least size of such a decimal, in units of its last place: three digits, less the error of
/// floating-point numbers. `0.000001` is no rounded value of `0.0000013`.
const LEAST: f64 = 99.5;
const DEEPEST: usize = 8;

/// Returns true if two answers are the same. Returns false if the budget runs out first.
pub(super) fn same(a: &Answer, b: &Answer, budget: &Budget) -> bool {
    deep(a, b, 0, budget)
}

fn deep(a: &Answer, b: &Answer, depth: usize, budget: &Budget) -> bool {
    use Answer::{Matrix, Named, Ratio, Relation, Same, Set, Time, Tuple, Union, Value, Words};
    if depth > DEEPEST || !budget.spend(1) {
        return false;
    }
    let next = |a: &Answer, b: &Answer| deep(a, b, depth + 1, budget);
    let all = |a: &[Answer], b: &[Answer]| a.len() == b.len() && a.iter().zip(b).all(|(a, b)| next(a, b));
    match (a, b) {
        (Value(a, a_percent), Value(b, b_percent)) => values((a, *a_percent), (b, *b_percent), budget),
        (Words(a), Words(b)) => a == b,
        (Words(words), Value(..)) => letter(b).is_some_and(|b| *words == b),
        (Value(..), Words(words)) => letter(a).is_some_and(|a| *words == a),
        (Named(a), Named(b)) => both_named(a, b, depth, budget),
        (Named(one), Relation(chain)) | (Relation(chain), Named(one)) => match (&one.relation, chain.as_slice()) {
            (Some(one), [other]) => relations(one, other, budget),
            _ => false,
        },
        (Same(terms), other) => terms.iter().any(|term| next(term, other)),
        (other, Same(terms)) => terms.iter().any(|term| next(other, term)),
        (Named(a), b) => a.stands && next(&a.value, b),
        (a, Named(b)) => b.stands && next(a, &b.value),
        (Ratio(a), Ratio(b)) => proportional(a, b, budget),
        (Time(a), Time(b)) => a.same(*b),
        (Time(time), Value(number, false)) | (Value(number, false), Time(time)) => is_hour(*time, number),
        (Relation(a), Relation(b)) => chains(a, b, budget),
        (Relation(chain), Value(value, false)) | (Value(value, false), Relation(chain)) => proves(chain, value, budget),
        (Relation(chain), other) | (other, Relation(chain)) => interval(chain).is_some_and(|chain| next(&chain, other)),
        (Set(a), Set(b)) => sets(a, b, depth, budget),
        (Set(set), Union(union)) | (Union(union), Set(set)) => match (joined(union), alternatives(set)) {
            (Some(joined), _) => sets(&joined, set, depth, budget),
            (None, Some(set)) => unions(&set, union, depth, budget),
            (None, None) => false,
        },
        (Set(set), Tuple('(', ')', tuple)) | (Tuple('(', ')', tuple), Set(set))
            if assigned(set).is_some_and(|set| all(&set, tuple)) =>
        {
            true
        }
        (Set(set), other) | (other, Set(set)) => !set.is_empty() && set.iter().all(|one| next(one, other)),
        (Tuple(a_open, a_close, a), Tuple(b_open, b_close, b)) => (a_open, a_close) == (b_open, b_close) && all(a, b),
        (Union(one), Union(other)) => unions(one, other, depth, budget),
        (Union(_), Tuple(..)) | (Tuple(..), Union(_)) => cover_the_same(a, b).unwrap_or(false),
        (Matrix(a), Matrix(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| all(a, b)),
        _ => false,
    }
}

/// Returns true if two names have equal values, or two equations are equivalent.
fn both_named(a: &Named, b: &Named, depth: usize, budget: &Budget) -> bool {
    let equivalent = match (&a.relation, &b.relation) {
        (Some(a), Some(b)) => relations(a, b, budget),
        _ => false,
    };
    equivalent || (is_same_name(&a.name, &b.name) && deep(&a.value, &b.value, depth + 1, budget))
}

/// Returns true if the terms of two ratios are proportional.
fn proportional(a: &[Expr], b: &[Expr], budget: &Budget) -> bool {
    let product = |a: &Expr, b: &Expr| Expr::Product(Box::new(a.clone()), Box::new(b.clone()));
    let (Some(first), Some(other)) = (a.first(), b.first()) else {
        return false;
    };
    let same = |(one, two): (&Expr, &Expr)| equal(&product(one, other), &product(two, first), budget);
    a.len() == b.len() && a.iter().zip(b).all(same)
}

/// Returns true if a bare number names the hour: `3` for `3 p.m.`.
fn is_hour(time: Clock, number: &Expr) -> bool {
    let value = number.number().and_then(|value| value.as_whole());
    time.hour().is_some_and(|hour| value == Some(i128::from(hour)))
}

/// Returns true if a chain of equal formulas ends with this formula: `(x+1)^2 = x^2+2x+1`.
fn proves(chain: &[Relation], value: &Expr, budget: &Budget) -> bool {
    let identity = |one: &Relation| one.op == Op::Equal && equal(&one.left, &one.right, budget);
    let last = chain.last().map(|one| &one.right);
    chain.iter().all(identity) && last.is_some_and(|last| equal(last, value, budget))
}

/// Returns the letter of a formula that is a single variable, in lower case.
fn letter(answer: &Answer) -> Option<String> {
    match answer {
        Answer::Value(Expr::Variable(name), false) => Some(name.to_lowercase()),
        _ => None,
    }
}

/// Returns true if every element of each set equals an element of the other.
fn sets(a: &[Answer], b: &[Answer], depth: usize, budget: &Budget) -> bool {
    let within = |a: &[Answer], b: &[Answer]| a.iter().all(|a| b.iter().any(|b| deep(a, b, depth + 1, budget)));
    a.len() <= LARGEST && b.len() <= LARGEST && within(a, b) && within(b, a)
}

/// Returns the values of consecutive letters in their order: 2 and -1 of `y = -1, x = 2`, which is
/// the point `(2, -1)`. Other letters have no certain order: w and h are a width and a height.
fn assigned(set: &[Answer]) -> Option<Vec<Answer>> {
    let assignment = |one: &Answer| match one {
        Answer::Named(Named { name, value, .. }) => match name.as_slice() {
            [Token::Letter(letter)] => Some((*letter, (**value).clone())),
            _ => None,
        },
        _ => None,
    };
    let mut assigned: Vec<(char, Answer)> = set.iter().map(assignment).collect::<Option<_>>()?;
    assigned.sort_by_key(|(letter, _)| *letter);
    let next = |pair: &[(char, Answer)]| u32::from(pair[1].0) == u32::from(pair[0].0) + 1;
    assigned
        .windows(2)
        .all(next)
        .then(|| assigned.into_iter().map(|(_, value)| value).collect())
}

/// Returns the elements of a union of sets.
fn joined(union: &[Answer]) -> Option<Vec<Answer>> {
    let mut all = Vec::new();
    for part in union {
        match part {
            Answer::Set(set) => all.extend(set.iter().cloned()),
            _ => return None,
        }
    }
    Some(all)
}

/// Returns the intervals of a set of relations: `x < 2 or x > 3`.
fn alternatives(set: &[Answer]) -> Option<Vec<Answer>> {
    let one = |one: &Answer| match one {
        Answer::Relation(chain) => interval(chain),
        _ => None,
    };
    set.iter().map(one).collect()
}

/// Returns true if both cover the same numbers, or have the same parts.
fn unions(a: &[Answer], b: &[Answer], depth: usize, budget: &Budget) -> bool {
    let union = |parts: &[Answer]| Answer::Union(parts.to_vec());
    cover_the_same(&union(a), &union(b)).unwrap_or_else(|| sets(a, b, depth, budget))
}

/// Compares two formulas. The flags are true if a percent sign followed.
fn values((a, a_percent): (&Expr, bool), (b, b_percent): (&Expr, bool), budget: &Budget) -> bool {
    // A percentage equals its number, and also its hundredth part.
    let hundredth = |expr: &Expr| {
        let hundred = Number::whole(100).map(|n| Expr::Number(n, 0))?;
        Some(Expr::Quotient(Box::new(expr.clone()), Box::new(hundred)))
    };
    equal(a, b, budget)
        || (a_percent && !b_percent && hundredth(a).is_some_and(|a| equal(&a, b, budget)))
        || (b_percent && !a_percent && hundredth(b).is_some_and(|b| equal(a, &b, budget)))
}

/// Returns true if two formulas are equal.
fn equal(a: &Expr, b: &Expr, budget: &Budget) -> bool {
    if !budget.spend(a.size() + b.size()) {
        return false;
    }
    let names = |expr: &Expr| {
        let mut names = BTreeSet::new();
        expr.variables(&mut names);
        names
    };
    if names(a).is_empty() && names(b).is_empty() {
        let nowhere = |_: &str| f64::NAN;
        let (Some(x), Some(y)) = (a.value(&nowhere), b.value(&nowhere)) else {
            return a == b;
        };
        return Number::equal(&x, &y) || rounds(a, &x, &y) || rounds(b, &y, &x);
    }
    ratio(a, b, budget, |ratio| (ratio - 1.0).abs() <= 1e-9) || a == b
}

/// Returns true if the decimal number `x` is `y`, rounded or truncated to the places of `x`.
fn rounds(written: &Expr, x: &Number, y: &Number) -> bool {
    let places = written.places();
    let unit = 10f64.powi(-i32::try_from(places.min(300)).unwrap_or(300));
    let precise = places >= ROUNDED && x.approx.modulus() >= LEAST * unit;
    let rounded = precise && y.exact.as_ref().is_none_or(|y| !y.is_integer());
    if let (Some(x), Some(y)) = (&x.exact, &y.exact) {
        return rounded && u32::try_from(places).is_ok_and(|places| exact::rounds(x, y, places));
    }
    rounded && y.error <= unit && Number::distance(x, y) <= unit
}

/// Returns true if a / b is the same number at all points where both have values, and `accept`
/// accepts it.
fn ratio(a: &Expr, b: &Expr, budget: &Budget, accept: impl Fn(f64) -> bool) -> bool {
    let (mut found, mut real, mut first) = (0, 0, None);
    let size = a.size() + b.size();
    for point in 0..POINTS {
        if !budget.spend(size) {
            return false;
        }
        let at = |name: &str| coordinate(name, point);
        let (Some(x), Some(y)) = (a.value(&at), b.value(&at)) else {
            continue;
        };
        // A point without enough digits proves nothing.
        let tells = |value: &Number| value.approx.is_finite() && (value.is_right_within(TOLERANCE) || value.is_zero());
        if !(tells(&x) && tells(&y)) || Number::too_small_to_tell(&x, &y) {
            continue;
        }
        let reals = [&x, &y].iter().filter(|value| value.as_real().is_some()).count();
        // Where a real function has no real value, the branch of a root is a matter of taste.
        if reals == 0 && real >= ENOUGH {
            continue;
        }
        real += reals / 2;
        found += 1;
        if x.is_zero() && y.is_zero() {
            continue;
        }
        let Some(ratio) = x.divide(y).and_then(|ratio| ratio.as_real()) else {
            return false;
        };
        let known = *first.get_or_insert(ratio);
        if (known - ratio).abs() > TOLERANCE * known.abs() {
            return false;
        }
    }
    found >= ENOUGH && first.is_none_or(accept)
}

/// Returns the value of a variable at a point, from 0.3 to 2.7 in size. In the second half of the
/// points about half of the values are negative.
fn coordinate(name: &str, point: u64) -> f64 {
    let name = name.bytes().fold(0xCBF2_9CE4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3)
    });
    let mut random = SplitMix::new(name.wrapping_add(point.wrapping_mul(0x9E37_79B9)));
    let size = 0.3 + 2.4 * random.unit();
    if point >= POINTS / 2 && random.bits().is_multiple_of(2) {
        -size
    } else {
        size
    }
}

/// Returns true if two relations are equivalent: the difference of the sides is a multiple of the
/// other's. For inequalities the factor must be positive.
fn relations(a: &Relation, b: &Relation, budget: &Budget) -> bool {
    if !budget.spend([a, b].iter().map(|r| r.left.size() + r.right.size()).sum()) {
        return false;
    }
    let less = |r: &Relation| {
        Expr::Sum(
            Box::new(r.left.clone()),
            Box::new(Expr::Negative(Box::new(r.right.clone()))),
        )
    };
    let sign_counts = matches!(a.op, Op::Less | Op::AtMost);
    let mut names = (BTreeSet::new(), BTreeSet::new());
    less(a).variables(&mut names.0);
    less(b).variables(&mut names.1);
    if names.0 != names.1 && names.0.len() == 1 && names.1.len() == 1 {
        let renamed = |one: &Relation, names: &BTreeSet<String>| names.first().and_then(|name| one.with_name(name));
        return match (renamed(a, &names.1), renamed(b, &names.0)) {
            (Some(a), None) => relations(&a, b, budget),
            (None, Some(b)) => relations(a, &b, budget),
            _ => false,
        };
    }
    a.op == b.op
        && names.0 == names.1
        && ratio(&less(a), &less(b), budget, |ratio| {
            ratio.abs() > 1e-9 && (!sign_counts || ratio > 0.0)
        })
}

fn chains(a: &[Relation], b: &[Relation], budget: &Budget) -> bool {
    let within = |a: &[Relation], b: &[Relation]| a.iter().all(|a| b.iter().any(|b| relations(a, b, budget)));
    a.len() == b.len() && a.len() <= LARGEST && within(a, b) && within(b, a)
}
