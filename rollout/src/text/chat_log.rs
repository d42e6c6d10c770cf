//! The ids of an agent whose server keeps its tokens to itself: the chat as it was said, one message a line of JSON.
//!
//! Turns hold ids and say what is new behind them. A server that takes messages has no ids, so these stand in their place: four
//! bytes of the log each, filled up with line ends. They are never trained on, and count about as many as tokens would.

use broker::protocol::turn::Message;

use super::{TextError, visible_text};

/// Bytes of one id.
const WIDTH: usize = size_of::<u32>();
/// What fills an id up: a line without a message.
const FILL: u8 = b'\n';

/// Messages as ids.
#[derive(Debug, Clone, Copy)]
pub struct ChatLog;

impl ChatLog {
    /// The ids of messages, to stand behind those of earlier ones.
    #[must_use]
    pub fn ids(messages: &[Message]) -> Vec<u32> {
        messages.iter().flat_map(line).collect()
    }

    /// The messages that ids stand for.
    ///
    /// # Errors
    /// Ids that no log has.
    pub fn messages(ids: &[u32]) -> Result<Vec<Message>, TextError> {
        let bad = |message: String| TextError::Log { message };
        let bytes: Vec<u8> = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
        let text = String::from_utf8(bytes).map_err(|error| bad(error.to_string()))?;
        let lines = text.lines().filter(|line| !line.is_empty());
        lines
            .map(|line| serde_json::from_str(line).map_err(|error| bad(error.to_string())))
            .collect()
    }

    /// What a partner may see of an answer: its text without reasoning; nothing of what is no log.
    #[must_use]
    pub fn text(output: &[u32]) -> String {
        let messages = Self::messages(output).unwrap_or_default();
        let said: String = messages.iter().map(|message| message.content.as_str()).collect();
        visible_text(&said).to_owned()
    }
}

fn line(message: &Message) -> Vec<u32> {
    // A message is made of texts and numbers: it is always JSON, and one line of it.
    let mut bytes = serde_json::to_vec(message).unwrap_or_default();
    bytes.push(FILL);
    bytes.resize(bytes.len().next_multiple_of(WIDTH), FILL);
    let word = |bytes: &[u8]| {
        let mut word = [FILL; WIDTH];
        word.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        u32::from_le_bytes(word)
    };
    bytes.chunks(WIDTH).map(word).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_answer_shows_its_text_without_reasoning_and_damage_shows_nothing() {
        let ids = ChatLog::ids(&[Message::new("assistant", "<think>no</think>\nred\n")]);
        assert_eq!(ChatLog::text(&ids).trim(), "red");
        assert_eq!(ChatLog::text(&ids[1..]), "");
        assert!(ChatLog::messages(&[u32::MAX]).is_err());
    }

    proptest! {
        #[test]
        fn a_log_is_what_was_said_however_it_was_put_together(
            said in prop::collection::vec(("system|user|assistant", "\\PC{0,20}|\n.*", 0usize..3), 0..6),
            cut in 0usize..6,
        ) {
            let messages: Vec<Message> = said
                .iter()
                .map(|(role, text, images)| {
                    Message::new(role.as_str(), text.as_str()).showing((0..*images).map(|n| format!("https://x.org/{n}")))
                })
                .collect();
            let (before, after) = messages.split_at(cut.min(messages.len()));
            let ids = [ChatLog::ids(before), ChatLog::ids(after)].concat();
            prop_assert_eq!(ChatLog::messages(&ids).unwrap(), messages);
        }
    }
}
