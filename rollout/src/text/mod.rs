//! Text and tokens: a Hugging Face folder's tokenizer and chat template, used token-in and token-out.
//!
//! A seat's first prompt is its messages in the chat template. Every later one is the ids it holds plus **bridge ids**: the
//! end-of-turn token if it is missing, and the template's rendering of the new messages. Held ids are never decoded and
//! encoded again. What stands in a message can never become a control token.

mod bytes;
mod chat_log;
mod clock;
mod codec;
mod folder;
mod frames;
#[cfg(test)]
mod golden;
mod guard;
mod loaded;
pub mod make;
mod opening;
mod pyjson;
mod reasoning;
mod speech;
mod stream;
mod template;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

use std::path::PathBuf;

use broker::protocol::turn::Message;

pub use chat_log::ChatLog;
pub use codec::TextCodec;
pub use reasoning::visible_text;
pub use speech::Speech;
pub use stream::TextStream;

/// Whether an agent that reads text only can be told these messages.
///
/// # Errors
/// Names the first image among them.
pub fn text_only(messages: &[Message]) -> Result<(), TextError> {
    let image = messages.iter().find_map(|message| message.images.first());
    image.map_or(Ok(()), |image| {
        Err(TextError::Image {
            url: image.url.chars().take(40).collect(),
        })
    })
}

/// Why text cannot be turned into tokens, or a tokenizer folder not be used.
#[derive(Debug, thiserror::Error)]
pub enum TextError {
    #[error("cannot read {path}: give a Hugging Face folder with tokenizer.json and tokenizer_config.json")]
    Read { path: PathBuf, source: std::io::Error },
    #[error("cannot write {path}")]
    Write { path: PathBuf, source: std::io::Error },
    #[error("{path} is not understood: {message}")]
    Format { path: PathBuf, message: String },
    #[error("{folder} has no chat template: add chat_template to tokenizer_config.json, or a chat_template.jinja")]
    NoTemplate { folder: PathBuf },
    #[error("the chat template does not take these messages: {message}")]
    Template { message: String },
    #[error("a message has the role {role:?}: use system, user, assistant or tool")]
    Role { role: String },
    #[error(
        "a message has an image ({url}..), and the agent's engine takes no images: let an agent with engine.kind = \"openai\" play the \
         role, or say it without the image to one that reads text only"
    )]
    Image { url: String },
    #[error("held ids are no log of a chat: {message}")]
    Log { message: String },
    #[error("the tokenizer cannot encode a text: {message}")]
    Encode { message: String },
    #[error("the word {word:?} cannot be in a vocabulary: {message}")]
    Word { word: String, message: &'static str },
}
