//! The text that the choices of a prompt begin with where a client wants its prompt back, and the
//! position of each token in it.

use rollout::text::TextCodec;

use super::client_request::Prompt;

/// A prompt that is sent back.
#[derive(Debug, Default)]
pub struct Echo {
    /// The prompt as it was sent, or the text of its ids.
    pub text: String,
    /// The length of the text, in characters.
    pub characters: usize,
    /// The position of each token's text, in characters; empty unless its log-probs are sent.
    pub offsets: Vec<usize>,
}

impl Echo {
    /// Builds the echo of a prompt with these ids.
    pub fn new(input: &Prompt, ids: &[u32], logprobs: bool, codec: &TextCodec) -> Self {
        // A tokenizer's prefix is no part of the client's text.
        let (text, sent) = match input {
            Prompt::Text(text) => (text.clone(), true),
            Prompt::Ids(ids) => (codec.spelled(ids), false),
            Prompt::Chat { .. } => (String::new(), false),
        };
        let prefix = if sent { unspelled(ids, &text, codec) } else { 0 };
        let bytes = |(at, id): (usize, &u32)| codec.bytes(*id).filter(|_| at >= prefix).unwrap_or_default();
        let scored: &[u32] = if logprobs { ids } else { &[] };
        Self {
            characters: text.chars().count(),
            offsets: offsets(&text, scored.iter().enumerate().map(bytes)),
            text,
        }
    }
}

/// Returns the number of control tokens that the tokenizer put before a text.
fn unspelled(ids: &[u32], text: &str, codec: &TextCodec) -> usize {
    let control = ids.iter().take_while(|id| codec.is_control(**id)).count();
    // The text itself may begin with control tokens.
    let spells = |from: &usize| codec.spelled(&ids[*from..]) == text;
    (0..control).find(spells).unwrap_or(control)
}

/// The positions of tokens with these bytes in a text, in characters. A token that begins within a
/// character has that character's position.
fn offsets(text: &str, tokens: impl Iterator<Item = Vec<u8>>) -> Vec<usize> {
    let (mut at, mut characters) = (0, 0);
    let place = |bytes: Vec<u8>| {
        let (begins, end) = (characters, reach(text, at, &bytes));
        characters += (at + 1..=end).filter(|place| text.is_char_boundary(*place)).count();
        at = end;
        begins
    };
    tokens.map(place).collect()
}

/// The byte position where a token that starts at `at` ends in a text. If the tokenizer has changed
/// the text, the position is an estimate.
fn reach(text: &str, at: usize, bytes: &[u8]) -> usize {
    let rest = text.as_bytes().get(at..).unwrap_or_default();
    if rest.starts_with(bytes) {
        return at + bytes.len();
    }
    // Some tokenizers put a space before a text, or drop spaces between words.
    let spaces = rest.iter().take_while(|byte| **byte == b' ').count();
    let word = bytes.strip_prefix(b" ").unwrap_or(bytes);
    if rest[spaces..].starts_with(word) {
        return at + spaces + word.len();
    }
    let end = (at + bytes.len()).min(text.len());
    (end..text.len())
        .find(|place| text.is_char_boundary(*place))
        .unwrap_or(text.len())
}

#[cfg(test)]
mod tests {
    use configs::TokenizerConfig;

    use super::*;

    fn of(text: &str, tokens: &[&[u8]]) -> Vec<usize> {
        offsets(text, tokens.iter().map(|bytes| bytes.to_vec()))
    }

    #[test]
    fn tokens_within_a_character_start_where_it_starts() {
        let snow = "\u{2603}".as_bytes();
        assert_eq!(
            of("a\u{2603}b", &[b"a", &snow[..1], &snow[1..2], &snow[2..], b"b"]),
            [0, 1, 1, 1, 2]
        );
        assert_eq!(
            of("\u{e9}\u{2603} x", &["\u{e9}\u{2603}".as_bytes(), b" x", b""]),
            [0, 2, 4]
        );
    }

    #[test]
    fn spaces_that_a_tokenizer_adds_or_drops_keep_positions() {
        assert_eq!(of("Hello you", &[b" Hello", b" you", b"!"]), [0, 5, 9]);
        assert_eq!(of("o1 o2  o3", &[b"o1", b"o2", b"o3"]), [0, 2, 5]);
        assert_eq!(of("Hello", &[b" ", b"Hello", b"x"]), [0, 0, 5]);
    }

    #[test]
    fn positions_of_changed_text_stay_within_the_text() {
        let of = of("\u{2603}\u{2603}", &[b"x", b"snow", b"man", b"."]);
        assert_eq!(of, [0, 1, 2, 2]);
    }

    #[test]
    fn only_a_prompt_of_ids_shows_control_tokens() {
        let folder = tempfile::tempdir().unwrap();
        rollout::text::make::write_tokenizer(folder.path(), &TokenizerConfig::Bytes).unwrap();
        let codec = TextCodec::open(folder.path()).unwrap();
        let ids = vec![120, 257, 121];
        let echo = Echo::new(&Prompt::Ids(ids.clone()), &ids, true, &codec);
        assert_eq!((echo.text.as_str(), echo.characters), ("x<|end|>y", 9));
        assert_eq!(echo.offsets, [0, 1, 8]);
        // Simulates a tokenizer that begins every text with an extra token.
        let echo = Echo::new(&Prompt::Text("xy".into()), &[257, 120, 121], true, &codec);
        assert_eq!(
            (echo.text.as_str(), echo.offsets.as_slice()),
            ("xy", [0, 0, 1].as_slice())
        );
        assert!(
            Echo::new(&Prompt::Text("xy".into()), &[120, 121], false, &codec)
                .offsets
                .is_empty()
        );
    }
}
