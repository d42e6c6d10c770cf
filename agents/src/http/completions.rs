//! Reads the fields that only `/v1/completions` has: prompts as text or ids.

use serde_json::Value;

use super::client_request::{MOST_LIKELY, Prompt};
use super::json_fields::{JsonFields, kind};
use super::request_error::RequestError;

const WANTED: &str = "write a text, a list of texts, a list of token ids, or a list of such lists";
/// The maximum number of prompts in one request.
const MOST: usize = 1024;

/// Reads `prompt`: a text, several texts, ids, or several lists of ids.
pub(super) fn prompts(fields: &mut JsonFields) -> Result<Vec<Prompt>, RequestError> {
    let wrong = |what: String| RequestError::wrong("prompt", format!("{what}: {WANTED}"));
    let list = match fields.take("prompt") {
        None => return Err(wrong("is missing".into())),
        Some(Value::String(text)) => return Ok(vec![Prompt::Text(text)]),
        Some(Value::Array(list)) => list,
        Some(other) => return Err(wrong(format!("is {}", kind(&other)))),
    };
    match list.first() {
        None => Err(wrong("is an empty list".into())),
        Some(Value::Number(_)) => Ok(vec![Prompt::Ids(ids(list)?)]),
        Some(_) if list.len() > MOST => Err(RequestError::wrong(
            "prompt",
            format!("has {} prompts: {MOST} are the most", list.len()),
        )),
        Some(_) => list.into_iter().map(one).collect(),
    }
}

fn one(prompt: Value) -> Result<Prompt, RequestError> {
    match prompt {
        Value::String(text) => Ok(Prompt::Text(text)),
        Value::Array(list) => Ok(Prompt::Ids(ids(list)?)),
        other => Err(RequestError::wrong(
            "prompt",
            format!("has {} among texts or lists: {WANTED}", kind(&other)),
        )),
    }
}

fn ids(list: Vec<Value>) -> Result<Vec<u32>, RequestError> {
    let id = |value: &Value| value.as_u64().and_then(|id| u32::try_from(id).ok());
    list.iter()
        .map(|value| {
            id(value)
                .ok_or_else(|| RequestError::wrong("prompt", format!("has {} among token ids: {WANTED}", kind(value))))
        })
        .collect()
}

/// Reads `logprobs`: whether log-probs are wanted, and the number of most likely tokens in addition
/// to the chosen ones.
pub(super) fn logprobs(fields: &mut JsonFields) -> Result<(bool, u8), RequestError> {
    if fields.is_false("logprobs") {
        return Ok((false, 0));
    }
    let count = fields.whole("logprobs", 0, MOST_LIKELY)?;
    Ok((count.is_some(), count.unwrap_or(0) as u8))
}
