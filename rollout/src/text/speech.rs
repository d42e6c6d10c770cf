//! The codec that an agent's router needs between messages and ids, for every kind of engine.

use broker::protocol::turn::{Message, TurnPrompt};
use configs::History;

use super::{ChatLog, TextCodec, TextError};

/// Converts messages to ids and ids to text.
pub trait Speech: Send + Sync {
    /// Returns the ids of messages: a whole chat for a seat's `first` turn, else the new messages
    /// only.
    fn render_new(&self, first: bool, messages: &[Message]) -> Result<Vec<u32>, TextError>;
    /// Returns the ids that a generation starts from: the held ids, then those of
    /// [`Speech::render_new`].
    fn join(&self, prompt: &TurnPrompt, new: &[u32], history: History) -> Vec<u32>;
    /// Returns the part of the output that a partner may see. The prompt may have begun the
    /// reasoning.
    fn decode(&self, prompt: &[u32], output: &[u32]) -> String;
    /// Returns each token's own text, also of control tokens; `None` if the ids are not tokens.
    fn pieces(&self, ids: &[u32]) -> Option<Vec<String>>;
    /// Returns true if the model sees a list of tools.
    fn lists_tools(&self) -> bool;
}

impl Speech for TextCodec {
    fn render_new(&self, first: bool, messages: &[Message]) -> Result<Vec<u32>, TextError> {
        self.render_new(first, messages)
    }

    fn join(&self, prompt: &TurnPrompt, new: &[u32], history: History) -> Vec<u32> {
        self.join(prompt, new, history)
    }

    fn decode(&self, prompt: &[u32], output: &[u32]) -> String {
        self.decode(prompt, output)
    }

    fn pieces(&self, ids: &[u32]) -> Option<Vec<String>> {
        let bytes = |id: &u32| String::from_utf8_lossy(&self.bytes(*id).unwrap_or_default()).into_owned();
        Some(ids.iter().map(bytes).collect())
    }

    fn lists_tools(&self) -> bool {
        self.lists_tools()
    }
}

impl Speech for ChatLog {
    fn render_new(&self, _first: bool, messages: &[Message]) -> Result<Vec<u32>, TextError> {
        if messages.iter().any(|message| message.role == Message::TOOLS) {
            return Err(TextError::Template {
                message:
                    "an agent with engine.kind = \"openai\" cannot call tools: remove its role from workflow.tools"
                        .into(),
            });
        }
        Ok(ChatLog::ids(messages))
    }

    fn join(&self, prompt: &TurnPrompt, new: &[u32], _history: History) -> Vec<u32> {
        [&*prompt.held, new].concat()
    }

    /// The server's template is unknown here, so only marks in the text show reasoning.
    fn decode(&self, _prompt: &[u32], output: &[u32]) -> String {
        ChatLog::text(output)
    }

    /// `None`: the ids hold messages, not tokens.
    fn pieces(&self, _ids: &[u32]) -> Option<Vec<String>> {
        None
    }

    fn lists_tools(&self) -> bool {
        false
    }
}
