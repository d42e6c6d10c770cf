//! Exact whole numbers and fractions. Their length is bounded, so that a hostile formula costs
//! little: a longer result has no exact value.

use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::{One, Signed, ToPrimitive, Zero};

/// Longest whole number, in bits: about 4900 digits.
pub(super) const WHOLE_BITS: u64 = 1 << 14;
/// Longest numerator and denominator of a fraction, in bits: about 600 digits. Cancelling the
/// common divisor takes quadratic time.
pub(super) const FRACTION_BITS: u64 = 1 << 11;
/// Largest number with a factorial that is computed.
const MOST_FACTORS: u32 = 2048;
/// Most things that a binomial chooses.
const MOST_CHOSEN: u32 = 1024;

/// Returns the length of the longer part of a fraction, in bits.
pub(super) fn bits(value: &BigRational) -> u64 {
    value.numer().bits().max(value.denom().bits())
}

/// Returns true if a value is short enough to compute with.
pub(super) fn fits(value: &BigRational) -> bool {
    bits(value) <= if value.is_integer() { WHOLE_BITS } else { FRACTION_BITS }
}

fn are_whole(a: &BigRational, b: &BigRational) -> bool {
    a.is_integer() && b.is_integer()
}

/// Returns true if both values are short enough to cancel their common divisors.
fn are_short(a: &BigRational, b: &BigRational) -> bool {
    bits(a).max(bits(b)) <= FRACTION_BITS
}

pub(super) fn sum(a: &BigRational, b: &BigRational) -> Option<BigRational> {
    if are_whole(a, b) {
        return Some(BigRational::from_integer(a.numer() + b.numer()));
    }
    are_short(a, b).then(|| a + b)
}

pub(super) fn product(a: &BigRational, b: &BigRational) -> Option<BigRational> {
    if are_whole(a, b) {
        return Some(BigRational::from_integer(a.numer() * b.numer()));
    }
    are_short(a, b).then(|| a * b)
}

/// Returns `a / b`, and `None` for a division by zero.
pub(super) fn quotient(a: &BigRational, b: &BigRational) -> Option<BigRational> {
    if b.is_zero() {
        return None;
    }
    if are_whole(a, b) {
        let whole = a.numer() / b.numer();
        if &whole * b.numer() == *a.numer() {
            return Some(BigRational::from_integer(whole));
        }
    }
    are_short(a, b).then(|| a / b)
}

pub(super) fn power(base: &BigRational, exponent: i32) -> Option<BigRational> {
    if exponent < 0 && base.is_zero() {
        return None;
    }
    let whole = base.is_integer() && exponent >= 0;
    let most = if whole { WHOLE_BITS } else { FRACTION_BITS };
    // The power has at least this many bits: it is rejected before it is computed.
    let least = bits(base).saturating_sub(1) * u64::from(exponent.unsigned_abs());
    (least <= most).then(|| base.pow(exponent))
}

/// Returns n!, and `None` for large numbers and those that have none.
pub(super) fn factorial(n: &BigRational) -> Option<BigInt> {
    let n = whole(n)?.to_u32().filter(|n| *n <= MOST_FACTORS)?;
    Some((1..=n).fold(BigInt::one(), |value, factor| value * factor))
}

/// Returns the number of ways to choose k of n things.
pub(super) fn binomial(n: &BigRational, k: &BigRational) -> Option<BigInt> {
    let (n, k) = (whole(n)?, whole(k)?);
    if n.is_negative() || k.is_negative() || k > n {
        return None;
    }
    let fewer = k.min(&(n - k)).to_u32().filter(|k| *k <= MOST_CHOSEN)?;
    // The value is at least (n / k)^k.
    let least = u64::from(fewer)
        * (n.bits()
            .saturating_sub(u64::from(fewer.checked_ilog2().unwrap_or(0)) + 2));
    if least > WHOLE_BITS {
        return None;
    }
    let above = (0..fewer).fold(BigInt::one(), |value, i| value * (n - i));
    let below = (1..=fewer).fold(BigInt::one(), |value, i| value * i);
    Some(above / below)
}

fn whole(value: &BigRational) -> Option<&BigInt> {
    value.is_integer().then(|| value.numer())
}

