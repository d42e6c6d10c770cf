//! Reads the fields that only `/v1/chat/completions` has: messages.

use broker::protocol::turn::Message;
use serde_json::{Value, json};

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
    let messages = list.into_iter().enumerate();
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

fn message(value: Value, at: usize) -> Result<Message, RequestError> {
    let mut fields = JsonFields::of(value, format!("messages[{at}]"))?;
    let role = match fields.text("role")?.as_deref() {
        // OpenAI's newer name for the system role.
        Some("system" | "developer") => "system",
        Some("user") => "user",
        Some("assistant") => "assistant",
        Some("tool" | "function") => {
            return Err(RequestError::not_done(
                fields.name("role"),
                "agents call no tools, so none answers; leave the message out",
            ));
        }
        Some(_) => {
            return Err(RequestError::wrong(
                fields.name("role"),
                "is not known: write system, user or assistant",
            ));
        }
        None => {
            return Err(RequestError::wrong(
                fields.name("role"),
                "is missing: write system, user or assistant",
            ));
        }
    };
    let calls = "an agent's turn is its text, and its calls would be lost; leave them out";
    fields.only("tool_calls", &[json!([])], calls)?;
    fields.only("function_call", &[json!({})], calls)?;
    let place = fields.name("content");
    let content = match fields.take("content") {
        // Clients send back a turn without text in this way.
        None if role == "assistant" => String::new(),
        None => {
            return Err(RequestError::wrong(
                place,
                "is missing: write a text or a list of text parts",
            ));
        }
        Some(content) => text(content, &place)?,
    };
    // Labels, which chat templates do not show.
    ["name", "id", "status", "cache_control"]
        .iter()
        .for_each(|label| drop(fields.take(label)));
    fields.only(
        "type",
        &[json!("text"), json!("message")],
        "a message is its role and its text; leave it out",
    )?;
    // Clients send an earlier answer back with all of its fields.
    fields.drop_empty();
    for field in [
        "tool_call_id",
        "refusal",
        "annotations",
        "audio",
        "reasoning_content",
        "reasoning",
    ] {
        fields.only(field, &[], "a message is its role and its text; leave it out")?;
    }
    fields.end()?;
    Ok(Message::new(role, content))
}

/// Reads a text, or text parts, which line breaks join.
fn text(content: Value, place: &str) -> Result<String, RequestError> {
    let parts = match content {
        Value::String(text) => return Ok(text),
        Value::Array(parts) => parts,
        other => {
            return Err(RequestError::wrong(
                place,
                format!("is {}: write a text or a list of text parts", kind(&other)),
            ));
        }
    };
    let part = |(at, part): (usize, Value)| {
        let mut fields = JsonFields::of(part, format!("{place}[{at}]"))?;
        match fields.text("type")?.as_deref() {
            Some("text") => {}
            Some(other) => {
                let other: String = other.chars().take(40).collect();
                let advice = format!("{other:?} is no text, and agents read text alone; leave it out");
                return Err(RequestError::not_done(fields.name("type"), &advice));
            }
            None => return Err(RequestError::wrong(fields.name("type"), "is missing: write \"text\"")),
        }
        let text = fields.text("text")?;
        let text = text.ok_or_else(|| RequestError::wrong(fields.name("text"), "is missing"))?;
        drop(fields.take("cache_control"));
        fields.drop_empty();
        fields.end()?;
        Ok(text)
    };
    let texts: Vec<String> = parts.into_iter().enumerate().map(part).collect::<Result<_, _>>()?;
    Ok(texts.join("\n"))
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
