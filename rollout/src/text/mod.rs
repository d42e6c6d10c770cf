//! Text and tokens: the tokenizer and chat template of a Hugging Face folder, with tokens in and
//! tokens out.
//!
//! A seat's first prompt is its messages in the chat template. Every later prompt is the ids it
//! holds plus **bridge ids**: the end-of-turn token if it is missing, and the template's rendering
//! of the new messages. Held ids are never decoded and encoded again. Message contents can never
//! become control tokens.

mod bytes;
mod chat_log;
mod clock;
mod codec;
mod folder;
#[cfg(test)]
mod golden;
mod guard;
mod loaded;
pub mod make;
mod opening;
mod pyjson;
mod skeletons;
mod speech;
mod stream;
mod template;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

use std::path::PathBuf;

use broker::protocol::turn::Message;

pub use crate::reasoning::visible_text;
pub use chat_log::ChatLog;
pub use codec::TextCodec;
pub use speech::Speech;
pub use stream::TextStream;
pub use template::check_template;

/// Checks that messages hold no image, for an agent that reads only text.
///
/// # Errors
/// Names the first image.
pub fn text_only(messages: &[Message]) -> Result<(), TextError> {
    let image = messages.iter().find_map(|message| message.images.first());
    image.map_or(Ok(()), |image| {
        Err(TextError::Image {
            url: image.url.chars().take(40).collect(),
        })
    })
}

/// A text that cannot be turned into tokens, or a tokenizer folder that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TextError {
    #[error("cannot read {path}: give a Hugging Face folder with tokenizer.json and tokenizer_config.json")]
    Read { path: PathBuf, source: std::io::Error },
    #[error("cannot write {path}")]
    Write { path: PathBuf, source: std::io::Error },
    #[error("{path} is not understood: {message}")]
    Format { path: PathBuf, message: String },
    #[error(
        "{folder} has no chat template: set agents.NAME.chat_template to a Jinja file, or add a chat_template.jinja to the folder"
    )]
    NoTemplate { folder: PathBuf },
    #[error("cannot read the chat template {path}: set agents.NAME.chat_template to a Jinja file")]
    ChatTemplate { path: PathBuf, source: std::io::Error },
    #[error("the chat template is not valid Jinja: {message}")]
    Jinja { message: String },
    #[error("the chat template rejects these messages: {message}")]
    Template { message: String },
    #[error("a message has the role {role:?}: use system, user, assistant or tool")]
    Role { role: String },
    #[error(
        "a message has an image ({url}..), and the agent's engine takes no images: let an agent with engine.kind = \"openai\" play the \
         role, or send the message without the image"
    )]
    Image { url: String },
    #[error("held ids are not the log of a chat: {message}")]
    Log { message: String },
    #[error("the tokenizer cannot encode a text: {message}")]
    Encode { message: String },
    #[error("the word {word:?} cannot be in a vocabulary: {message}")]
    Word { word: String, message: &'static str },
}
