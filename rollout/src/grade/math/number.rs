//! Values of formulas: exact fractions as far as they go, else complex numbers in floating point.

use std::ops::{Add, Mul};

/// A complex number in floating point.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Complex {
    pub(super) re: f64,
    pub(super) im: f64,
}

impl Complex {
    pub(super) fn real(re: f64) -> Self {
        Self { re, im: 0.0 }
    }

    pub(super) fn modulus(self) -> f64 {
        self.re.hypot(self.im)
    }

    fn log(self) -> Self {
        Self {
            re: self.modulus().ln(),
            im: self.im.atan2(self.re),
        }
    }

    fn exp(self) -> Self {
        let length = self.re.exp();
        let im = if self.im == 0.0 { 0.0 } else { length * self.im.sin() };
        Self {
            re: length * self.im.cos(),
            im,
        }
    }

    fn inverse(self) -> Self {
        let square = self.re * self.re + self.im * self.im;
        Self {
            re: self.re / square,
            im: -self.im / square,
        }
    }

    /// The principal value.
    fn power(self, exponent: Self) -> Self {
        if self.im == 0.0 && exponent.im == 0.0 && (self.re >= 0.0 || exponent.re.fract() == 0.0) {
            return Self::real(self.re.powf(exponent.re));
        }
        if self.modulus() == 0.0 {
            return self;
        }
        (self.log() * exponent).exp()
    }
}

impl Add for Complex {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self {
            re: self.re + other.re,
            im: self.im + other.im,
        }
    }
}

impl Mul for Complex {
    type Output = Self;
    fn mul(self, other: Self) -> Self {
        // Real numbers by themselves, or an infinity times a zero imaginary part would be no number.
        if self.im == 0.0 && other.im == 0.0 {
            return Self::real(self.re * other.re);
        }
        Self {
            re: self.re * other.re - self.im * other.im,
            im: self.re * other.im + self.im * other.re,
        }
    }
}

/// Highest degree of a root.
pub(super) const MOST_DEGREE: u32 = 64;

/// A number, exact where that is possible.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Number {
    /// Numerator and positive denominator, without a common factor.
    pub(super) exact: Option<(i128, i128)>,
    pub(super) approx: Complex,
}

impl Number {
    pub(super) fn exact(numerator: i128, denominator: i128) -> Option<Self> {
        if denominator == 0 || numerator == i128::MIN || denominator == i128::MIN {
            return None;
        }
        let divisor = gcd(numerator.unsigned_abs(), denominator.unsigned_abs()) as i128 * denominator.signum();
        let (n, d) = (numerator / divisor, denominator / divisor);
        Some(Self {
            exact: Some((n, d)),
            approx: Complex::real(n as f64 / d as f64),
        })
    }

    /// `None` for what is no number, or infinite.
    pub(super) fn inexact(approx: Complex) -> Option<Self> {
        (approx.re.is_finite() && approx.im.is_finite()).then_some(Self { exact: None, approx })
    }

    pub(super) fn real(value: f64) -> Option<Self> {
        Self::inexact(Complex::real(value))
    }

    pub(super) fn infinity() -> Self {
        let approx = Complex::real(f64::INFINITY);
        Self { exact: None, approx }
    }

    /// Its real value, if it has one.
    pub(super) fn as_real(self) -> Option<f64> {
        (self.approx.im.abs() <= 1e-12 * self.approx.re.abs().max(1.0)).then_some(self.approx.re)
    }

    pub(super) fn as_whole(self) -> Option<i128> {
        self.exact.filter(|(_, d)| *d == 1).map(|(n, _)| n)
    }

    /// Equal fractions; or floating-point values within 1e-9, relative to the larger one.
    pub(super) fn equal(a: &Self, b: &Self) -> bool {
        match (a.exact, b.exact) {
            (Some(a), Some(b)) => a == b,
            _ => Self::near(a, b, 1e-9, 1e-12),
        }
    }

    /// Whether the values are within `relative` of the larger one, or within `absolute`.
    pub(super) fn near(a: &Self, b: &Self, relative: f64, absolute: f64) -> bool {
        let (a, b) = (a.approx, b.approx);
        if !(a.re.is_finite() && b.re.is_finite()) {
            return a == b;
        }
        let difference = Complex {
            re: a.re - b.re,
            im: a.im - b.im,
        };
        difference.modulus() <= (relative * a.modulus().max(b.modulus())).max(absolute)
    }

    pub(super) fn add(self, other: Self) -> Option<Self> {
        let sum = self.exact.zip(other.exact).and_then(|((a, b), (c, d))| {
            let numerator = a.checked_mul(d)?.checked_add(c.checked_mul(b)?)?;
            Self::exact(numerator, b.checked_mul(d)?)
        });
        sum.or_else(|| Self::inexact(self.approx + other.approx))
    }

    pub(super) fn negate(self) -> Self {
        Self {
            exact: self.exact.map(|(n, d)| (-n, d)),
            approx: self.approx * Complex::real(-1.0),
        }
    }

    pub(super) fn multiply(self, other: Self) -> Option<Self> {
        let product = self.exact.zip(other.exact);
        let product = product.and_then(|((a, b), (c, d))| Self::exact(a.checked_mul(c)?, b.checked_mul(d)?));
        product.or_else(|| Self::inexact(self.approx * other.approx))
    }

    pub(super) fn divide(self, other: Self) -> Option<Self> {
        let inverse = match other.exact {
            Some((n, d)) => Self::exact(d, n)?,
            None => Self::inexact(other.approx.inverse())?,
        };
        self.multiply(inverse)
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
        exact
            .or_else(root)
            .or_else(|| Self::inexact(self.approx.power(exponent.approx)))
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
        exact.or_else(|| Self::inexact(self.approx.power(Complex::real(1.0 / f64::from(degree)))))
    }

    /// exp, ln, or a function of real numbers by its name.
    pub(super) fn function(self, name: &str) -> Option<Self> {
        match name {
            "exp" => return Self::inexact(self.approx.exp()),
            "ln" if self.approx.modulus() > 0.0 => return Self::inexact(self.approx.log()),
            _ => {}
        }
        let x = self.as_real()?;
        let y = match name {
            "sin" => x.sin(),
            "cos" => x.cos(),
            "tan" => x.tan(),
            "cot" => 1.0 / x.tan(),
            "sec" => 1.0 / x.cos(),
            "csc" => 1.0 / x.sin(),
            "arcsin" => x.asin(),
            "arccos" => x.acos(),
            "arctan" => x.atan(),
            "sinh" => x.sinh(),
            "cosh" => x.cosh(),
            "tanh" => x.tanh(),
            "floor" => return Self::exact(x.floor() as i128, 1),
            "ceil" => return Self::exact(x.ceil() as i128, 1),
            _ => return None,
        };
        Self::real(y)
    }

    pub(super) fn absolute(self) -> Option<Self> {
        match self.exact {
            Some((n, d)) => Self::exact(n.abs(), d),
            None => Self::real(self.approx.modulus()),
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