/// Returns true if a decimal with this many places rounds or truncates a value.
pub(super) fn rounds(decimal: &BigRational, value: &BigRational, places: u32) -> bool {
    if !are_short(decimal, value) {
        return false;
    }
    let apart = (decimal - value).abs();
    apart.numer() * BigInt::from(10).pow(places) < *apart.denom()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grade::Grader;
    use crate::grade::math::testing::check;

    #[test]
    fn long_products_and_powers_equal_their_digits() {
        let zeros = |count: usize| format!("1{}", "0".repeat(count));
        check(&[
            ("31!", "8222838654177922817725562880000000", true),
            ("31!", "8222838654177922817725562880000001", false),
            ("\\frac{100!}{98!}", "9900", true),
            ("\\frac{100!}{50!\\cdot 50!}", "\\binom{100}{50}", true),
            ("\\binom{100}{50}", "100891344545564193334812497256", true),
            ("\\binom{100}{50}", "100891344545564193334812497257", false),
            ("\\binom{2024}{2}", "2047276", true),
            ("\\binom{2024}{2022}", "2047276", true),
            ("10^{400}", &zeros(400), true),
            ("10^{400}", &zeros(401), false),
            ("10^{400}+1", &zeros(400), false),
            ("3\\cdot 10^{400}", &zeros(400).replace('1', "3"), true),
            ("2^{1100}", "4^{550}", true),
            ("2^{1100}", "2^{1100}-1", false),
            ("-10^{400}", "10^{400}", false),
            ("10^{-400}", &format!("0.{}1", "0".repeat(399)), true),
            ("10^{-400}", "10^{-401}", false),
            ("10^{-400}\\pi", "0", false),
            ("10^{400}", "\\infty", false),
            ("10^{400}x", "10^{401}x", false),
            ("[0,10^{400}]", "[0,\\infty)", false),
        ]);
    }

    #[test]
    fn digits_of_any_length_are_compared() {
        for length in [308, 320, 511, 600, 5000, 40_000] {
            let (digits, other) = ("7".repeat(length), format!("{}8", "7".repeat(length - 1)));
            for (kind, label) in [("math", "\\boxed"), ("gsm8k", "#### "), ("integer", "The answer is ")] {
                let grader = Grader::new(kind).unwrap();
                let text = format!("{label}{{{digits}}}")
                    .replace("#### {", "#### ")
                    .replace("is {", "is ");
                let text = if kind == "math" { text } else { text.replace('}', "") };
                assert!(grader.check_label(&digits.clone().into()).is_ok(), "{kind} {length}");
                assert_eq!(grader.grade(&text, &digits.clone().into()), 1.0, "{kind} {length}");
                assert_eq!(grader.grade(&text, &other.clone().into()), 0.0, "{kind} {length}");
            }
        }
        let nines = "9".repeat(600);
        check(&[
            ("10^{600}-1", &nines, true),
            ("10^{600}-2", &nines, false),
            (
                &format!("0.{}", "3".repeat(340)),
                &format!("0.{}4", "3".repeat(339)),
                false,
            ),
            (&format!("0.{}", "3".repeat(340)), "1/3", true),
            (&format!("{nines}.0"), &format!("0{nines}"), true),
            (&format!("-{nines}"), &nines, false),
        ]);
    }

    #[test]
    fn hostile_numbers_are_not_computed() {
        let number = |digits: &str| BigRational::from_integer(digits.parse().unwrap());
        let large = number(&format!("1{}", "0".repeat(40)));
        assert_eq!(factorial(&number("99999")), None);
        assert_eq!(factorial(&large), None);
        assert_eq!(binomial(&large, &number("100000000000000000000")), None);
        assert_eq!(power(&number("9"), 387_420_489), None);
        assert_eq!(power(&(number("2") / number("3")), 3000), None);
        assert!(!fits(&number(&"9".repeat(5000))));
        let product = |piece: &str, count: usize| format!("\\boxed{{{}}}", vec![piece; count].join("*"));
        for text in [
            "\\boxed{9^{9^{9}}}".to_owned(),
            "\\boxed{99999!}".to_owned(),
            "\\boxed{(10^{400})!}".to_owned(),
            "\\boxed{\\binom{10^{40}}{10^{20}}}".to_owned(),
            product("1700!", 60),
            product("\\binom{2000}{999}", 24),
            product("9^{5000}", 60),
            product("(2/3)^{1000}", 40),
            product("\\sqrt{1700!}", 30),
            vec!["The answer is 1/3^{1000}+1/7^{700}+1/11^{500}+1/13^{500}."; 40].join("\n"),
            format!("#### {}", "9".repeat(1_000_000)),
        ] {
            for kind in ["math", "gsm8k", "integer"] {
                let grader = Grader::new(kind).unwrap();
                assert_eq!(grader.grade(&text, &"5".into()), 0.0, "{kind}");
            }
        }
    }
}
