//! Reads messages of a chat from JSON: published tasks, rows of files and requests over HTTP have
//! this one reader, so that they take the same messages.

use serde::Deserialize;
use serde_json::{Map, Value};

use super::fault::MessageFault;
use super::{Message, image};
use crate::codec::excerpt;

/// Fields that carry a part of the turn. Dropping one would change what was said.
pub(super) const SAID_ELSEWHERE: [&str; 15] = [
    "tool_calls",
    "function_call",
    "images",
    "image",
    "audio",
    "video",
    "videos",
    "reasoning_content",
    "reasoning",
    "reasoning_details",
    "thinking",
    "thinking_blocks",
    "refusal",
    "prefix",
    "partial",
];

const CONTENT: &str = "a text, or a list of parts such as {\"type\": \"text\", \"text\": ..}";

impl<'de> Deserialize<'de> for Message {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(from)?;
        Self::read(&value).map_err(serde::de::Error::custom)
    }
}

/// The parts that a conversation can hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Parts {
    TextAndImages,
    Text,
}

impl Message {
    /// Reads `{role, content}`. Other fields are passed over, except those with a part of the turn.
    /// The role `developer` is OpenAI's newer name of `system`. An assistant's message may have no
    /// content.
    ///
    /// # Errors
    /// Names the field that is wrong, or that would be lost.
    pub fn read(value: &Value) -> Result<Self, MessageFault> {
        Self::of(value, Parts::TextAndImages)
    }

    /// Reads a message in the same way, for agents that read text only.
    ///
    /// # Errors
    /// The same, and an image.
    pub fn read_text(value: &Value) -> Result<Self, MessageFault> {
        Self::of(value, Parts::Text)
    }

    /// Reads the messages with which a conversation begins: one at least, each of a known role.
    ///
    /// # Errors
    /// Names the message and its field, such as `[1].content`.
    pub fn read_chat(list: &[Value]) -> Result<Vec<Self>, MessageFault> {
        if list.is_empty() {
            return Err(MessageFault::new(
                "",
                "is an empty list of messages: write one message at least",
            ));
        }
        let said = |value: &Value| Self::read(value)?.said();
        let messages = list.iter().enumerate();
        messages
            .map(|(index, value)| said(value).map_err(|fault| fault.within(&format!("[{index}]"))))
            .collect()
    }

    fn said(self) -> Result<Self, MessageFault> {
        if self.is_said() {
            return Ok(self);
        }
        if self.role == Self::TOOLS {
            let problem = "is \"tools\": the run alone lists the tools that may be called; leave the message out";
            return Err(MessageFault::new("role", problem));
        }
        Err(MessageFault::wrong("role", Some(&self.role.into()), &roles()))
    }

    fn of(value: &Value, parts: Parts) -> Result<Self, MessageFault> {
        let Some(fields) = value.as_object() else {
            return Err(MessageFault::wrong("", Some(value), "an object with role and content"));
        };
        let mut message = Self::new(role(fields)?, "");
        check_labels(fields)?;
        let found = fields.get("content");
        match found {
            Some(Value::String(text)) => message.content.clone_from(text),
            Some(Value::Array(list)) => message.add_all(list, parts)?,
            // Clients write a turn without text in this way.
            None | Some(Value::Null) if message.role == "assistant" => {}
            _ => return Err(MessageFault::wrong("content", found, CONTENT)),
        }
        Ok(message)
    }

    /// Appends parts. A line break joins texts that follow each other.
    fn add_all(&mut self, list: &[Value], parts: Parts) -> Result<(), MessageFault> {
        let mut after_text = false;
        for (index, part) in list.iter().enumerate() {
            let text = is_text(part);
            if after_text && text {
                self.content.push('\n');
            }
            self.add(part, parts)
                .map_err(|fault| fault.within(&format!("content[{index}]")))?;
            after_text = text;
        }
        Ok(())
    }

