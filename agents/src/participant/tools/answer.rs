//! Reads a tool's answer.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// A tool's answer. A server may also answer anything else, which is its result unchanged.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct ToolAnswer {
    /// The text that the agent reads: a text unchanged, any other value as JSON.
    #[serde(default, deserialize_with = "given")]
    result: Option<Value>,
    /// The call was wrong, and a retry would be too: the agent reads this instead of a result.
    #[serde(default)]
    error: Option<Value>,
}

/// A value that is present, even if it is null.
fn given<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

/// The reason why a try failed.
pub(super) enum ToolFault {
    /// A retry may succeed.
    Failed(String),
    /// The tool reports an error for the agent to read; a retry would give the same.
    ForAgent(String),
    /// The tool itself cannot be used, for any call.
    Broken(String),
}

/// Returns an answer's `result` or `error`, if it has one.
pub(super) fn result_of(answer: Value) -> Option<Result<String, ToolFault>> {
    if !answer.is_object() {
        return None;
    }
    let ToolAnswer { result, error } = serde_json::from_value(answer).ok()?;
    match error {
        Some(error) => Some(Err(ToolFault::ForAgent(plain(error)))),
        None => result.map(|result| Ok(plain(result))),
    }
}

/// A text unchanged, any other value as JSON.
fn plain(value: Value) -> String {
    match value {
        Value::String(text) => text,
        other => other.to_string(),
    }
}
