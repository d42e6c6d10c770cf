//! What an agent's router needs between messages and ids, whoever generates.

use broker::protocol::turn::{Message, Prompt};
use configs::History;

use super::{ChatLog, TextCodec, TextError};

/// A way from messages to ids and from ids to text.
pub trait Speech: Send + Sync {
    /// The ids of messages: of a whole chat at a seat's `first` turn, else of what is new.
    fn render_new(&self, first: bool, messages: &[Message]) -> Result<Vec<u32>, TextError>;
    /// The ids that a generation starts from: what is held, then what [`Speech::render_new`] made.
    fn join(&self, prompt: &Prompt, new: &[u32], history: History) -> Vec<u32>;
    /// What a partner may see of the output that follows a prompt, which may have begun its reasoning.
    fn decode(&self, prompt: &[u32], output: &[u32]) -> String;
    /// Whether a list of tools is shown to the model.
    fn lists_tools(&self) -> bool;
}

impl Speech for TextCodec {
    fn render_new(&self, first: bool, messages: &[Message]) -> Result<Vec<u32>, TextError> {
        self.render_new(first, messages)
    }

    fn join(&self, prompt: &Prompt, new: &[u32], history: History) -> Vec<u32> {
        self.join(prompt, new, history)
    }

    fn decode(&self, prompt: &[u32], output: &[u32]) -> String {
        self.decode(prompt, output)
    }

    fn lists_tools(&self) -> bool {
        self.lists_tools()
    }
}

impl Speech for ChatLog {
    fn render_new(&self, _first: bool, messages: &[Message]) -> Result<Vec<u32>, TextError> {
        if messages.iter().any(|message| message.role == Message::TOOLS) {
            return Err(TextError::Template {
                message: "an agent with engine.kind = \"openai\" calls no tools: take its role out of workflow.tools"
                    .into(),
            });
        }
        Ok(ChatLog::ids(messages))
    }

    fn join(&self, prompt: &Prompt, new: &[u32], _history: History) -> Vec<u32> {
        [&*prompt.held, new].concat()
    }

    /// The server's template is not known here: reasoning is what its text marks.
    fn decode(&self, _prompt: &[u32], output: &[u32]) -> String {
        ChatLog::text(output)
    }

    fn lists_tools(&self) -> bool {
        false
    }
}
