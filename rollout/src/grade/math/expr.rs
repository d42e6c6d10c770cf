//! Formulas as trees, and their values at a point.

use std::collections::BTreeSet;

use super::complex::Complex;
use super::number::Number;
use super::{cost, gamma};

/// Most steps of an evaluation that nothing else bounds.
const CHEAP: usize = 1 << 12;

/// A formula.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Expr {
    /// A value, and the number of decimal places that it was written with.
    Number(Number, usize),
    Infinity,
    Variable(String),
    Sum(Box<Expr>, Box<Expr>),
    Product(Box<Expr>, Box<Expr>),
    Quotient(Box<Expr>, Box<Expr>),
    Power(Box<Expr>, Box<Expr>),
    Negative(Box<Expr>),
    Root(Box<Expr>, u32),
    Function(String, Box<Expr>),
    /// The logarithm to a base: base first.
    Log(Box<Expr>, Box<Expr>),
    Absolute(Box<Expr>),
    Factorial(Box<Expr>),
    Binomial(Box<Expr>, Box<Expr>),
    Degrees(Box<Expr>),
}

/// Returns true for letters that name a number.
pub(super) fn is_constant(name: &str) -> bool {
    ["e", "i", "pi"].contains(&name)
}

impl Expr {
    /// Collects the names of the variables.
    pub(super) fn variables(&self, names: &mut BTreeSet<String>) {
        match self {
            Self::Number(..) | Self::Infinity => {}
            Self::Variable(name) => {
                if !is_constant(name) {
                    names.insert(name.clone());
                }
            }
            Self::Negative(a)
            | Self::Root(a, _)
            | Self::Function(_, a)
            | Self::Absolute(a)
            | Self::Factorial(a)
            | Self::Degrees(a) => a.variables(names),
            Self::Sum(a, b)
            | Self::Product(a, b)
            | Self::Quotient(a, b)
            | Self::Power(a, b)
            | Self::Log(a, b)
            | Self::Binomial(a, b) => {
                a.variables(names);
                b.variables(names);
            }
        }
    }

    /// Returns the value of a formula without variables, if it costs little.
    pub(super) fn number(&self) -> Option<Number> {
        (self.size() <= CHEAP).then(|| self.value(&|_| f64::NAN)).flatten()
    }

    /// Returns the cost of one evaluation in steps: one for each node, and more for operations on
    /// long numbers.
    pub(super) fn size(&self) -> usize {
        cost::of(self).steps
    }

    /// Returns the value at the point that `at` gives for the variables, or `None` if there is
    /// none.
    pub(super) fn value(&self, at: &dyn Fn(&str) -> f64) -> Option<Number> {
        match self {
            Self::Number(value, _) => Some(value.clone()),
            Self::Infinity => Some(Number::infinity()),
            Self::Variable(name) => match name.as_str() {
                "pi" => Number::rounded(std::f64::consts::PI),
                "e" => Number::rounded(std::f64::consts::E),
                "i" => Number::inexact(Complex { re: 0.0, im: 1.0 }, 0.0),
                name => Number::given(at(name)),
            },
            Self::Sum(a, b) => a.value(at)?.add(b.value(at)?),
            Self::Product(a, b) => a.value(at)?.multiply(b.value(at)?),
            Self::Quotient(a, b) => a.value(at)?.divide(b.value(at)?),
            Self::Power(a, b) => a.value(at)?.power(b.value(at)?),
            Self::Negative(a) => a.value(at).map(Number::negate),
            Self::Root(a, degree) => a.value(at)?.root(*degree),
            Self::Function(name, a) => a.value(at)?.function(name),
            Self::Log(base, a) => a.value(at)?.function("ln")?.divide(base.value(at)?.function("ln")?),
            Self::Absolute(a) => a.value(at)?.absolute(),
            Self::Factorial(a) => {
                let n = a.value(at)?;
                n.factorial().or_else(|| gamma::factorial(&n))
            }
            Self::Binomial(a, b) => {
                let (n, k) = (a.value(at)?, b.value(at)?);
                n.binomial(&k).or_else(|| gamma::binomial(&n, &k))
            }
            Self::Degrees(a) => a.value(at),
        }
    }

    /// Returns true for digits with at most a sign.
    pub(super) fn is_literal(&self) -> bool {
        match self {
            Self::Number(..) => true,
            Self::Negative(inner) => inner.is_literal(),
            _ => false,
        }
    }

    /// Returns the number of decimal places of a plain decimal number, else 0.
    pub(super) fn places(&self) -> usize {
        match self {
            Self::Number(_, places) => *places,
            Self::Negative(inner) => inner.places(),
            _ => 0,
        }
    }
}
