//! Prompts and labels for people.

use serde_json::Value;

/// Returns a prompt or label as text.
#[must_use]
pub fn prompt_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(messages) => messages
            .iter()
            .map(|message| {
                let field = |name: &str| message.get(name).and_then(Value::as_str).unwrap_or_default();
                format!("{}: {}", field("role"), field("content"))
            })
            .collect::<Vec<_>>()
            .join("\n"),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}
