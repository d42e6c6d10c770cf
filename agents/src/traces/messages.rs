//! The texts of a turn, in the form of the GenAI conventions.

use broker::protocol::turn::Message;
use serde_json::{Value, json};

/// The most bytes of text in one attribute.
const TEXT: usize = 32 * 1024;

/// Returns `gen_ai.input.messages`: the messages that are new to a seat since its last turn. What
/// exceeds the limit is cut off at the end. Images are left out.
pub(super) fn input(read: &[Message]) -> String {
    let mut room = TEXT;
    let mut messages = Vec::new();
    for message in read {
        let text = head(&message.content, room);
        messages.push(json!({"role": message.role, "parts": parts(text)}));
        room -= text.len();
        if room == 0 || text.len() < message.content.len() {
            break;
        }
    }
    Value::from(messages).to_string()
}

/// Returns `gen_ai.output.messages`: the one message that a turn said.
pub(super) fn output(said: &str, finish: &str) -> String {
    json!([{"role": "assistant", "parts": parts(head(said, TEXT)), "finish_reason": finish}]).to_string()
}

fn parts(text: &str) -> Value {
    json!([{"type": "text", "content": text}])
}

/// Cuts a text at a character.
fn head(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(role: &str, content: String) -> Message {
        Message {
            role: role.into(),
            content,
            images: Vec::new(),
        }
    }

    fn read(text: &str) -> Value {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn read_messages_keep_their_order_and_roles() {
        let messages = [message("system", "Play.".into()), message("user", "o3".into())];
        let expected = json!([
            {"role": "system", "parts": [{"type": "text", "content": "Play."}]},
            {"role": "user", "parts": [{"type": "text", "content": "o3"}]},
        ]);
        assert_eq!(read(&input(&messages)), expected);
        assert_eq!(read(&input(&[])), json!([]));
    }

    #[test]
    fn all_read_messages_together_are_cut_at_the_limit() {
        let fits = message("user", "x".repeat(TEXT - 3));
        let cut = message("user", "é".repeat(TEXT));
        let all = read(&input(&[fits.clone(), cut, message("user", "y".into())]));
        let texts: Vec<&str> = all
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one["parts"][0]["content"].as_str().unwrap())
            .collect();
        assert_eq!(texts, [fits.content.as_str(), "é"], "3 bytes are left: one é");
    }

    #[test]
    fn a_said_text_is_cut_at_a_character() {
        let said = read(&output(&"é".repeat(TEXT), "stop"));
        assert_eq!(said[0]["parts"][0]["content"], "é".repeat(TEXT / 2));
        assert_eq!(
            (&said[0]["role"], &said[0]["finish_reason"]),
            (&json!("assistant"), &json!("stop"))
        );
    }
}
