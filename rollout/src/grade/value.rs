//! Values of LaTeX arithmetic: exact fractions as far as they go, else floating point.

/// Deepest nesting that is read.
const DEEPEST: usize = 32;

/// A number, exact where that is possible.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Number {
    /// Numerator and positive denominator, without a common factor.
    exact: Option<(i128, i128)>,
    approx: f64,
}

impl Number {
    fn exact(numerator: i128, denominator: i128) -> Option<Self> {
        if denominator == 0 || numerator == i128::MIN || denominator == i128::MIN {
            return None;
        }
        let divisor = gcd(numerator.unsigned_abs(), denominator.unsigned_abs()) as i128 * denominator.signum();
        let (n, d) = (numerator / divisor, denominator / divisor);
        Some(Self {
            exact: Some((n, d)),
            approx: n as f64 / d as f64,
        })
    }

    fn inexact(approx: f64) -> Option<Self> {
        approx.is_finite().then_some(Self { exact: None, approx })
    }

    /// Equal fractions; or floating-point values within 1e-9, relative to the larger one.
    pub(super) fn equal(a: &Self, b: &Self) -> bool {
        match (a.exact, b.exact) {
            (Some(a), Some(b)) => a == b,
            _ => (a.approx - b.approx).abs() <= 1e-9 * a.approx.abs().max(b.approx.abs()).max(1e-300),
        }
    }

    fn add(self, other: Self) -> Option<Self> {
        let sum = self.exact.zip(other.exact).and_then(|((a, b), (c, d))| {
            let numerator = a.checked_mul(d)?.checked_add(c.checked_mul(b)?)?;
            Self::exact(numerator, b.checked_mul(d)?)
        });
        sum.or_else(|| Self::inexact(self.approx + other.approx))
    }

    fn negate(self) -> Self {
        Self {
            exact: self.exact.map(|(n, d)| (-n, d)),
            approx: -self.approx,
        }
    }

    fn multiply(self, other: Self) -> Option<Self> {
        let product = self.exact.zip(other.exact);
        let product = product.and_then(|((a, b), (c, d))| Self::exact(a.checked_mul(c)?, b.checked_mul(d)?));
        product.or_else(|| Self::inexact(self.approx * other.approx))
    }

    fn divide(self, other: Self) -> Option<Self> {
        let inverse = match other.exact {
            Some((n, d)) => Self::exact(d, n)?,
            None => Self::inexact(1.0 / other.approx)?,
        };
        self.multiply(inverse)
    }

    fn power(self, exponent: Self) -> Option<Self> {
        let whole = exponent
            .exact
            .filter(|(_, d)| *d == 1)
            .and_then(|(n, _)| i32::try_from(n).ok());
        let exact = whole.zip(self.exact).and_then(|(e, (n, d))| {
            let (n, d) = (n.checked_pow(e.unsigned_abs())?, d.checked_pow(e.unsigned_abs())?);
            if e < 0 { Self::exact(d, n) } else { Self::exact(n, d) }
        });
        exact.or_else(|| Self::inexact(self.approx.powf(exponent.approx)))
    }

    fn root(self, degree: u32) -> Option<Self> {
        let whole = |n: i128| {
            let near = (n as f64).powf(1.0 / f64::from(degree)).round() as i128;
            near.checked_pow(degree).filter(|power| *power == n).map(|_| near)
        };
        let exact = self
            .exact
            .filter(|(n, _)| *n >= 0)
            .and_then(|(n, d)| Self::exact(whole(n)?, whole(d)?));
        exact.or_else(|| Self::inexact(self.approx.powf(1.0 / f64::from(degree))))
    }
}

fn gcd(mut a: u128, mut b: u128) -> u128 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a.max(1)
}

/// The value of a normalised expression of numbers, `+ - * / ^`, brackets, `\frac`, `\sqrt` and pi; `None` if there is
/// anything else in it.
pub(super) fn evaluate(text: &str) -> Option<Number> {
    let mut parser = Parser { rest: text, depth: 0 };
    let value = parser.sum()?;
    parser.rest.is_empty().then_some(value)
}

