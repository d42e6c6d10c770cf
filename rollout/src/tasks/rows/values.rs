//! Values of columns as the JSON that `datasets.Dataset.to_json` writes, for every kind of file.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Number, Value};

pub(super) const MILLIS_OF_DAY: i64 = 86_400_000;

/// JSON has neither infinity nor NaN.
pub(super) fn float(value: f64) -> Value {
    Number::from_f64(value).map_or(Value::Null, Value::Number)
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
