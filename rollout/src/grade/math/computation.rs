//! Reads computations: one number in several spellings, such as `2^{10} = 1024` and
//! `\frac{1}{3} \approx 0.33`.

use super::answer::{Answer, Context, read as read_answer};
use super::expr::Expr;
use super::number::Number;
use super::op::Op;
use crate::grade::normal::token::Token;

/// Largest relative distance of a term that still is a rounding of the exact value. Such a term is
/// no answer, but it does not take the exact one back.
const ROUGH: f64 = 0.05;

/// Reads a side that is a number. Returns the formula with its value, and true for a percentage.
pub(super) fn number(side: &[Token], context: Context) -> Option<(Expr, Number, bool)> {
    match read_answer(side, context.deeper())? {
        Answer::Value(expr, percent) => {
            let mut names = std::collections::BTreeSet::new();
            expr.variables(&mut names);
            let value = expr.number().filter(|_| names.is_empty())?;
            Some((expr, value, percent))
        }
        _ => None,
    }
}

/// Reads a chain of numbers. Returns `None` if the terms contradict each other: then no term is the
/// answer.
pub(super) fn read(sides: &[&[Token]], ops: &[Op], has_units: bool, context: Context) -> Option<Answer> {
    let terms: Option<Vec<(Expr, Number, bool)>> = sides.iter().map(|side| number(side, context)).collect();
    let terms = terms?;
    let answer = |(expr, _, percent): &(Expr, Number, bool)| Answer::Value(expr.clone(), *percent);
    let (first, rest) = terms.split_first()?;
    let has_degrees = terms.iter().any(|(expr, ..)| matches!(expr, Expr::Degrees(_)));
    if has_degrees && rest.iter().all(|term| is_same_angle(first, term)) {
        return Some(Answer::Same(terms.iter().map(answer).collect()));
    }
    // 5 cm are 0.05 m.
    let last = || terms.last().map(answer).filter(|_| has_units || has_degrees);
    let mut kept = vec![answer(first)];
    for (at, term) in rest.iter().enumerate() {
        let rough = ops[..=at].contains(&Op::Approx);
        if is_same(first, term) || rounds(first, term, rough) {
            kept.push(answer(term));
        } else if has_units || has_degrees || !(rough && is_near(&first.1, &term.1)) {
            return last();
        }
    }
    Some(Answer::Same(kept))
}

/// Returns one value for an exact value and its rounding, of which `or` makes a list:
/// `0.667 or 2/3`. Rounded to one place it may be another value.
pub(super) fn spelled_twice(all: &[Answer]) -> Option<Answer> {
    let term = |one: &Answer| match one {
        Answer::Value(expr, percent) => {
            let mut names = std::collections::BTreeSet::new();
            expr.variables(&mut names);
            let value = expr.number().filter(|_| names.is_empty())?;
            Some((expr.clone(), value, *percent))
        }
        _ => None,
    };
    let [one, other] = all else { return None };
    let ((name, one), (other_name, other)) = (named_value(one), named_value(other));
    if name.is_some() && other_name.is_some() && name != other_name {
        return None;
    }
    let (a, b) = (term(one)?, term(other)?);
    let is_rounding = |exact, term: &(Expr, Number, bool)| term.0.places() >= 2 && rounds(exact, term, false);
    (is_rounding(&a, &b) || is_rounding(&b, &a)).then(|| Answer::Same(all.to_vec()))
}

/// Returns a name and its value, or a value without a name.
fn named_value(answer: &Answer) -> (Option<&[Token]>, &Answer) {
    match answer {
        Answer::Named(named) if named.stands => (Some(&named.name), &named.value),
        other => (None, other),
    }
}

/// Returns true if two terms are the same angle: 90 degrees are half of pi.
fn is_same_angle(a: &(Expr, Number, bool), b: &(Expr, Number, bool)) -> bool {
    let radians = |(expr, value, _): &(Expr, Number, bool)| match expr {
        Expr::Degrees(_) => value.clone().multiply(Number::rounded(std::f64::consts::PI / 180.0)?),
        _ => Some(value.clone()),
    };
    radians(a).zip(radians(b)).is_some_and(|(a, b)| Number::equal(&a, &b))
}

