//! Reads numbers: decimals, mixed numbers, scientific notation, repeating decimals, other bases.

use num_bigint::BigInt;
use num_rational::BigRational;

use super::expr::Expr;
use super::number::Number;
use super::parser::{Parser, boxed};
use crate::grade::normal::token::Token;

impl Parser<'_> {
    pub(super) fn number(&mut self, digits: &str) -> Option<Expr> {
        if let Some(expr) = self.repeating(digits) {
            return Some(expr);
        }
        if let Some(base) = self.subscript() {
            // A number in another base counts as a name: 1010_2 is not 1010.
            let base = super::base::named(&base);
            return if base == "10" {
                decimal(digits)
            } else {
                Some(Expr::Variable(format!("{digits}_{base}")))
            };
        }
        if let Some(expr) = self.scientific(digits) {
            return Some(expr);
        }
        if let [Token::Letter('C'), Token::Number(few, false), ..] = self.rest {
            self.rest = &self.rest[2..];
            return Some(Expr::Binomial(boxed(decimal(digits)?), boxed(decimal(few)?)));
        }
        let expr = decimal(digits)?;
        if digits.contains('.') {
            return Some(expr);
        }
        self.mixed(expr)
    }

    /// Reads the fraction of a mixed number: `2\frac{1}{3}` and `2 1/3`.
    fn mixed(&mut self, whole: Expr) -> Option<Expr> {
        let fraction = match self.rest {
            [Token::Number(a, true), Token::Symbol('/'), Token::Number(b, _), ..] => {
                self.rest = &self.rest[3..];
                Expr::Quotient(boxed(decimal(a)?), boxed(decimal(b)?))
            }
            [Token::Command(name), after, ..] if name == "frac" && is_numeric(after, &self.rest[2..]) => {
                self.rest = &self.rest[1..];
                self.command("frac")?
            }
            _ => return Some(whole),
        };
        Some(Expr::Sum(boxed(whole), boxed(fraction)))
    }

    /// Reads scientific notation: `1.5e3`.
    fn scientific(&mut self, digits: &str) -> Option<Expr> {
        let (negative, exponent, used) = match self.rest {
            [Token::Letter('e' | 'E'), Token::Number(n, false), ..] => (false, n, 2),
            [
                Token::Letter('e' | 'E'),
                Token::Symbol(sign @ ('+' | '-')),
                Token::Number(n, false),
                ..,
            ] => (*sign == '-', n, 3),
            _ => return None,
        };
        let exponent: i32 = exponent.parse().ok().filter(|e| (0..1000).contains(e))?;
        let power = Number::whole(10)?.power(Number::whole(if negative { -exponent } else { exponent })?)?;
        let Expr::Number(mantissa, _) = decimal(digits)? else {
            return None;
        };
        self.rest = &self.rest[used..];
        Some(Expr::Number(mantissa.multiply(power)?, 0))
    }

    /// Reads a repeating decimal: `0.\overline{3}`, `0.\dot{3}`.
    fn repeating(&mut self, digits: &str) -> Option<Expr> {
        let [
            Token::Command(name),
            Token::Symbol('{'),
            Token::Number(period, _),
            Token::Symbol('}'),
            ..,
        ] = self.rest
        else {
            return None;
        };
        let (_, fraction) = digits.split_once('.')?;
        if name != "overline" || period.contains('.') {
            return None;
        }
        let whole = |digits: String| digits.parse::<BigInt>().ok();
        let all = whole(format!("{}{period}", digits.replace('.', "")))?;
        let head = whole(digits.replace('.', ""))?;
        let nines = whole(format!("{}{}", "9".repeat(period.len()), "0".repeat(fraction.len())))?;
        self.rest = &self.rest[4..];
        Some(Expr::Number(Number::exact(BigRational::new(all - head, nines))?, 0))
    }
}

/// Returns true if a fraction has a number for its numerator: `\frac{1}{3}`, `\frac13`.
fn is_numeric(first: &Token, rest: &[Token]) -> bool {
    match first {
        Token::Number(..) => true,
        Token::Symbol('{') => {
            matches!(rest.first(), Some(Token::Number(..))) && rest.get(1) == Some(&Token::Symbol('}'))
        }
        _ => false,
    }
}

pub(super) fn decimal(digits: &str) -> Option<Expr> {
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let exact = if digits.contains('.') {
        let numerator: Option<BigInt> = format!("{whole}{fraction}").parse().ok();
        let scale = BigInt::from(10).pow(u32::try_from(fraction.len()).ok()?);
        numerator.and_then(|numerator| Number::exact(BigRational::new(numerator, scale)))
    } else {
        digits.parse::<BigInt>().ok().and_then(Number::whole)
    };
    Some(Expr::Number(exact?, fraction.len()))
}
