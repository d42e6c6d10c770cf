//! What a tool answers, read.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// What a tool answers. A server may answer anything else too, which is its result as it stands.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct ToolAnswer {
    /// What the agent reads: a text as it is, anything else as JSON.
    #[serde(default, deserialize_with = "given")]
    result: Option<Value>,
    /// The call was wrong, and would be so again: the agent reads this in the result's place.
    #[serde(default)]
    error: Option<Value>,
}

/// A value that is there, also if it is null.
fn given<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

/// Why a try failed.
pub(super) enum Fault {
    /// Asked again, it may go well.
    Failed(String),
    /// The tool says so: the agent reads it, and it would be the same again.
    Told(String),
    /// The tool itself cannot be used, whatever it is asked.
    Broken(String),
}

/// An answer's `result` or `error`, if it has one.
pub(super) fn result_of(answer: Value) -> Option<Result<String, Fault>> {
    if !answer.is_object() {
        return None;
    }
    let ToolAnswer { result, error } = serde_json::from_value(answer).ok()?;
    match error {
        Some(error) => Some(Err(Fault::Told(plain(error)))),
        None => result.map(|result| Ok(plain(result))),
    }
}

/// A text as it is, anything else as JSON.
fn plain(value: Value) -> String {
    match value {
        Value::String(text) => text,
        other => other.to_string(),
    }
}
