//! Values of formulas: exact fractions as far as they go, else complex numbers in floating point, with what rounding may have done to
//! them. A number without digits, because they were too small for floating point or were lost on the way, is no value.

use super::complex::Complex;

/// Highest degree of a root.
pub(super) const MOST_DEGREE: u32 = 64;
/// What one step of floating point may add to the error, relative to its result.
pub(super) const STEP: f64 = 2.0 * f64::EPSILON;
/// Errors are followed to the first order only: this many times one is taken for its bound.
pub(super) const SLACK: f64 = 4.0;
/// Whole numbers up to here are floating-point numbers.
pub(super) const WHOLE: f64 = (1u64 << 53) as f64;
/// Two values are equal within this, relative to the larger one, where both have digits enough.
const DIGITS: f64 = 1e-9;
/// What is no further from zero than rounding explains is zero, up to errors of this size: `\sin\pi`.
const DUST: f64 = 1e-10;
/// Errors up to this, relative to the value, can be followed through functions.
pub(super) const FOLLOWED: f64 = 0.1;

/// A number, exact where that is possible.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Number {
    /// Numerator and positive denominator, without a common factor.
    pub(super) exact: Option<(i128, i128)>,
    pub(super) approx: Complex,
    /// How far from the value `approx` may be.
    pub(super) error: f64,
}

impl Number {
    pub(super) fn exact(numerator: i128, denominator: i128) -> Option<Self> {
        if denominator == 0 || numerator == i128::MIN || denominator == i128::MIN {
            return None;
        }
        let divisor = gcd(numerator.unsigned_abs(), denominator.unsigned_abs()) as i128 * denominator.signum();
        let (n, d) = (numerator / divisor, denominator / divisor);
        let value = n as f64 / d as f64;
        let held = d == 1 && value as i128 == n;
        Some(Self {
            exact: Some((n, d)),
            approx: Complex::real(value),
            error: if held { 0.0 } else { STEP * value.abs() },
        })
    }

    /// `None` for what is no number, or infinite.
    pub(super) fn inexact(approx: Complex, error: f64) -> Option<Self> {
        let value = Self {
            exact: None,
            approx,
            error,
        };
        (approx.is_finite() && error.is_finite()).then_some(value)
    }

    /// What cannot be zero: `None` where floating point is too coarse to show it.
    pub(super) fn nonzero(approx: Complex, error: f64) -> Option<Self> {
        Self::inexact(approx, error).filter(|value| value.size() >= f64::MIN_POSITIVE)
    }

    /// A floating-point number itself.
    pub(super) fn given(value: f64) -> Option<Self> {
        Self::inexact(Complex::real(value), 0.0)
    }

    /// What was rounded to this floating-point number, and is not zero.
    pub(super) fn rounded(value: f64) -> Option<Self> {
        Self::nonzero(Complex::real(value), STEP * value.abs())
    }

    pub(super) fn infinity() -> Self {
        Self {
            exact: None,
            approx: Complex::real(f64::INFINITY),
            error: 0.0,
        }
    }

    pub(super) fn size(&self) -> f64 {
        self.approx.modulus()
    }

    /// Its real value, if it has one.
    pub(super) fn as_real(self) -> Option<f64> {
        let dust = (1e-12 * self.approx.re.abs()).max(SLACK * self.error);
        (self.approx.im.abs() <= dust).then_some(self.approx.re)
    }

    pub(super) fn as_whole(self) -> Option<i128> {
        self.exact.filter(|(_, d)| *d == 1).map(|(n, _)| n)
    }

    /// Whether it is zero as far as its digits tell, and they tell enough.
    pub(super) fn is_zero(&self) -> bool {
        self.may_be_zero() && self.error <= DUST
    }

    fn may_be_zero(&self) -> bool {
        self.size() <= SLACK * self.error
    }

    /// Whether rounding left it right to this part of it.
    pub(super) fn is_right_within(&self, relative: f64) -> bool {
        self.error <= relative * self.size()
    }

    /// Whether one is zero but for rounding, and the other one so small that the first may be it as well.
    pub(super) fn too_small_to_tell(a: &Self, b: &Self) -> bool {
        a.is_zero() != b.is_zero() && Self::distance(a, b) <= SLACK * (a.error + b.error)
    }

    /// Equal fractions; or floating-point values within 1e-9 relative to the larger one, if rounding left that many digits; or two that
    /// are zero but for rounding.
    pub(super) fn equal(a: &Self, b: &Self) -> bool {
        if let (Some(a), Some(b)) = (a.exact, b.exact) {
            return a == b;
        }
        if !(a.approx.is_finite() && b.approx.is_finite()) {
            return a.approx == b.approx;
        }
        let within = DIGITS * a.size().max(b.size());
        let near = Self::distance(a, b) <= within && a.error + b.error <= within;
        near || (a.is_zero() && b.is_zero())
    }

    pub(super) fn distance(a: &Self, b: &Self) -> f64 {
        (a.approx - b.approx).modulus()
    }

    pub(super) fn add(self, other: Self) -> Option<Self> {
        let sum = self.exact.zip(other.exact).and_then(|((a, b), (c, d))| {
            let numerator = a.checked_mul(d)?.checked_add(c.checked_mul(b)?)?;
            Self::exact(numerator, b.checked_mul(d)?)
        });
        sum.or_else(|| {
            let approx = self.approx + other.approx;
            Self::inexact(approx, self.error + other.error + STEP * approx.modulus())
        })
    }

