//! Bounds the cost of an evaluation before it begins.

use super::exact::{FRACTION_BITS, WHOLE_BITS};
use super::expr::Expr;

/// The cost of an evaluation.
pub(super) struct Cost {
    pub(super) steps: usize,
    /// A bound on the bits of the exact value, if there may be one.
    bits: Option<u64>,
    /// True if the exact value must be a whole number.
    whole: bool,
}

impl Cost {
    fn new(steps: usize, bits: Option<u64>, whole: bool) -> Self {
        let most = if whole { WHOLE_BITS } else { FRACTION_BITS };
        let bits = bits.map(|bits| bits.min(most));
        Self { steps, bits, whole }
    }
}

/// Returns the cost of one evaluation of a formula.
pub(super) fn of(expr: &Expr) -> Cost {
    match expr {
        Expr::Number(value, _) => Cost::new(1, value.bits(), value.exact.as_ref().is_some_and(|n| n.is_integer())),
        Expr::Infinity | Expr::Variable(_) => Cost::new(1, None, false),
        Expr::Function(_, a) => Cost::new(1 + of(a).steps, None, false),
        Expr::Negative(a) | Expr::Absolute(a) | Expr::Degrees(a) => {
            let a = of(a);
            Cost::new(1 + a.steps, a.bits, a.whole)
        }
        Expr::Root(a, _) => {
            let a = of(a);
            Cost::new(1 + a.steps + long(a.bits), a.bits, false)
        }
        Expr::Sum(a, b) | Expr::Product(a, b) => of_both(&of(a), &of(b), false),
        Expr::Quotient(a, b) => of_both(&of(a), &of(b), true),
        Expr::Power(a, b) => of_power(&of(a), b),
        Expr::Log(a, b) => Cost::new(1 + of(a).steps + of(b).steps, None, false),
        Expr::Factorial(a) => {
            let a = of(a);
            let bits = a.bits.map(of_factorial);
            Cost::new(1 + a.steps + long(bits), bits, true)
        }
        Expr::Binomial(a, b) => {
            let (a, b) = (of(a), of(b));
            // There are fewer than 2^n ways to choose of n things.
            let bits = a.bits.zip(b.bits).map(|(n, _)| 1 << n.min(14));
            Cost::new(1 + a.steps + b.steps + long(bits), bits, true)
        }
    }
}

/// Returns the cost of an operation on two values. Cancelling the common divisor of fractions takes
/// quadratic time.
fn of_both(a: &Cost, b: &Cost, divides: bool) -> Cost {
    let whole = a.whole && b.whole && !divides;
    let bits = a.bits.zip(b.bits).map(|(a, b)| a + b + 1);
    let words = |most: u64| bits.map_or(0, |bits| (bits.min(most) / 64) as usize);
    let multiplied = words(WHOLE_BITS).pow(2) / 64;
    let cancelled = if whole { 0 } else { words(FRACTION_BITS).pow(2) };
    Cost::new(1 + a.steps + b.steps + multiplied + cancelled, bits, whole)
}

fn of_power(base: &Cost, exponent: &Expr) -> Cost {
    let size = size_of(exponent);
    let whole = base.whole && !matches!(exponent, Expr::Negative(_)) && size.is_some();
    let exponent = of(exponent);
    let bits = base.bits.zip(exponent.bits);
    let bits = bits.map(|(bits, _)| bits.saturating_mul(size.unwrap_or(WHOLE_BITS)));
    Cost::new(1 + base.steps + exponent.steps, bits, whole)
}

/// Returns the size of an exponent that is a plain whole number.
fn size_of(exponent: &Expr) -> Option<u64> {
    match exponent {
        Expr::Number(value, _) => u64::try_from(value.as_whole()?.unsigned_abs()).ok(),
        Expr::Negative(inner) => size_of(inner),
        _ => None,
    }
}

/// Returns a bound on the bits of n!, where n has `bits`.
fn of_factorial(bits: u64) -> u64 {
    // A longer n has no factorial that is computed.
    let n = 1u64 << bits.min(11);
    if bits <= 1 { 1 } else { n * bits.min(11) }
}

/// Returns the steps of an operation that costs more with each bit of its result.
fn long(bits: Option<u64>) -> usize {
    bits.map_or(0, |bits| (bits.min(WHOLE_BITS) / 4) as usize)
}
