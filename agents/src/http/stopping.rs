//! Reads the client's stop conditions.

use serde_json::Value;

use super::json_fields::{JsonFields, kind};
use super::request_error::RequestError;

const MOST_STOPS: usize = 16;
const LONGEST_STOP: usize = 256;
const MOST_STOP_IDS: usize = 1024;

/// The client's stop conditions, in addition to the model's own end and its limit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stopping {
    pub texts: Vec<String>,
    /// Ids of stop tokens; their text is not sent unless `kept`.
    pub ids: Vec<u32>,
    /// True if the text that ended a choice is sent too.
    pub kept: bool,
}

impl Stopping {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.texts.is_empty() && self.ids.is_empty()
    }
}

pub(super) fn stopping(fields: &mut JsonFields) -> Result<Stopping, RequestError> {
    Ok(Stopping {
        texts: stop(fields)?,
        ids: stop_ids(fields)?,
        kept: fields.flag("include_stop_str_in_output")?,
    })
}

fn stop_ids(fields: &mut JsonFields) -> Result<Vec<u32>, RequestError> {
    let wrong = |what: String| RequestError::wrong("stop_token_ids", format!("{what}: write a list of token ids"));
    let list = match fields.take("stop_token_ids") {
        None => return Ok(Vec::new()),
        Some(Value::Array(list)) if list.len() <= MOST_STOP_IDS => list,
        Some(Value::Array(list)) => {
            return Err(RequestError::wrong(
                "stop_token_ids",
                format!("has {} ids: {MOST_STOP_IDS} are the most", list.len()),
            ));
        }
        Some(other) => return Err(wrong(format!("is {}", kind(&other)))),
    };
    let id = |value: &Value| value.as_u64().and_then(|id| u32::try_from(id).ok());
    list.iter()
        .map(|value| id(value).ok_or_else(|| wrong(format!("has {}", kind(value)))))
        .collect()
}

fn stop(fields: &mut JsonFields) -> Result<Vec<String>, RequestError> {
    let texts = match fields.take("stop") {
        None => return Ok(Vec::new()),
        Some(Value::String(text)) => vec![text],
        Some(Value::Array(texts)) if texts.len() <= MOST_STOPS => {
            let text = |value: Value| match value {
                Value::String(text) => Ok(text),
                other => Err(RequestError::wrong(
                    "stop",
                    format!("has {}: write texts", kind(&other)),
                )),
            };
            texts.into_iter().map(text).collect::<Result<_, _>>()?
        }
        Some(Value::Array(texts)) => {
            return Err(RequestError::wrong(
                "stop",
                format!("has {} texts: {MOST_STOPS} are the most", texts.len()),
            ));
        }
        Some(other) => {
            return Err(RequestError::wrong(
                "stop",
                format!("is {}: write a text or a list of texts", kind(&other)),
            ));
        }
    };
    if texts.iter().any(|text| text.is_empty() || text.len() > LONGEST_STOP) {
        return Err(RequestError::wrong(
            "stop",
            format!("has a text that is empty or longer than {LONGEST_STOP} bytes"),
        ));
    }
    Ok(texts)
}
