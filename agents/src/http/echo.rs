//! What the choices of a prompt begin with, where a client wants its prompt back: the text, and where in it each token begins.

use rollout::text::TextCodec;

use super::ask::Input;

/// A prompt that comes back.
#[derive(Debug, Default)]
pub struct Echo {
    /// As it was sent, or what its ids stand for.
    pub text: String,
    /// Of the text.
    pub characters: usize,
    /// In characters, where each token's text begins; only where its log-probs are told.
    pub offsets: Vec<usize>,
}

impl Echo {
    /// Of a prompt and its ids.
    pub fn new(input: &Input, ids: &[u32], logprobs: bool, codec: &TextCodec) -> Self {
        // What a tokenizer puts before a text is no part of it, and a text never becomes a control token.
        let (text, sent) = match input {
            Input::Text(text) => (text.clone(), true),
            Input::Ids(ids) => (codec.spelled(ids), false),
            Input::Chat { .. } => (String::new(), false),
        };
        let bytes = |id: &u32| {
            let hidden = sent && codec.is_control(*id);
            codec.bytes(*id).filter(|_| !hidden).unwrap_or_default()
        };
        let told: &[u32] = if logprobs { ids } else { &[] };
        Self {
            characters: text.chars().count(),
            offsets: offsets(&text, told.iter().map(bytes)),
            text,
        }
    }
}

/// Where tokens of these bytes begin in a text, in characters: one that begins within a character has its place.
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

/// Up to where a token reaches in a text, from `at` on. Of a text that its tokenizer has changed that is not known to the character.
fn reach(text: &str, at: usize, bytes: &[u8]) -> usize {
    let rest = text.as_bytes().get(at..).unwrap_or_default();
    if rest.starts_with(bytes) {
        return at + bytes.len();
    }
    // Tokenizers put a space before a text, or leave out those between words.
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
    fn tokens_begin_at_characters_and_parts_of_one_at_its_own() {
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
    fn spaces_that_a_tokenizer_adds_or_leaves_out_move_nothing() {
        assert_eq!(of("Hello you", &[b" Hello", b" you", b"!"]), [0, 5, 9]);
        assert_eq!(of("o1 o2  o3", &[b"o1", b"o2", b"o3"]), [0, 2, 5]);
        assert_eq!(of("Hello", &[b" ", b"Hello", b"x"]), [0, 0, 5]);
    }

    #[test]
    fn what_a_tokenizer_has_changed_never_leaves_the_text() {
        let of = of("\u{2603}\u{2603}", &[b"x", b"snow", b"man", b"."]);
        assert_eq!(of, [0, 1, 2, 2]);
    }

    #[test]
    fn a_prompt_of_ids_has_its_control_tokens_and_a_text_has_none() {
        let folder = tempfile::tempdir().unwrap();
        rollout::text::make::write_tokenizer(folder.path(), &TokenizerConfig::Bytes).unwrap();
        let codec = TextCodec::open(folder.path()).unwrap();
        let ids = vec![120, 257, 121];
        let echo = Echo::new(&Input::Ids(ids.clone()), &ids, true, &codec);
        assert_eq!((echo.text.as_str(), echo.characters), ("x<|end|>y", 9));
        assert_eq!(echo.offsets, [0, 1, 8]);
        // As if the tokenizer began every text with a token of its own.
        let echo = Echo::new(&Input::Text("xy".into()), &[257, 120, 121], true, &codec);
        assert_eq!(
            (echo.text.as_str(), echo.offsets.as_slice()),
            ("xy", [0, 0, 1].as_slice())
        );
        assert!(
            Echo::new(&Input::Text("xy".into()), &[120, 121], false, &codec)
                .offsets
                .is_empty()
        );
    }
}
