//! What `/v1/completions` alone has: prompts as text or ids.

use serde_json::Value;

use super::ask::{Input, MOST_LIKELY};
use super::fields::{Fields, kind};
use super::refusal::Refusal;

const WANTED: &str = "write a text, a list of texts, a list of token ids, or a list of such lists";
/// Prompts in one request at most.
const MOST: usize = 1024;

/// `prompt`: a text, several, ids, or several lists of ids.
pub(super) fn prompts(fields: &mut Fields) -> Result<Vec<Input>, Refusal> {
    let wrong = |what: String| Refusal::wrong("prompt", format!("{what}: {WANTED}"));
    let list = match fields.take("prompt") {
        None => return Err(wrong("is missing".into())),
        Some(Value::String(text)) => return Ok(vec![Input::Text(text)]),
        Some(Value::Array(list)) => list,
        Some(other) => return Err(wrong(format!("is {}", kind(&other)))),
    };
    match list.first() {
        None => Err(wrong("is an empty list".into())),
        Some(Value::Number(_)) => Ok(vec![Input::Ids(ids(list)?)]),
        Some(_) if list.len() > MOST => Err(Refusal::wrong(
            "prompt",
            format!("has {} prompts: {MOST} are the most", list.len()),
        )),
        Some(_) => list.into_iter().map(one).collect(),
    }
}

fn one(prompt: Value) -> Result<Input, Refusal> {
    match prompt {
        Value::String(text) => Ok(Input::Text(text)),
        Value::Array(list) => Ok(Input::Ids(ids(list)?)),
        other => Err(Refusal::wrong(
            "prompt",
            format!("has {} among texts or lists: {WANTED}", kind(&other)),
        )),
    }
}

fn ids(list: Vec<Value>) -> Result<Vec<u32>, Refusal> {
    let id = |value: &Value| value.as_u64().and_then(|id| u32::try_from(id).ok());
    list.iter()
        .map(|value| {
            id(value).ok_or_else(|| Refusal::wrong("prompt", format!("has {} among token ids: {WANTED}", kind(value))))
        })
        .collect()
}

/// `logprobs`: whether log-probs are wanted, and of how many of the most likely tokens beside the chosen ones.
pub(super) fn logprobs(fields: &mut Fields) -> Result<(bool, u8), Refusal> {
    let count = fields.whole("logprobs", 0, MOST_LIKELY)?;
    Ok((count.is_some(), count.unwrap_or(0) as u8))
}