struct Parser<'a> {
    rest: &'a str,
    depth: usize,
}

impl Parser<'_> {
    fn eat(&mut self, token: &str) -> bool {
        let rest = self.rest.strip_prefix(token);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn sum(&mut self) -> Option<Number> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return None;
        }
        let mut value = self.product()?;
        loop {
            value = if self.eat("+") {
                value.add(self.product()?)?
            } else if self.eat("-") {
                value.add(self.product()?.negate())?
            } else {
                self.depth -= 1;
                return Some(value);
            };
        }
    }

    fn product(&mut self) -> Option<Number> {
        if self.eat("-") {
            self.depth += 1;
            let value = if self.depth > DEEPEST { None } else { self.product() };
            self.depth -= 1;
            return value.map(Number::negate);
        }
        self.eat("+");
        let mut value = self.power()?;
        loop {
            value = if self.eat("*") {
                value.multiply(self.signed_power()?)?
            } else if self.eat("/") {
                value.divide(self.signed_power()?)?
            } else if self.rest.starts_with(['(', '\\', 'π']) {
                value.multiply(self.power()?)?
            } else {
                return Some(value);
            };
        }
    }

    fn signed_power(&mut self) -> Option<Number> {
        if self.eat("-") {
            self.power().map(Number::negate)
        } else {
            self.power()
        }
    }

    fn power(&mut self) -> Option<Number> {
        let base = self.atom()?;
        if !self.eat("^") {
            return Some(base);
        }
        let exponent = if self.eat("{") {
            self.until("}")?
        } else {
            self.digit_or_atom()?
        };
        base.power(exponent)
    }

    fn until(&mut self, close: &str) -> Option<Number> {
        let value = self.sum()?;
        self.eat(close).then_some(value)
    }

    fn atom(&mut self) -> Option<Number> {
        if self.eat("(") {
            return self.until(")");
        }
        if self.eat("{") {
            return self.until("}");
        }
        if self.eat("π") || self.eat("pi") {
            return Number::inexact(std::f64::consts::PI);
        }
        if self.eat("\\frac") {
            return self.fraction();
        }
        if self.eat("\\sqrt") || self.eat("sqrt") {
            let degree = if self.eat("[") { self.degree()? } else { 2 };
            return self.digit_or_atom()?.root(degree);
        }
        let number = self.number()?;
        // 3\frac{1}{2} is a mixed number.
        if number.exact.is_some_and(|(_, d)| d == 1) && self.eat("\\frac") {
            return number.add(self.fraction()?);
        }
        Some(number)
    }

    fn fraction(&mut self) -> Option<Number> {
        let numerator = self.digit_or_atom()?;
        numerator.divide(self.digit_or_atom()?)
    }

    fn degree(&mut self) -> Option<u32> {
        let (degree, rest) = self.rest.split_once(']')?;
        self.rest = rest;
        degree.parse().ok().filter(|degree| (2..=9).contains(degree))
    }

    /// An argument: a group in braces, or a single digit as in `\frac12`.
    fn digit_or_atom(&mut self) -> Option<Number> {
        match self.rest.chars().next()?.to_digit(10) {
            Some(digit) => {
                self.rest = &self.rest[1..];
                Number::exact(digit.into(), 1)
            }
            None => self.atom(),
        }
    }

    fn number(&mut self) -> Option<Number> {
        let end = self
            .rest
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(self.rest.len());
        let (text, rest) = self.rest.split_at(end);
        let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
        if whole.len() + fraction.len() == 0 || fraction.contains('.') {
            return None;
        }
        self.rest = rest;
        let scale = 10i128.checked_pow(fraction.len() as u32);
        let exact = format!("{whole}{fraction}")
            .parse()
            .ok()
            .zip(scale)
            .and_then(|(n, d)| Number::exact(n, d));
        exact.or_else(|| Number::inexact(text.parse().ok()?))
    }
}
