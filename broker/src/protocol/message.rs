//! One message of a chat: text, and images where the text has them.

use bincode::{Decode, Encode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One message of a chat. As JSON its content is a text, or a list of parts as OpenAI's servers take them:
/// `{"type": "text", "text": ".."}` and `{"type": "image_url", "image_url": {"url": ".."}}`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Encode, Decode, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "Said", into = "Said")]
pub struct Message {
    /// `system`, `user`, `assistant` or `tool`; or, before all others, [`Message::TOOLS`].
    pub role: String,
    /// All its text.
    pub content: String,
    /// In their order; none for an agent that reads text only.
    pub images: Vec<Image>,
}

/// A reference to an image within a message.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Encode, Decode)]
pub struct Image {
    /// The bytes of the message's text that stand before it.
    pub at: u32,
    /// `https://..`, `http://..` or `data:image/..`. Nobody here opens it: it goes to the server that sees.
    pub url: String,
}

impl Message {
    /// The role of a message that nobody says: its content is the JSON list of the tools that may be called, which chat templates
    /// take as their variable `tools`. It stands first.
    pub const TOOLS: &str = "tools";

    /// The roles of messages that somebody says.
    pub const ROLES: [&str; 4] = ["system", "user", "assistant", "tool"];

    /// Whether somebody says it: chat templates know no roles but these.
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

    /// What a tool answered.
    #[must_use]
    pub fn tool(content: impl Into<String>) -> Self {
        Self::new("tool", content)
    }

    /// With these images before its text.
    #[must_use]
    pub fn showing(mut self, images: impl IntoIterator<Item = String>) -> Self {
        self.images.extend(images.into_iter().map(|url| Image { at: 0, url }));
        self
    }

    /// Bytes of text and references.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.content.len() + self.images.iter().map(|image| image.url.len()).sum::<usize>()
    }
}

/// One message of a chat: its content is a text, or a list of parts as OpenAI's servers take them.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Message")]
struct Said {
    /// `system`, `user`, `assistant` or `tool`.
    #[schemars(extend("enum" = Message::ROLES))]
    role: String,
    content: Content,
}

#[derive(Clone, Serialize, Deserialize, JsonSchema)]
#[serde(
    untagged,
    expecting = "content must be text or a list of parts: {\"type\": \"text\", \"text\": ..} or {\"type\": \"image_url\", \"image_url\": {\"url\": ..}}"
)]
enum Content {
    Text(String),
    Parts(Vec<Part>),
}

#[derive(Clone, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
enum Part {
    Text { text: String },
    ImageUrl { image_url: Url },
}

#[derive(Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "ImageUrl")]
struct Url {
    /// `https://..`, `http://..` or `data:image/..`, without white space. Nobody here opens it: it goes to the server that sees.
    #[schemars(regex(pattern = "^(https://|http://|data:image/)\\S*$"))]
    url: String,
}

/// An image that is no reference.
#[derive(Debug, thiserror::Error)]
#[error("an image's url begins with https://, http:// or data:image/ and has no white space: {0:?}")]
struct NoImage(String);

impl TryFrom<Said> for Message {
    type Error = NoImage;

    fn try_from(said: Said) -> Result<Self, NoImage> {
        let mut message = Message::new(said.role, "");
        match said.content {
            Content::Text(text) => message.content = text,
            Content::Parts(parts) => {
                for part in parts {
                    match part {
                        Part::Text { text } => message.content.push_str(&text),
                        Part::ImageUrl { image_url } => {
                            let at = u32::try_from(message.content.len()).unwrap_or(u32::MAX);
                            message.images.push(image(image_url.url, at)?);
                        }
                    }
                }
            }
        }
        Ok(message)
    }
}

fn image(url: String, at: u32) -> Result<Image, NoImage> {
    let known = ["https://", "http://", "data:image/"];
    let sound = |c: char| !c.is_whitespace() && !c.is_control();
    if known.iter().any(|begin| url.starts_with(begin)) && url.chars().all(sound) {
        return Ok(Image { at, url });
    }
    Err(NoImage(url.chars().take(80).collect()))
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
            // A place that is none, of a message made by hand, is its end.
            if let Some(text) = message.content.get(range).filter(|text| !text.is_empty()) {
                parts.push(Part::Text { text: text.into() });
            }
        };
        for image in message.images {
            let at = (image.at as usize).clamp(from, message.content.len());
            text(from..at, &mut parts);
            from = at;
            let image_url = Url { url: image.url };
            parts.push(Part::ImageUrl { image_url });
        }
        text(from..message.content.len(), &mut parts);
        let content = Content::Parts(parts);
        Self { role, content }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RED: &str = "data:image/png;base64,iVBOR";

    #[test]
    fn text_is_a_text_and_images_keep_their_places() {
        let plain = r#"{"role":"user","content":"hi"}"#;
        let message: Message = serde_json::from_str(plain).unwrap();
        assert_eq!(message, Message::user("hi"));
        assert_eq!(serde_json::to_string(&message).unwrap(), plain);
        let parts = format!(
            r#"{{"role":"user","content":[{{"type":"text","text":"é: "}},{{"type":"image_url","image_url":{{"url":"{RED}"}}}},{{"type":"image_url","image_url":{{"url":"https://x.org/a.png"}}}},{{"type":"text","text":" which?"}}]}}"#
        );
        let message: Message = serde_json::from_str(&parts).unwrap();
        assert_eq!(message.content, "é:  which?");
        assert_eq!(message.images.iter().map(|image| image.at).collect::<Vec<_>>(), [4, 4]);
        assert_eq!(serde_json::to_string(&message).unwrap(), parts);
    }

    #[test]
    fn what_is_no_message_is_refused() {
        for bad in [
            r#"{"role":"user","content":[{"type":"image_url","image_url":{"url":"file:///etc/passwd"}}]}"#,
            r#"{"role":"user","content":[{"type":"image_url","image_url":{"url":"https://x .org"}}]}"#,
            r#"{"role":"user","content":[{"type":"audio","text":"x"}]}"#,
            r#"{"role":"user","content":[{"type":"text","text":"x","more":1}]}"#,
            r#"{"role":"user","content":5}"#,
            r#"{"role":"user","content":"x","images":[]}"#,
        ] {
            assert!(serde_json::from_str::<Message>(bad).is_err(), "{bad}");
        }
    }
}
