//! Reads the fields that only `/v1/chat/completions` has: messages.

use broker::protocol::turn::{FaultKind, Message, MessageFault};
use serde_json::Value;

use super::client_request::{MOST_LIKELY, Prompt};
use super::json_fields::{JsonFields, kind};
use super::request_error::RequestError;

/// The maximum number of messages in one conversation.
const MOST: usize = 4096;

/// Reads `messages`, and whether an answer is to be begun.
pub(super) fn conversation(fields: &mut JsonFields) -> Result<Prompt, RequestError> {
    let list = match fields.take("messages") {
        None => {
            return Err(RequestError::wrong(
                "messages",
                "is missing: write a list of {\"role\", \"content\"}",
            ));
        }
        Some(Value::Array(list)) if list.is_empty() || list.len() > MOST => {
            return Err(RequestError::wrong(
                "messages",
                format!("has {} messages: write 1 to {MOST}", list.len()),
            ));
        }
        Some(Value::Array(list)) => list,
        Some(other) => {
            let message = format!("is {}: write a list of {{\"role\", \"content\"}}", kind(&other));
            return Err(RequestError::wrong("messages", message));
        }
    };
    let messages = list.iter().enumerate();
    let messages = messages
        .map(|(at, value)| message(value, at))
        .collect::<Result<_, _>>()?;
    let generation = match fields.take("add_generation_prompt") {
        None | Some(Value::Bool(true)) => true,
        Some(Value::Bool(false)) => false,
        Some(other) => {
            let message = format!("is {}: write true or false", kind(&other));
            return Err(RequestError::wrong("add_generation_prompt", message));
        }
    };
    Ok(Prompt::Chat { messages, generation })
}

fn message(value: &Value, at: usize) -> Result<Message, RequestError> {
    Message::read_request(value).map_err(|fault| refusal(fault.within(&format!("messages[{at}]"))))
}

fn refusal(fault: MessageFault) -> RequestError {
    let code = match fault.kind {
        FaultKind::Wrong => None,
        FaultKind::Unsupported => Some("unsupported_parameter"),
        FaultKind::Unknown => Some("unknown_parameter"),
    };
    RequestError {
        code,
        ..RequestError::wrong(fault.path, fault.problem)
    }
}

/// Reads `logprobs`, for the chosen tokens, and `top_logprobs`, the number of most likely ones in
/// addition.
pub(super) fn logprobs(fields: &mut JsonFields) -> Result<(bool, u8), RequestError> {
    let logprobs = fields.flag("logprobs")?;
    let top = fields.whole("top_logprobs", 0, MOST_LIKELY)?.unwrap_or(0) as u8;
    if top > 0 && !logprobs {
        return Err(RequestError::wrong(
            "top_logprobs",
            "is only allowed when logprobs is true: send logprobs = true, or leave it out",
        ));
    }
    Ok((logprobs, top))
}
