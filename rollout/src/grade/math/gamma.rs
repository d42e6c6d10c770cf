//! Factorials and binomials of numbers that are not whole, for formulas with variables at fixed
//! points.

use std::f64::consts::{PI, TAU};

use super::complex::Complex;
use super::number::Number;

/// Lanczos, "A precision approximation of the gamma function", SIAM J. Numer. Anal. B 1 (1964),
/// with g = 7 and these nine coefficients: accurate to about 1e-15.
const G: f64 = 7.0;
const COEFFICIENTS: [f64; 9] = [
    0.999_999_999_999_809_9,
    676.520_368_121_885_1,
    -1_259.139_216_722_402_8,
    771.323_428_777_653_1,
    -176.615_029_162_140_6,
    12.507_343_278_686_905,
    -0.138_571_095_265_720_12,
    9.984_369_578_019_572e-6,
    1.505_632_735_149_311_6e-7,
];

/// `SERIES` is the relative error of the series. `GROWTH` bounds the relative growth of the gamma
/// function away from its poles, which scales the error of the argument.
const SERIES: f64 = 1e-11;
const GROWTH: f64 = 100.0;

/// Returns n! as the gamma function of n + 1. Returns `None` for whole numbers: they have an exact
/// factorial, or none.
pub(super) fn factorial(n: &Number) -> Option<Number> {
    value(gamma(between(n)? + 1.0), n.error)
}

/// Returns n over k by gamma functions, where n is not a whole number.
pub(super) fn binomial(n: &Number, k: &Number) -> Option<Number> {
    let error = n.error + k.error;
    let (n, k) = (between(n)?, k.as_real()?);
    value(gamma(n + 1.0) / (gamma(k + 1.0) * gamma(n - k + 1.0)), error)
}

/// The gamma function is never zero, so a zero is an underflow.
fn value(value: f64, error: f64) -> Option<Number> {
    Number::nonzero(Complex::real(value), value.abs() * (SERIES + GROWTH * error))
}

fn between(n: &Number) -> Option<f64> {
    if n.as_whole().is_some() { None } else { n.as_real() }
}

/// Returns the gamma function of a real number. At a pole the result is infinite or NaN.
fn gamma(x: f64) -> f64 {
    if x < 0.5 {
        // The reflection formula.
        return PI / ((PI * x).sin() * gamma(1.0 - x));
    }
    let x = x - 1.0;
    let mut sum = COEFFICIENTS[0];
    for (at, coefficient) in (1u8..).zip(&COEFFICIENTS[1..]) {
        sum += coefficient / (x + f64::from(at));
    }
    let t = x + G + 0.5;
    TAU.sqrt() * t.powf(x + 0.5) * (-t).exp() * sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gamma_has_its_known_values() {
        for (x, known) in [
            (1.0, 1.0),
            (0.5, PI.sqrt()),
            (5.0, 24.0),
            (11.0, 3_628_800.0),
            (-0.5, -2.0 * PI.sqrt()),
        ] {
            let value = gamma(x);
            assert!((value / known - 1.0).abs() < 1e-12, "{x}: {value} for {known}");
        }
    }
}
