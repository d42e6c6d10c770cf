//! Decimal numbers as JSON writes them, with all digits.

/// A number by its value: `12.50`, `12.5` and `1.25e1` are equal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decimal {
    negative: bool,
    /// Without zeros at either end; empty for zero.
    digits: String,
    /// The power of ten of the last digit.
    exponent: i64,
}

impl Decimal {
    /// Reads digits with a sign, a point and an exponent, and nothing else.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        let (mantissa, exponent) = match text.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, exponent.parse::<i64>().ok()?),
            None => (text, 0),
        };
        let unsigned = mantissa.strip_prefix(['-', '+']).unwrap_or(mantissa);
        let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
        let all = [whole, fraction].concat();
        let ends = unsigned.ends_with(|c: char| c.is_ascii_digit());
        if !ends || !all.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let digits = all.trim_end_matches('0');
        let zeros = i64::try_from(all.len() - digits.len()).ok()?;
        let exponent = exponent.checked_sub(i64::try_from(fraction.len()).ok()?)?;
        let digits = digits.trim_start_matches('0');
        Some(Self {
            negative: mantissa.starts_with('-') && !digits.is_empty(),
            digits: digits.to_owned(),
            exponent: if digits.is_empty() {
                0
            } else {
                exponent.checked_add(zeros)?
            },
        })
    }
}

/// Longest number that every float holds, in digits.
const ALWAYS: usize = 15;

/// Returns true for a number of JSON that keeps its value when a reader makes it a whole number of
/// 64 bits or a float.
pub(super) fn keeps_its_value(number: &str) -> bool {
    let short = number.len() <= ALWAYS && !number.contains(['e', 'E']);
    if short || number.parse::<i64>().is_ok() || number.parse::<u64>().is_ok() {
        return true;
    }
    let float = number.parse::<f64>().ok().filter(|float| float.is_finite());
    float.is_some_and(|float| Decimal::read(number) == Decimal::read(&float.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_equal_by_value() {
        for spelled in ["12.5", "12.50", "+12.5", "0012.500", "1.25e1", "125E-1", "0.125e+2"] {
            assert_eq!(Decimal::read(spelled), Decimal::read("12.5"), "{spelled}");
        }
        for (one, other) in [("0", "-0.00e9"), (".5", "0.5"), ("1e20", "100000000000000000000")] {
            assert_eq!(Decimal::read(one), Decimal::read(other), "{one}");
        }
        for (one, other) in [
            ("12.5", "-12.5"),
            ("12.5", "125"),
            ("1e7", "1e-7"),
            ("18446744073709551616", "18446744073709551617"),
        ] {
            assert_ne!(Decimal::read(one), Decimal::read(other), "{one}");
        }
        for other in [
            "", "-", ".", "5.", "e5", "1e", "1e5.0", "1,000", "0x1", "--1", "1 2", "NaN",
        ] {
            assert_eq!(Decimal::read(other), None, "{other}");
        }
    }

    #[test]
    fn numbers_that_floats_round_are_known() {
        for kept in [
            "0",
            "-0",
            "12.50",
            "18446744073709551615",
            "-9223372036854775808",
            "0.1",
            "911041647744.8802",
            "1e20",
            "1.5e300",
            "2.220446049250313e-16",
        ] {
            assert!(keeps_its_value(kept), "{kept}");
        }
        for rounded in [
            "18446744073709551616",
            "911041647744.8803",
            "4503599627370497.5",
            "-9223372036854775809",
            "9007199254740993.0",
            "0.10000000000000000555",
            "1e400",
            "1e-400",
        ] {
            assert!(!keeps_its_value(rounded), "{rounded}");
        }
    }
}
