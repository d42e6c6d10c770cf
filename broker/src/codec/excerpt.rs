//! The beginning of a value, for error messages.

use serde_json::Value;

/// The most characters of a value in an error message.
const LONGEST: usize = 60;

/// Returns a value as JSON, cut to its first characters: its author may have written any length.
#[must_use]
pub fn excerpt(value: &Value) -> String {
    let text = match value {
        // A long text is cut before it is escaped.
        Value::String(text) => Value::from(text.chars().take(LONGEST + 1).collect::<String>()).to_string(),
        other => other.to_string(),
    };
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn short_values_are_whole_and_long_ones_are_cut() {
        for (value, shown) in [
            (json!(5), "5"),
            (json!("é"), "\"é\""),
            (json!({"a": [1]}), "{\"a\":[1]}"),
        ] {
            assert_eq!(excerpt(&value), shown);
        }
        for long in [json!("é".repeat(500)), json!(vec![1; 500])] {
            let shown = excerpt(&long);
            assert!(
                shown.ends_with("...") && shown.chars().count() == LONGEST + 3,
                "{shown}"
            );
        }
    }
}
