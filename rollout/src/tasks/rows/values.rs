//! Values of columns as the JSON that `datasets.Dataset.to_json` writes, for every kind of file.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Number, Value};

pub(super) const MILLIS_OF_DAY: i64 = 86_400_000;

/// JSON has neither infinity nor NaN.
pub(super) fn float(value: f64) -> Value {
    Number::from_f64(value).map_or(Value::Null, Value::Number)
}

/// Returns a float of fewer bits in its shortest decimals: 0.1 for the 32 bits next to it. `holds`
/// returns true for a number that these bits hold as the same float.
pub(super) fn short_float(value: f64, holds: impl Fn(f64) -> bool) -> Value {
    let spelled = (0..f64::DIGITS as usize).filter_map(|digits| format!("{value:.digits$e}").parse().ok());
    let shortest = spelled.into_iter().find(|short| holds(*short));
    float(shortest.unwrap_or(value))
}

/// Returns text if the bytes are text, else base64, for example of images.
pub(super) fn bytes(data: &[u8]) -> Value {
    match std::str::from_utf8(data) {
        Ok(text) => text.into(),
        Err(_) => STANDARD.encode(data).into(),
    }
}

/// Returns `HH:MM:SS`, with microseconds if there are any, as Python writes a time.
pub(super) fn of_day(micros: i64) -> String {
    let (seconds, micros) = (micros.div_euclid(1_000_000), micros.rem_euclid(1_000_000));
    let whole = format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
    if micros == 0 {
        whole
    } else {
        format!("{whole}.{micros:06}")
    }
}

/// Returns `number` / 10^`scale` with all digits, as a text; JSON's numbers would lose some.
pub(super) fn decimal(number: i128, scale: usize) -> String {
    let digits = format!("{:0>width$}", number.unsigned_abs(), width = scale + 1);
    let (whole, part) = digits.split_at(digits.len() - scale);
    let sign = if number < 0 { "-" } else { "" };
    if scale == 0 {
        format!("{sign}{whole}")
    } else {
        format!("{sign}{whole}.{part}")
    }
}

#[cfg(test)]
mod tests {
    use super::short_float;

    #[test]
    fn a_float_of_32_bits_has_its_shortest_decimals() {
        for (value, spelled) in [
            (0.1_f32, "0.1"),
            (1.0 / 3.0, "0.33333334"),
            (16_777_216.0, "16777216.0"),
            (-8.25, "-8.25"),
            (3.4e38, "3.4e+38"),
            (f32::NAN, "null"),
        ] {
            let found = short_float(value.into(), |short| short as f32 == value);
            assert_eq!(found.to_string(), spelled);
        }
    }
}
