//! Values of formulas: exact fractions where possible, else complex numbers in floating point with
//! a bound of their rounding error.
//!
//! A number that underflowed or lost all its digits is no value: operations return `None`.

use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::{FromPrimitive, Signed, ToPrimitive, Zero};

use super::complex::Complex;
use super::exact;

/// Highest degree of a root.
pub(super) const MOST_DEGREE: u32 = 64;
/// Error that one floating-point operation may add, relative to its result.
pub(super) const STEP: f64 = 2.0 * f64::EPSILON;
/// Errors are followed to the first order only, so this multiple of an error is taken as its bound.
pub(super) const SLACK: f64 = 4.0;
/// Floating point holds every whole number up to here.
pub(super) const WHOLE: f64 = (1u64 << 53) as f64;
/// Two values are equal within this, relative to the larger one, if both are accurate enough.
const DIGITS: f64 = 1e-9;
/// A value that rounding alone may have moved off zero is zero, if its error is at most this:
/// `\sin\pi`.
const DUST: f64 = 1e-10;
/// Largest relative error that can be followed through a function.
pub(super) const FOLLOWED: f64 = 0.1;

/// A number, exact where that is possible.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Number {
    pub(super) exact: Option<BigRational>,
    pub(super) approx: Complex,
    /// Largest distance between `approx` and the value.
    pub(super) error: f64,
}

impl Number {
    /// Returns `None` if the fraction is too long. Beyond the range of floating point the
    /// approximation is infinite or zero, and then only exact operations continue.
    pub(super) fn exact(value: BigRational) -> Option<Self> {
        if !exact::fits(&value) {
            return None;
        }
        let approx = value.to_f64()?;
        let held = value.is_integer() && BigInt::from_f64(approx).as_ref() == Some(value.numer());
        let error = if held || approx.is_infinite() {
            0.0
        } else {
            STEP * approx.abs()
        };
        Some(Self {
            exact: Some(value),
            approx: Complex::real(approx),
            error,
        })
    }

    /// Returns true if the approximation has the digits of the exact value.
    pub(super) fn is_approximated(&self) -> bool {
        let normal = self.size().is_normal();
        self.exact.as_ref().is_none_or(|value| normal || value.is_zero())
    }

    /// Returns the length of the longer part of the exact fraction.
    pub(super) fn bits(&self) -> Option<u64> {
        self.exact.as_ref().map(exact::bits)
    }

    pub(super) fn whole(value: impl Into<BigInt>) -> Option<Self> {
        Self::exact(BigRational::from_integer(value.into()))
    }

    /// Returns `None` if a part is NaN or infinite.
    pub(super) fn inexact(approx: Complex, error: f64) -> Option<Self> {
        let value = Self {
            exact: None,
            approx,
            error,
        };
        (approx.is_finite() && error.is_finite()).then_some(value)
    }

    /// Makes a number that cannot be zero. Returns `None` if it underflowed.
    pub(super) fn nonzero(approx: Complex, error: f64) -> Option<Self> {
        Self::inexact(approx, error).filter(|value| value.size() >= f64::MIN_POSITIVE)
    }

    /// Makes a number that is exactly this floating-point value.
    pub(super) fn given(value: f64) -> Option<Self> {
        Self::inexact(Complex::real(value), 0.0)
    }

    /// Makes a number other than zero that was rounded to this floating-point value.
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

    /// Returns the real value, if the imaginary part is zero within rounding.
    pub(super) fn as_real(&self) -> Option<f64> {
        let dust = (1e-12 * self.approx.re.abs()).max(SLACK * self.error);
        (self.approx.im.abs() <= dust).then_some(self.approx.re)
    }

    pub(super) fn as_whole(&self) -> Option<i128> {
        let exact = self.exact.as_ref().filter(|value| value.is_integer())?;
        exact.numer().to_i128()
    }

    /// Returns true if the number is zero within rounding, and accurate enough to say so.
    pub(super) fn is_zero(&self) -> bool {
        self.may_be_zero() && self.error <= DUST
    }

    fn may_be_zero(&self) -> bool {
        match &self.exact {
            Some(value) => value.is_zero(),
            None => self.size() <= SLACK * self.error,
        }
    }

    /// Returns true if the relative error is at most `relative`.
    pub(super) fn is_right_within(&self, relative: f64) -> bool {
        self.error <= relative * self.size()
    }

    /// Returns true if one number is zero within rounding, and the other is so small that both may
    /// be the same.
    pub(super) fn too_small_to_tell(a: &Self, b: &Self) -> bool {
        a.is_zero() != b.is_zero() && Self::distance(a, b) <= SLACK * (a.error + b.error)
    }

    /// Returns true for equal fractions, and for two values that are zero within rounding. Other
    /// floating-point values must agree within 1e-9 relative to the larger one, and be accurate
    /// enough for that.
    pub(super) fn equal(a: &Self, b: &Self) -> bool {
        if let (Some(a), Some(b)) = (&a.exact, &b.exact) {
            return a == b;
        }
        if !(a.approx.is_finite() && b.approx.is_finite()) {
            // A long whole number is not infinity.
            return a.exact.is_none() && b.exact.is_none() && a.approx == b.approx;
        }
        let within = DIGITS * a.size().max(b.size());
        let near = Self::distance(a, b) <= within && a.error + b.error <= within;
        near || (a.is_zero() && b.is_zero())
    }

    pub(super) fn distance(a: &Self, b: &Self) -> f64 {
        (a.approx - b.approx).modulus()
    }