    pub(super) fn negate(self) -> Self {
        Self {
            exact: self.exact.map(|(n, d)| (-n, d)),
            approx: self.approx * Complex::real(-1.0),
            error: self.error,
        }
    }

    pub(super) fn multiply(self, other: Self) -> Option<Self> {
        let product = self.exact.zip(other.exact);
        let product = product.and_then(|((a, b), (c, d))| Self::exact(a.checked_mul(c)?, b.checked_mul(d)?));
        product.or_else(|| {
            let approx = self.approx * other.approx;
            let (a, b) = (self.size(), other.size());
            let error = a * other.error + b * self.error + self.error * other.error + STEP * approx.modulus();
            if a == 0.0 || b == 0.0 {
                Self::inexact(approx, error)
            } else {
                Self::nonzero(approx, error)
            }
        })
    }

    pub(super) fn divide(self, other: Self) -> Option<Self> {
        let inverse = match other.exact {
            Some((n, d)) => Self::exact(d, n)?,
            None => other.inverse()?,
        };
        self.multiply(inverse)
    }

    fn inverse(self) -> Option<Self> {
        if self.may_be_zero() {
            return None;
        }
        let approx = self.approx.inverse();
        Self::nonzero(approx, approx.modulus() * (2.0 * self.error / self.size() + STEP))
    }

    pub(super) fn power(self, exponent: Self) -> Option<Self> {
        let whole = exponent.as_whole().and_then(|n| i32::try_from(n).ok());
        let exact = whole.zip(self.exact).and_then(|(e, (n, d))| {
            let (n, d) = (n.checked_pow(e.unsigned_abs())?, d.checked_pow(e.unsigned_abs())?);
            if e < 0 { Self::exact(d, n) } else { Self::exact(n, d) }
        });
        let root = || {
            let (n, d) = exponent.exact?;
            let root = self.root(u32::try_from(d).ok().filter(|d| (2..=MOST_DEGREE).contains(d))?)?;
            root.exact.and_then(|_| root.power(Self::exact(n, 1)?))
        };
        exact.or_else(root).or_else(|| self.inexact_power(exponent))
    }

    fn inexact_power(self, exponent: Self) -> Option<Self> {
        let approx = self.approx.power(exponent.approx);
        if self.may_be_zero() {
            // Of zero only what is zero again: as near to it as the base is.
            let least = exponent.approx.re - SLACK * exponent.error;
            let error = (self.size() + self.error).powf(least);
            let zero = exponent.approx.im == 0.0 && least > 0.0;
            return Self::inexact(approx, error).filter(|_| zero);
        }
        let (length, log) = (exponent.size(), self.approx.log().modulus());
        let of_base = (length + exponent.error) * self.error / self.size();
        let relative = of_base + log * exponent.error + STEP * (1.0 + length * log);
        let error = 2.0 * relative * approx.modulus();
        Self::nonzero(approx, error).filter(|_| relative < FOLLOWED)
    }

    /// The principal root; an odd root of a negative number is the real one, as in schools.
    pub(super) fn root(self, degree: u32) -> Option<Self> {
        if degree % 2 == 1 && self.as_real().is_some_and(|value| value < 0.0) {
            return self.negate().root(degree).map(Self::negate);
        }
        let whole = |n: i128| {
            let near = (n as f64).powf(1.0 / f64::from(degree)).round() as i128;
            near.checked_pow(degree).filter(|power| *power == n).map(|_| near)
        };
        let exact = self
            .exact
            .filter(|(n, _)| *n >= 0)
            .and_then(|(n, d)| Self::exact(whole(n)?, whole(d)?));
        exact.or_else(|| self.inexact_power(Self::rounded(1.0 / f64::from(degree))?))
    }

    pub(super) fn exp(self) -> Option<Self> {
        let approx = self.approx.exp();
        // Behind the imaginary part stand a sine and a cosine.
        let lost = self.error >= FOLLOWED || self.approx.im.abs() > WHOLE;
        let error = approx.modulus() * (2.0 * self.error + 2.0 * STEP);
        Self::nonzero(approx, error).filter(|_| !lost)
    }

    pub(super) fn ln(self) -> Option<Self> {
        let (approx, relative) = (self.approx.log(), self.error / self.size());
        let error = 2.0 * relative + STEP * approx.modulus();
        Self::inexact(approx, error).filter(|_| relative < FOLLOWED)
    }

    pub(super) fn absolute(self) -> Option<Self> {
        match self.exact {
            Some((n, d)) => Self::exact(n.abs(), d),
            None => Self::inexact(Complex::real(self.size()), self.error),
        }
    }

    /// n! of a whole number up to 30, exactly.
    pub(super) fn factorial(self) -> Option<Self> {
        let n = self.as_whole().filter(|n| (0..=30).contains(n))?;
        Self::exact((1..=n).product(), 1)
    }

    /// n over k of whole numbers up to 60.
    pub(super) fn binomial(self, k: Self) -> Option<Self> {
        let (n, k) = (self.as_whole()?, k.as_whole()?);
        if !(0..=60).contains(&n) || !(0..=n).contains(&k) {
            return None;
        }
        let value = (0..k).try_fold(1i128, |value, i| Some(value.checked_mul(n - i)? / (i + 1)))?;
        Self::exact(value, 1)
    }
}

fn gcd(mut a: u128, mut b: u128) -> u128 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a.max(1)
}