/// Returns true if two terms are equal, where a percentage may be its hundredth.
fn is_same(a: &(Expr, Number, bool), b: &(Expr, Number, bool)) -> bool {
    let scaled = |(_, value, percent): &(Expr, Number, bool)| {
        if *percent {
            Number::whole(100).and_then(|hundred| value.clone().divide(hundred))
        } else {
            Some(value.clone())
        }
    };
    Number::equal(&a.1, &b.1) || (a.2 != b.2 && scaled(a).zip(scaled(b)).is_some_and(|(a, b)| Number::equal(&a, &b)))
}

/// Returns true if the second term is the first one, rounded or truncated to its places. With a
/// plain equals sign, a decimal does not round another decimal.
fn rounds(exact: &(Expr, Number, bool), term: &(Expr, Number, bool), rough: bool) -> bool {
    let (Some(value), Some(written)) = (exact.1.as_real(), term.1.as_real()) else {
        return false;
    };
    if !rough && exact.0.is_literal() {
        return false;
    }
    let value = match (exact.2, term.2) {
        (false, true) => value * 100.0,
        (true, false) => value / 100.0,
        _ => value,
    };
    let (distance, places) = ((value - written).abs(), term.0.places());
    if places > 0 {
        let unit = 10f64.powi(-i32::try_from(places.min(300)).unwrap_or(300)) * (1.0 + 1e-9);
        let truncated = distance < unit && written.abs() <= value.abs();
        return distance <= 0.5 * unit || truncated;
    }
    rough && term.0.is_literal() && distance <= 0.5 * trailing(written) * (1.0 + 1e-9)
}

/// Returns the power of ten of the zeros at the end of a whole number.
fn trailing(written: f64) -> f64 {
    let mut unit = 1.0;
    while unit < 1e15 && written != 0.0 && (written / (unit * 10.0)).fract() == 0.0 {
        unit *= 10.0;
    }
    unit
}

fn is_near(a: &Number, b: &Number) -> bool {
    Number::distance(a, b) <= ROUGH * a.size()
}

#[cfg(test)]
mod tests {
    use crate::grade::math::equal;

    #[test]
    fn a_computation_is_its_value_and_no_contradiction_is_one() {
        for (answer, label, same) in [
            ("\\frac{1}{3} \\approx 0.333", "1/3", true),
            ("\\frac{1}{3} \\approx 0.333", "0.333", true),
            ("10\\sqrt{2} \\approx 14.14", "10\\sqrt{2}", true),
            ("10\\sqrt{2} \\approx 14.14", "14.14", true),
            ("\\sqrt{2} = 1.5", "1.5", false),
            ("\\sqrt{2} = 1.41", "\\sqrt{2}", true),
            ("\\pi \\approx 3.14", "\\pi", true),
            ("e = 5", "5", true),
            ("2^{10} = 1024", "1024", true),
            ("2^{10} = 1023", "1023", false),
            ("3+4=8", "8", false),
            ("20\\% = 0.2", "0.2", true),
            ("99.6 \\approx 100", "100", true),
            ("100 \\approx 101", "101", false),
            ("100 \\approx 101", "100", true),
            ("1 \\approx 2", "1", false),
            ("2.345 = 2.35", "2.35", false),
            ("x = 5 = 3", "3", false),
            ("x = \\frac{10}{2} = 5", "x = 5", true),
            ("x \\approx 3.14", "3.14", true),
            ("x = \\pi \\approx 3.14", "\\pi", true),
            ("S = n(n+1) = n^2+n", "S = n^2+n", true),
            ("5 = x", "x = 5", true),
            ("5 \\text{ cm} = 0.05 \\text{ m}", "0.05", true),
            ("a+b=5", "5", true),
            ("AB=5", "5", true),
            ("S_{10}=55", "55", true),
            ("\\sin\\theta=\\frac12", "1/2", true),
            ("\\sum_{k=1}^{10} k = 55", "55", true),
            ("f^{-1}(x) = \\frac{x-1}{2}", "\\frac{x-1}{2}", true),
            ("2x = 10 \\Rightarrow x = 5", "5", true),
            ("p \\Rightarrow q", "q", false),
            ("25", "x^2+y^2=25", false),
            ("x^2+y^2=25", "x^2+y^2=25", true),
            ("(x+1)^2 = x^2+2x+1", "x^2+2x+1", true),
        ] {
            assert_eq!(equal(answer, label), same, "{answer} and {label}");
        }
    }
}
