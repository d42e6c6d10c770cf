//! The ids of an agent with a server that does not report tokens: the chat as text, one JSON
//! message per line.
//!
//! Turns hold ids and send what follows them. A server that takes messages has no ids, so each id
//! holds four bytes of the log, padded with line breaks. These ids are never trained on, and there
//! are about as many as tokens.

use broker::protocol::turn::Message;

use super::{TextError, visible_text};

/// The number of bytes in one id.
const WIDTH: usize = size_of::<u32>();
/// Pads the last id. An empty line is not a message.
const FILL: u8 = b'\n';

/// Converts messages to ids and back.
#[derive(Debug, Clone, Copy)]
pub struct ChatLog;

impl ChatLog {
    /// Returns the ids of messages, to append to those of earlier messages.
    #[must_use]
    pub fn ids(messages: &[Message]) -> Vec<u32> {
        messages.iter().flat_map(line).collect()
    }

    /// Returns the messages that ids stand for.
    ///
    /// # Errors
    /// Fails if the ids are not a log.
    pub fn messages(ids: &[u32]) -> Result<Vec<Message>, TextError> {
        let bad = |message: String| TextError::Log { message };
        let bytes: Vec<u8> = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
        let text = String::from_utf8(bytes).map_err(|error| bad(error.to_string()))?;
        let lines = text.lines().filter(|line| !line.is_empty());
        lines
            .map(|line| serde_json::from_str(line).map_err(|error| bad(error.to_string())))
            .collect()
    }

    /// Returns the text of an answer without reasoning, for a partner. Damaged logs give an empty
    /// text.
    #[must_use]
    pub fn text(output: &[u32]) -> String {
        let messages = Self::messages(output).unwrap_or_default();
        let said: String = messages.iter().map(|message| message.content.as_str()).collect();
        visible_text(&said).to_owned()
    }
}

fn line(message: &Message) -> Vec<u32> {
    // A message holds only text and numbers, so it is always one line of JSON.
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
    fn an_answer_shows_no_reasoning_and_a_damaged_log_no_text() {
        let ids = ChatLog::ids(&[Message::new("assistant", "<think>no</think>\nred\n")]);
        assert_eq!(ChatLog::text(&ids).trim(), "red");
        assert_eq!(ChatLog::text(&ids[1..]), "");
        assert!(ChatLog::messages(&[u32::MAX]).is_err());
    }

    proptest! {
        #[test]
        fn a_log_keeps_all_messages_in_any_grouping(
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
