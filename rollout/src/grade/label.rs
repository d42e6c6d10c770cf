//! Reads labels: the known answers that graders compare with.

use serde_json::Value;

/// Returns the label as text, if it is a text or a number.
pub(super) fn text(label: &Value) -> Option<String> {
    match label {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// Returns the texts that a label accepts: one text, or a list of them.
pub(super) fn texts(label: &Value) -> Vec<String> {
    match label {
        Value::Array(list) => list.iter().filter_map(text).collect(),
        one => text(one).into_iter().collect(),
    }
}

/// Returns true if one of the label's texts holds more than white space, so that an answer can
/// match it.
pub(super) fn has_text(label: &Value) -> bool {
    texts(label).iter().any(|text| !text.trim().is_empty())
}
