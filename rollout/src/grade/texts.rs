//! The text of a label, and the end of a text.

use serde_json::Value;

/// The label as text, if it is a text or a number.
pub(super) fn label_text(label: &Value) -> Option<String> {
    match label {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// The last `length` bytes of a text, at most, from a character's beginning on.
pub(super) fn tail(text: &str, length: usize) -> &str {
    let mut start = text.len().saturating_sub(length);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    &text[start..]
}