    /// Appends a part: `{"type": "text"}` or an image. Data sets also write an image as `"image":
    /// URL`, or its URL without the object around it.
    fn add(&mut self, part: &Value, parts: Parts) -> Result<(), MessageFault> {
        let Some(fields) = part.as_object() else {
            let wanted = "{\"type\": \"text\", \"text\": ..}";
            return Err(MessageFault::wrong("", Some(part), wanted));
        };
        if let Some(kind) = given(fields, "type").filter(|kind| !PARTS.iter().any(|known| kind == known)) {
            let problem = format!(
                "is {}: a content is of text and images alone; leave it out",
                excerpt(kind)
            );
            return Err(MessageFault::unsupported("type", problem));
        }
        let image = ["image_url", "image"]
            .into_iter()
            .find(|key| fields.get(*key).is_some_and(holds));
        let text = given(fields, "text");
        if is_text(part) {
            let said = text.and_then(Value::as_str);
            self.content
                .push_str(said.ok_or_else(|| MessageFault::wrong("text", text, "a text"))?);
            return image.map_or(Ok(()), |key| Err(lost(key)));
        }
        if parts == Parts::Text {
            let problem = "is an image: agents read text alone here; leave it out";
            return Err(MessageFault::unsupported("type", problem));
        }
        if text.is_some_and(holds) {
            return Err(lost("text"));
        }
        self.show(fields, image.unwrap_or("image_url"))
    }

    fn show(&mut self, fields: &Map<String, Value>, key: &str) -> Result<(), MessageFault> {
        let found = given(fields, key);
        let url = found.and_then(|shown| shown.get("url").unwrap_or(shown).as_str());
        let url = url.ok_or_else(|| MessageFault::wrong(key, found, "{\"url\": ..}, the URL of an image"))?;
        let at = u32::try_from(self.content.len()).unwrap_or(u32::MAX);
        let image = image(url.to_owned(), at).map_err(|error| MessageFault::new(key, error.to_string()))?;
        self.images.push(image);
        Ok(())
    }
}

/// The types of parts.
const PARTS: [&str; 3] = ["text", "image_url", "image"];

/// Returns true if a part is text: by its type, or by its only field.
fn is_text(part: &Value) -> bool {
    let has = |key: &str| part.get(key).is_some_and(|value| !value.is_null());
    match part.get("type").filter(|kind| !kind.is_null()) {
        Some(kind) => kind == "text",
        None => has("text") && !has("image_url") && !has("image"),
    }
}

/// Returns a field's value. Tables have every key in every part, with null where it does not apply.
fn given<'a>(fields: &'a Map<String, Value>, key: &str) -> Option<&'a Value> {
    fields.get(key).filter(|value| !value.is_null())
}

fn lost(field: &str) -> MessageFault {
    let problem = "would be lost: a message is its role and its content; write it into the content, or leave it out";
    MessageFault::unsupported(field, problem)
}

fn roles() -> String {
    Message::ROLES.join(", ")
}

fn role(fields: &Map<String, Value>) -> Result<&str, MessageFault> {
    match given(fields, "role") {
        Some(Value::String(role)) if role == "developer" => Ok("system"),
        Some(Value::String(role)) => Ok(role),
        found => Err(MessageFault::wrong("role", found, &roles())),
    }
}

/// Checks the fields other than role and content: most are labels, which no chat template shows.
fn check_labels(fields: &Map<String, Value>) -> Result<(), MessageFault> {
    let said = SAID_ELSEWHERE.into_iter();
    let mut said = said.filter(|field| fields.get(*field).is_some_and(holds));
    if let Some(field) = said.next() {
        return Err(lost(field));
    }
    if let Some(kind) = given(fields, "type").filter(|kind| *kind != "text" && *kind != "message") {
        let problem = format!(
            "is {}: a message is its role and its content; leave it out",
            excerpt(kind)
        );
        return Err(MessageFault::unsupported("type", problem));
    }
    // OpenAI's data sets for fine-tuning say by it which answers are trained on. A task's messages
    // are never trained on.
    let in_range = |weight: &Value| weight.as_f64().is_some_and(|weight| (0.0..=1.0).contains(&weight));
    match given(fields, "weight").filter(|weight| !in_range(weight)) {
        Some(weight) => Err(MessageFault::wrong(
            "weight",
            Some(weight),
            "a number from 0 to 1, or leave it out",
        )),
        None => Ok(()),
    }
}

/// Returns true if a value is more than padding.
fn holds(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => false,
        Value::String(text) => !text.is_empty(),
        Value::Array(list) => !list.is_empty(),
        Value::Object(fields) => fields.values().any(holds),
        _ => true,
    }
}
