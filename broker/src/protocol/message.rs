//! One message of a chat: text, with images at places in the text.

mod fault;
mod read;

use std::borrow::Cow;

use bincode::{Decode, Encode};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;
use serde_json::json;

pub use fault::{FaultKind, MessageFault};

/// One message of a chat. In JSON its content is a text, or a list of parts as in OpenAI's API:
/// `{"type": "text", "text": ".."}` and `{"type": "image_url", "image_url": {"url": ".."}}`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Encode, Decode, Serialize)]
#[serde(into = "Said")]
pub struct Message {
    /// `system`, `user`, `assistant` or `tool`; or [`Message::TOOLS`], before all others.
    pub role: String,
    /// The whole text.
    pub content: String,
    /// The images in order; empty for an agent that reads text only.
    pub images: Vec<Image>,
}

/// A reference to an image within a message.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Encode, Decode)]
pub struct Image {
    /// The number of bytes of the message's text before the image.
    pub at: u32,
    /// `https://..`, `http://..` or `data:image/..`. dyad never opens it: it passes it to the
    /// server that sees images.
    pub url: String,
}

impl Image {
    /// Checks an image's URL.
    ///
    /// # Errors
    /// Shows its beginning and the right form.
    pub fn check(url: &str) -> Result<(), MessageFault> {
        let known = ["https://", "http://", "data:image/"];
        let sound = |c: char| !c.is_whitespace() && !c.is_control();
        if known.iter().any(|begin| url.starts_with(begin)) && url.chars().all(sound) {
            return Ok(());
        }
        let begin: String = url.chars().take(80).collect();
        let problem =
            format!("is {begin:?}: an image's url begins with https://, http:// or data:image/ and has no white space");
        Err(MessageFault::new("", problem))
    }
}

impl Message {
    /// The role of the list of tools: a message without a speaker, in the first place. Its content
    /// is the JSON list of the callable tools, which chat templates receive as their variable
    /// `tools`.
    pub const TOOLS: &str = "tools";

    /// The roles of messages with a speaker.
    pub const ROLES: [&str; 4] = ["system", "user", "assistant", "tool"];

    /// Returns true if the message has a speaker: chat templates know no other roles.
    #[must_use]
    pub fn is_said(&self) -> bool {
        Self::ROLES.contains(&&*self.role)
    }

    #[must_use]
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Self {
        Self {
            role: role.into(),
            content: content.into(),
            images: Vec::new(),
        }
    }

    #[must_use]
    pub fn user(content: impl Into<String>) -> Self {
        Self::new("user", content)
    }

    #[must_use]
    pub fn system(content: impl Into<String>) -> Self {
        Self::new("system", content)
    }

    /// Returns a message with a tool's answer.
    #[must_use]
    pub fn tool(content: impl Into<String>) -> Self {
        Self::new("tool", content)
    }

    /// Puts these images before its text.
    #[must_use]
    pub fn showing(mut self, images: impl IntoIterator<Item = String>) -> Self {
        self.images.extend(images.into_iter().map(|url| Image { at: 0, url }));
        self
    }

    /// Returns the bytes of text and references.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.content.len() + self.images.iter().map(|image| image.url.len()).sum::<usize>()
    }
}

impl JsonSchema for Message {
    fn schema_name() -> Cow<'static, str> {
        Said::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut schema = Said::json_schema(generator);
        let fields = schema.get_mut("properties").and_then(|fields| fields.as_object_mut());
        if let Some(fields) = fields {
            let padding = json!({"enum": [null, false, "", [], {}]});
            fields.extend(read::SAID_ELSEWHERE.map(|field| (field.to_owned(), padding.clone())));
            if let Some(content) = fields.get_mut("content") {
                *content = json!({"anyOf": [content.take(), {"type": "null"}]});
            }
        }
        // An assistant's message may have no content.
        schema.insert("required".into(), json!(["role"]));
        schema.insert("if".into(), json!({"properties": {"role": {"const": "assistant"}}}));
        let content = json!({"required": ["content"], "properties": {"content": {"not": {"type": "null"}}}});
        schema.insert("else".into(), content);
        schema
    }
}

/// One message of a chat: its content is a text, or a list of parts as in OpenAI's API; an
/// assistant's may be null. Null fields, names and other labels are passed over.
#[derive(Clone, Serialize, JsonSchema)]
#[schemars(rename = "Message")]
struct Said {
    /// `system` (or `developer`, which is the same), `user`, `assistant` or `tool`.
    #[schemars(extend("enum" = ["system", "developer", "user", "assistant", "tool"]))]
    role: String,
    content: Content,
}

#[derive(Clone, Serialize, JsonSchema)]
#[serde(untagged)]
enum Content {
    Text(String),
    Parts(Vec<Part>),
}

#[derive(Clone, Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Part {
    Text { text: String },
    ImageUrl { image_url: Shown },
}

/// An image's URL; data sets also write it without the object around it.
#[derive(Clone, Serialize, JsonSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "the schema alone names the bare form")]
enum Shown {
    Object(Url),
    Bare(
        #[schemars(regex(pattern = "^(https://|http://|data:image/)\\S*$"))]
        String,
    ),
}

#[derive(Clone, Serialize, JsonSchema)]
#[schemars(rename = "ImageUrl")]
struct Url {
    /// `https://..`, `http://..` or `data:image/..`, without white space. dyad never opens it: it
    /// passes it to the server that sees images.
    #[schemars(regex(pattern = "^(https://|http://|data:image/)\\S*$"))]
    url: String,
}

impl From<Message> for Said {
    fn from(message: Message) -> Self {
        let role = message.role;
        if message.images.is_empty() {
            let content = Content::Text(message.content);
            return Self { role, content };
        }
        let (mut parts, mut from) = (Vec::new(), 0);
        let text = |range: std::ops::Range<usize>, parts: &mut Vec<Part>| {
            // A place outside the text, in a message made by hand, means its end.
            if let Some(text) = message.content.get(range).filter(|text| !text.is_empty()) {
                parts.push(Part::Text { text: text.into() });
            }
        };
        for image in message.images {
            let at = (image.at as usize).clamp(from, message.content.len());
            text(from..at, &mut parts);
            from = at;
            let image_url = Shown::Object(Url { url: image.url });
            parts.push(Part::ImageUrl { image_url });
        }
        text(from..message.content.len(), &mut parts);
        let content = Content::Parts(parts);
        Self { role, content }
    }
}

#[cfg(test)]
mod tests;
