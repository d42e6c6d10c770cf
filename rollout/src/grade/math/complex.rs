//! Complex numbers in floating point.

use std::ops::{Add, Mul, Sub};

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

    pub(super) fn is_finite(self) -> bool {
        self.re.is_finite() && self.im.is_finite()
    }

    pub(super) fn modulus(self) -> f64 {
        self.re.hypot(self.im)
    }

    pub(super) fn log(self) -> Self {
        Self {
            re: self.modulus().ln(),
            im: self.im.atan2(self.re),
        }
    }

    pub(super) fn exp(self) -> Self {
        let length = self.re.exp();
        let im = if self.im == 0.0 { 0.0 } else { length * self.im.sin() };
        Self {
            re: length * self.im.cos(),
            im,
        }
    }

    pub(super) fn inverse(self) -> Self {
        if self.im == 0.0 {
            return Self::real(1.0 / self.re);
        }
        // Divides by the modulus twice: its square may overflow or underflow where the inverse does
        // not.
        let length = self.modulus();
        Self {
            re: self.re / length / length,
            im: -self.im / length / length,
        }
    }

    /// Returns the principal value.
    pub(super) fn power(self, exponent: Self) -> Self {
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

impl Sub for Complex {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self {
            re: self.re - other.re,
            im: self.im - other.im,
        }
    }
}

impl Mul for Complex {
    type Output = Self;
    fn mul(self, other: Self) -> Self {
        // Real numbers are multiplied on their own, because infinity times a zero imaginary part is
        // NaN.
        if self.im == 0.0 && other.im == 0.0 {
            return Self::real(self.re * other.re);
        }
        Self {
            re: self.re * other.re - self.im * other.im,
            im: self.re * other.im + self.im * other.re,
        }
    }
}
