//! Reads messages of a chat from JSON: published tasks, rows of files and requests over HTTP have
//! this one reader.

use serde::Deserialize;
use serde_json::{Map, Value};

use super::fault::{FaultKind, MessageFault};
use super::{Image, Message};
use crate::codec::excerpt;

/// Fields that carry a part of the turn. Dropping one would change what was said.
pub(super) const SAID_ELSEWHERE: [&str; 11] = [
    "tool_calls",
    "function_call",
    "images",
    "image",
    "audio",
    "video",
    "videos",
    "reasoning_content",
    "reasoning",
    "prefix",
    "partial",
];

/// Fields that requests may not use in addition. Rows of data sets often have them as notes.
const NOTED: [&str; 6] = [
    "reasoning_details",
    "thinking",
    "thinking_blocks",
    "refusal",
    "tool_call_id",
    "annotations",
];

/// The fields of a request's message. Chat templates show none but the first two.
const IN_MESSAGE: [&str; 8] = [
    "role",
    "content",
    "type",
    "weight",
    "name",
    "id",
    "status",
    "cache_control",
];

/// The fields of a request's text part.
const IN_PART: [&str; 3] = ["type", "text", "cache_control"];

/// The most characters of an unknown field's name in an error.
const LONGEST_FIELD: usize = 100;

const CONTENT: &str = "a text, or a list of parts such as {\"type\": \"text\", \"text\": ..}";

/// The form of a part of text, for errors.
const TEXT_PART: &str = "{\"type\": \"text\", \"text\": ..}";

impl<'de> Deserialize<'de> for Message {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(from)?;
        Self::read(&value).map_err(serde::de::Error::custom)
    }
}

/// The rules for a message, by where it comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rules {
    /// Takes text and images. Unknown fields are passed over: data sets have their own.
    Tasks,
    /// Takes text alone. Unknown fields are rejected: the client expects an effect.
    Requests,
}

impl Rules {
    fn roles(self) -> String {
        match self {
            Self::Tasks => Message::ROLES.join(", "),
            Self::Requests => "system, user or assistant".into(),
        }
    }

    fn parts(self) -> &'static str {
        match self {
            Self::Tasks => "text and images",
            Self::Requests => "text",
        }
    }
}

impl Message {
    /// Reads `{role, content}`. Other fields are passed over, except those with a part of the turn.
    /// The role `developer` is OpenAI's newer name of `system`. An assistant's message may have no
    /// content. Text parts are joined as they are.
    ///
    /// # Errors
    /// Names the field that is wrong, or that would be lost.
    pub fn read(value: &Value) -> Result<Self, MessageFault> {
        Self::of(value, Rules::Tasks)
    }

    /// Reads a request's message of the system, the user or the assistant. Line breaks join its
    /// text parts.
    ///
    /// # Errors
    /// The same, an image, another role, and an unknown field with a value.
    pub fn read_request(value: &Value) -> Result<Self, MessageFault> {
        Self::of(value, Rules::Requests)
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
        Err(MessageFault::wrong(
            "role",
            Some(&self.role.into()),
            &Rules::Tasks.roles(),
        ))
    }

    fn of(value: &Value, rules: Rules) -> Result<Self, MessageFault> {
        let Some(fields) = value.as_object() else {
            return Err(MessageFault::wrong("", Some(value), "an object with role and content"));
        };
        let mut message = Self::new(role(fields, rules)?, "");
        check_fields(fields, rules)?;
        let found = fields.get("content");
        match found {
            Some(Value::String(text)) => message.content.clone_from(text),
            Some(Value::Array(list)) => message.add_all(list, rules)?,
            // Clients write a turn without text in this way.
            None | Some(Value::Null) if message.role == "assistant" => {}
            _ => return Err(MessageFault::wrong("content", found, CONTENT)),
        }
        Ok(message)
    }

    fn add_all(&mut self, list: &[Value], rules: Rules) -> Result<(), MessageFault> {
        for (index, part) in list.iter().enumerate() {
            if index > 0 && rules == Rules::Requests {
                self.content.push('\n');
            }
            self.add(part, rules)
                .map_err(|fault| fault.within(&format!("content[{index}]")))?;
        }
        Ok(())
    }