    pub(super) fn add(self, other: Self) -> Option<Self> {
        let exact = self.exact.as_ref().zip(other.exact.as_ref());
        exact.and_then(|(a, b)| Self::exact(exact::sum(a, b)?)).or_else(|| {
            let approx = self.approx + other.approx;
            Self::inexact(approx, self.error + other.error + STEP * approx.modulus())
        })
    }

    pub(super) fn negate(self) -> Self {
        Self {
            exact: self.exact.map(|value| -value),
            approx: self.approx * Complex::real(-1.0),
            error: self.error,
        }
    }

    pub(super) fn multiply(self, other: Self) -> Option<Self> {
        let exact = self.exact.as_ref().zip(other.exact.as_ref());
        exact.and_then(|(a, b)| Self::exact(exact::product(a, b)?)).or_else(|| {
            let approx = self.approx * other.approx;
            let (a, b) = (self.size(), other.size());
            let error = a * other.error + b * self.error + self.error * other.error + STEP * approx.modulus();
            if !(self.is_approximated() && other.is_approximated()) {
                None
            } else if a == 0.0 || b == 0.0 {
                Self::inexact(approx, error)
            } else {
                Self::nonzero(approx, error)
            }
        })
    }

    pub(super) fn divide(self, other: Self) -> Option<Self> {
        if let (Some(a), Some(b)) = (&self.exact, &other.exact)
            && let Some(quotient) = exact::quotient(a, b).and_then(Self::exact)
        {
            return Some(quotient);
        }
        let inverse = match &other.exact {
            Some(value) if value.is_zero() => return None,
            Some(value) => Self::exact(value.recip())?,
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
        let root = || {
            let exponent = exponent.exact.as_ref()?;
            let degree = exponent.denom().to_u32().filter(|d| (2..=MOST_DEGREE).contains(d))?;
            let root = self.clone().root(degree).filter(|root| root.exact.is_some())?;
            root.power(Self::whole(exponent.numer().clone())?)
        };
        let exact = self.exact_power(&exponent).or_else(root);
        exact.or_else(|| self.inexact_power(&exponent))
    }

    fn exact_power(&self, exponent: &Self) -> Option<Self> {
        let exponent = i32::try_from(exponent.as_whole()?).ok()?;
        Self::exact(exact::power(self.exact.as_ref()?, exponent)?)
    }

    fn inexact_power(&self, exponent: &Self) -> Option<Self> {
        let approx = self.approx.power(exponent.approx);
        if self.may_be_zero() {
            // A power of zero must be zero again. Its error follows from the error of the base.
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

    /// Returns the principal root. An odd root of a negative number is the real one, as in schools.
    pub(super) fn root(self, degree: u32) -> Option<Self> {
        if degree % 2 == 1 && self.as_real().is_some_and(|value| value < 0.0) {
            return self.negate().root(degree).map(Self::negate);
        }
        let whole = |n: &BigInt| Some(n.nth_root(degree)).filter(|root| root.pow(degree) == *n);
        let exact = self.exact.as_ref().filter(|value| !value.is_negative());
        let exact = exact.and_then(|value| Self::exact(BigRational::new(whole(value.numer())?, whole(value.denom())?)));
        exact.or_else(|| self.inexact_power(&Self::rounded(1.0 / f64::from(degree))?))
    }

    pub(super) fn exp(self) -> Option<Self> {
        let approx = self.approx.exp();
        // The imaginary part is the argument of a sine and a cosine.
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
            Some(value) => Self::exact(value.abs()),
            None => Self::inexact(Complex::real(self.size()), self.error),
        }
    }

    /// Returns n! of a whole number, exactly.
    pub(super) fn factorial(&self) -> Option<Self> {
        Self::whole(exact::factorial(self.exact.as_ref()?)?)
    }

    /// Returns n over k of whole numbers, exactly.
    pub(super) fn binomial(&self, k: &Self) -> Option<Self> {
        Self::whole(exact::binomial(self.exact.as_ref()?, k.exact.as_ref()?)?)
    }
}

#[cfg(test)]
mod tests {
    use crate::grade::math::equal;

    /// 3^100 in decimal digits.
    const WHOLE: &str = "515377520732011331036461129765621272702107522001";

    #[test]
    fn long_numbers_that_differ_by_one_differ() {
        let next = WHOLE.replace("522001", "522002");
        let negative = format!("-{WHOLE}");
        for (one, other, same) in [
            ("2^{1023}", "2^{1023}+1", false),
            ("3^{100}", "3^{100}-1", false),
            ("3^{100}", "3\\cdot 3^{99}", true),
            ("3^{100}", "9^{50}", true),
            ("3^{100}", WHOLE, true),
            ("3^{100}", next.as_str(), false),
            ("-3^{100}", negative.as_str(), true),
            (WHOLE, next.as_str(), false),
            ("\\frac{3^{100}-1}{2}", "\\frac{3^{100}+1}{2}", false),
            ("\\frac{3^{100}-1}{2}", "(3^{100}-1)/2", true),
            ("3^{-100}", "\\frac{1}{3^{100}}", true),
            ("3^{-100}+1", "1+(1/3)^{100}", true),
            // Roots have no exact value and are compared to about nine digits.
            ("\\sqrt{2}\\cdot 3^{100}", "3^{100}\\sqrt{2}", true),
        ] {
            assert_eq!(equal(one, other), same, "{one} and {other}");
            assert_eq!(equal(other, one), same, "{other} and {one}");
        }
    }
}
