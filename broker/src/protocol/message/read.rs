//! Reads a message of a chat from JSON, the same way for published tasks and rows of files.

use serde::Deserialize;
use serde_json::Value;

use super::{Message, image};

/// Fields that carry a part of the turn. Dropping one would change what was said.
pub(super) const SAID_ELSEWHERE: [&str; 7] = [
    "tool_calls",
    "function_call",
    "images",
    "image",
    "audio",
    "reasoning_content",
    "reasoning",
];

impl<'de> Deserialize<'de> for Message {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(from)?;
        Self::read(&value).map_err(serde::de::Error::custom)
    }
}

impl Message {
    /// Reads `{role, content}`. Other fields are passed over, except those with a part of the turn.
    ///
    /// # Errors
    /// Names what is missing, or what would be lost.
    pub fn read(value: &Value) -> Result<Self, String> {
        let fields = value.as_object().ok_or("is no object with role and content")?;
        let role = fields.get("role").and_then(Value::as_str).ok_or("has no role")?;
        if let Some(field) = SAID_ELSEWHERE
            .iter()
            .find(|field| fields.get(**field).is_some_and(holds))
        {
            return Err(format!(
                "has {field}, which would be lost: a message is its role and content; write them into the content, or leave them out"
            ));
        }
        let mut message = Self::new(role, "");
        match fields.get("content") {
            Some(Value::String(text)) => message.content.clone_from(text),
            Some(Value::Array(parts)) => parts.iter().try_for_each(|part| message.add(part))?,
            _ => return Err("has no content of text and images".into()),
        }
        Ok(message)
    }

    /// Appends a part: `{"type": "text"}` or an image. Data sets also write an image as `"image":
    /// URL`, or its URL without the object around it.
    fn add(&mut self, part: &Value) -> Result<(), String> {
        // Tables have every key in every part, with null where it does not apply.
        let given = |key: &str| part.get(key).filter(|value| !value.is_null());
        if let Some(kind) =
            given("type").filter(|kind| !["text", "image_url", "image"].iter().any(|known| kind == known))
        {
            return Err(format!(
                "has a part of type {kind}, and the content is of text and images alone"
            ));
        }
        if let Some(text) = given("text").and_then(Value::as_str) {
            self.content.push_str(text);
            return Ok(());
        }
        let shown = given("image_url").or_else(|| given("image"));
        let url = shown.and_then(|shown| shown.get("url").unwrap_or(shown).as_str());
        let url = url.ok_or("has no content of text and images: a part has neither text nor the URL of an image")?;
        let at = u32::try_from(self.content.len()).unwrap_or(u32::MAX);
        self.images
            .push(image(url.to_owned(), at).map_err(|error| error.to_string())?);
        Ok(())
    }
}

/// Returns true if a value is more than padding.
fn holds(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::String(text) => !text.is_empty(),
        Value::Array(list) => !list.is_empty(),
        Value::Object(fields) => fields.values().any(holds),
        _ => true,
    }
}