    /// Appends a part: `{"type": "text"}` or an image. Data sets also write an image as `"image":
    /// URL`, or its URL without the object around it, or leave its place empty.
    fn add(&mut self, part: &Value, rules: Rules) -> Result<(), MessageFault> {
        let Some(fields) = part.as_object() else {
            return Err(MessageFault::wrong("", Some(part), TEXT_PART));
        };
        let kind = given(fields, "type");
        if let Some(kind) = kind.filter(|kind| !PARTS.iter().any(|known| kind == known)) {
            let problem = format!(
                "is {}: a content is of {} alone; leave it out",
                excerpt(kind),
                rules.parts()
            );
            return Err(MessageFault::unsupported("type", problem));
        }
        let image = ["image_url", "image"]
            .into_iter()
            .find(|key| fields.get(*key).is_some_and(holds));
        let text = given(fields, "text");
        let is_text = match kind {
            Some(kind) => kind == "text",
            None => text.is_some() && image.is_none(),
        };
        if is_text {
            let said = text.and_then(Value::as_str);
            self.content
                .push_str(said.ok_or_else(|| MessageFault::wrong("text", text, "a text"))?);
            return match (image, rules) {
                (Some(key), _) => Err(lost(key)),
                (None, Rules::Requests) => check_known(fields, &IN_PART),
                (None, Rules::Tasks) => Ok(()),
            };
        }
        if kind.is_none() && image.is_none() {
            return Err(MessageFault::wrong("type", None, TEXT_PART));
        }
        if rules == Rules::Requests {
            let field = image.filter(|_| kind.is_none()).unwrap_or("type");
            let problem = "is an image: agents read text alone here; leave it out";
            return Err(MessageFault::unsupported(field, problem));
        }
        match (text, image) {
            // The place of an image that has its own column.
            (Some(Value::String(text)), None) => {
                self.content.push_str(text);
                Ok(())
            }
            (Some(text), _) if holds(text) => Err(lost("text")),
            (_, image) => self.show(fields, image.unwrap_or("image_url")),
        }
    }

    fn show(&mut self, fields: &Map<String, Value>, key: &str) -> Result<(), MessageFault> {
        let found = given(fields, key);
        let url = found.and_then(|shown| shown.get("url").unwrap_or(shown).as_str());
        let url = url.ok_or_else(|| MessageFault::wrong(key, found, "{\"url\": ..}, the URL of an image"))?;
        let at = u32::try_from(self.content.len()).unwrap_or(u32::MAX);
        Image::check(url).map_err(|fault| fault.within(key))?;
        self.images.push(Image {
            at,
            url: url.to_owned(),
        });
        Ok(())
    }
}

/// The types of parts.
const PARTS: [&str; 3] = ["text", "image_url", "image"];

/// Returns a field's value. Tables have every key in every part, with null where it does not apply.
fn given<'a>(fields: &'a Map<String, Value>, key: &str) -> Option<&'a Value> {
    fields.get(key).filter(|value| !value.is_null())
}

fn lost(field: &str) -> MessageFault {
    let problem = "would be lost: a message is its role and its content; write it into the content, or leave it out";
    MessageFault::unsupported(field, problem)
}

fn role(fields: &Map<String, Value>, rules: Rules) -> Result<&str, MessageFault> {
    let found = given(fields, "role");
    match (found.and_then(Value::as_str), rules) {
        (Some("developer"), _) => Ok("system"),
        (Some(role), Rules::Tasks) => Ok(role),
        (Some(role @ ("system" | "user" | "assistant")), Rules::Requests) => Ok(role),
        (Some("tool" | "function"), Rules::Requests) => {
            let problem = "is not supported: agents call no tools, so none answers; leave the message out";
            Err(MessageFault::unsupported("role", problem))
        }
        _ => Err(MessageFault::wrong("role", found, &rules.roles())),
    }
}

/// Checks the fields other than role and content.
fn check_fields(fields: &Map<String, Value>, rules: Rules) -> Result<(), MessageFault> {
    let is_given = |field: &&str| fields.get(*field).is_some_and(holds);
    if let Some(field) = SAID_ELSEWHERE.into_iter().find(is_given) {
        return Err(lost(field));
    }
    if rules == Rules::Tasks {
        return Ok(());
    }
    if let Some(field) = NOTED.into_iter().find(is_given) {
        return Err(lost(field));
    }
    let kind = fields.get("type").filter(|kind| holds(kind));
    if let Some(kind) = kind.filter(|kind| *kind != "text" && *kind != "message") {
        let problem = format!(
            "is {}: a message is its role and its content; leave it out",
            excerpt(kind)
        );
        return Err(MessageFault::unsupported("type", problem));
    }
    // OpenAI's data sets for fine-tuning say by it which answers are trained on, and clients send
    // their messages.
    let in_range = |weight: &Value| weight.as_f64().is_some_and(|weight| (0.0..=1.0).contains(&weight));
    let weight = fields.get("weight").filter(|weight| holds(weight));
    if let Some(weight) = weight.filter(|weight| !in_range(weight)) {
        let wanted = "a number from 0 to 1, or leave it out";
        return Err(MessageFault::wrong("weight", Some(weight), wanted));
    }
    check_known(fields, &IN_MESSAGE)
}

/// Rejects the first field that is not known and has a value.
fn check_known(fields: &Map<String, Value>, known: &[&str]) -> Result<(), MessageFault> {
    let mut unknown = fields.iter();
    match unknown.find(|(field, value)| !known.contains(&field.as_str()) && holds(value)) {
        None => Ok(()),
        Some((field, _)) => {
            let field: String = field.chars().take(LONGEST_FIELD).collect();
            Err(MessageFault {
                kind: FaultKind::Unknown,
                ..MessageFault::new(field, "is not known here: leave it out")
            })
        }
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
