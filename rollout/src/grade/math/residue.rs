//! Fractions that are too long to be held, by what they leave when they are divided by two primes (arithmetic in the fields of that many
//! elements): equal ones leave the same, and others that were not made to do so differ with all but one chance in 2^122.

use super::expr::Expr;

/// The two greatest primes below 2^61.
const PRIMES: [u64; 2] = [(1 << 61) - 1, (1 << 61) - 31];

/// Whether two formulas leave the same; `None` where one is not made of fractions, by signs and whole powers.
pub(super) fn agree(a: &Expr, b: &Expr) -> Option<bool> {
    let mut same = true;
    for prime in PRIMES.map(Prime) {
        same &= prime.left_by(a)? == prime.left_by(b)?;
    }
    Some(same)
}

#[derive(Clone, Copy)]
struct Prime(u64);

impl Prime {
    fn left_by(self, expr: &Expr) -> Option<u64> {
        match expr {
            Expr::Sum(a, b) => Some((self.left_by(a)? + self.left_by(b)?) % self.0),
            Expr::Negative(a) => Some((self.0 - self.left_by(a)?) % self.0),
            Expr::Product(a, b) => Some(self.times(self.left_by(a)?, self.left_by(b)?)),
            Expr::Quotient(a, b) => self.quotient(self.left_by(a)?, self.left_by(b)?),
            Expr::Power(a, b) => {
                let exponent = b.value(&|_| f64::NAN)?.as_whole()?;
                let power = self.power(self.left_by(a)?, exponent.unsigned_abs());
                if exponent < 0 {
                    self.quotient(1, power)
                } else {
                    Some(power)
                }
            }
            other => {
                let (n, d) = other.value(&|_| f64::NAN)?.exact?;
                let left = |n: i128| n.rem_euclid(i128::from(self.0)) as u64;
                self.quotient(left(n), left(d))
            }
        }
    }

    fn times(self, a: u64, b: u64) -> u64 {
        (u128::from(a) * u128::from(b) % u128::from(self.0)) as u64
    }

    fn power(self, mut base: u64, mut exponent: u128) -> u64 {
        let mut power = 1;
        while exponent > 0 {
            if exponent % 2 == 1 {
                power = self.times(power, base);
            }
            base = self.times(base, base);
            exponent /= 2;
        }
        power
    }

    /// By Fermat's little theorem b^(p-2) is 1/b.
    fn quotient(self, a: u64, b: u64) -> Option<u64> {
        (b != 0).then(|| self.times(a, self.power(b, u128::from(self.0 - 2))))
    }
}

#[cfg(test)]
mod tests {
    use crate::grade::math::equal;

    /// 3^100, as it is written out.
    const WHOLE: &str = "515377520732011331036461129765621272702107522001";

    #[test]
    fn long_numbers_that_differ_by_one_differ() {
        let next = WHOLE.replace("522001", "522002");
        let negative = format!("-{WHOLE}");
        for (one, other, same) in [
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
            // What has no fraction is compared as it was, to nine digits or so.
            ("\\sqrt{2}\\cdot 3^{100}", "3^{100}\\sqrt{2}", true),
        ] {
            assert_eq!(equal(one, other), same, "{one} and {other}");
            assert_eq!(equal(other, one), same, "{other} and {one}");
        }
    }
}
