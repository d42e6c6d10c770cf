//! The bytes of a single token, which may be part of a character or begin with a space that
//! decoding would drop.
//!
//! The decoder of a `tokenizer.json` shows which of two alphabets it uses. Byte-level tokenizers
//! have one printable character for each byte (GPT-2's table). SentencePiece's pieces have a mark
//! for a space and `<0xE4>` for a byte.

use std::collections::HashMap;

use serde_json::Value;

use super::make::byte_char;

/// How a vocabulary spells bytes.
#[derive(Debug)]
pub(super) enum Alphabet {
    /// One character for each byte.
    Level(HashMap<char, u8>),
    /// Text, in which `space` stands for a space. With `fallback`, `<0xE4>` is one byte.
    Pieces { space: Option<String>, fallback: bool },
    /// Any other spelling: the token is decoded alone.
    Other,
}

impl Alphabet {
    /// Returns the alphabet of a `tokenizer.json`.
    pub(super) fn of(tokenizer: &Value) -> Self {
        let decoders = decoders(tokenizer);
        let kind = |decoder: &Value| decoder["type"].as_str().unwrap_or_default().to_owned();
        if decoders.iter().any(|decoder| kind(decoder) == "ByteLevel") {
            return Self::Level((0..=255).map(|byte| (byte_char(byte), byte)).collect());
        }
        let (mut space, mut fallback) = (None, false);
        for decoder in decoders {
            match kind(decoder).as_str() {
                "Fuse" | "Strip" => {}
                "ByteFallback" => fallback = true,
                "Metaspace" => space = decoder["replacement"].as_str().map(str::to_owned),
                "Replace" if decoder["content"] == " " && decoder["pattern"]["String"].is_string() => {
                    space = decoder["pattern"]["String"].as_str().map(str::to_owned);
                }
                _ => return Self::Other,
            }
        }
        Self::Pieces { space, fallback }
    }

    /// Returns true if the decoder joins the bytes of all pieces before it reads characters.
    pub(super) fn is_level(&self) -> bool {
        matches!(self, Self::Level(_))
    }

    /// Returns the bytes of a piece of the vocabulary, or `None` if this alphabet does not define
    /// them.
    pub(super) fn bytes(&self, piece: &str) -> Option<Vec<u8>> {
        match self {
            // The decoder keeps a character that is not in the table.
            Self::Level(table) => {
                let bytes: Option<Vec<u8>> = piece.chars().map(|c| table.get(&c).copied()).collect();
                Some(bytes.unwrap_or_else(|| piece.as_bytes().to_vec()))
            }
            Self::Pieces { space, fallback } => {
                if let Some(byte) = one_byte(piece).filter(|_| *fallback) {
                    return Some(vec![byte]);
                }
                let text = space.as_ref().map(|space| piece.replace(space.as_str(), " "));
                Some(text.unwrap_or_else(|| piece.to_owned()).into_bytes())
            }
            Self::Other => None,
        }
    }
}

/// Returns the steps of the decoder.
fn decoders(tokenizer: &Value) -> Vec<&Value> {
    let decoder = &tokenizer["decoder"];
    match decoder["decoders"].as_array() {
        Some(list) => list.iter().collect(),
        None if decoder.is_object() => vec![decoder],
        None => Vec::new(),
    }
}

/// Reads `<0xE4>`.
fn one_byte(piece: &str) -> Option<u8> {
    let digits = piece.strip_prefix("<0x")?.strip_suffix('>')?;
    let hex = digits.len() == 2 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    u8::from_str_radix(digits, 16).ok().filter(|_| hex)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn bytes(decoder: Value, piece: &str) -> Option<Vec<u8>> {
        Alphabet::of(&json!({"decoder": decoder})).bytes(piece)
    }

    #[test]
    fn byte_level_pieces_are_read_by_gpt2s_table() {
        let level = || json!({"type": "ByteLevel"});
        // In GPT-2's vocabulary a space is \u{120}, a line break \u{10A}, and 0xAD \u{143}. 0xE4
        // stands for itself.
        assert_eq!(bytes(level(), "\u{120}Hello"), Some(b" Hello".to_vec()));
        assert_eq!(bytes(level(), "\u{10A}"), Some(vec![b'\n']));
        assert_eq!(bytes(level(), "\u{143}\u{E4}"), Some(vec![0xAD, 0xE4]));
        assert_eq!(bytes(level(), "\u{100}\u{121}\u{142}"), Some(vec![0, 0x7F, 0xA0]));
        assert_eq!(
            bytes(level(), "a b"),
            Some(b"a b".to_vec()),
            "a space is not of the table"
        );
        let sequence = json!({"type": "Sequence", "decoders": [{"type": "Fuse"}, {"type": "ByteLevel"}]});
        assert_eq!(bytes(sequence, "\u{120}"), Some(vec![b' ']));
    }

    #[test]
    fn the_table_has_every_byte_once() {
        let Alphabet::Level(table) = Alphabet::of(&json!({"decoder": {"type": "ByteLevel"}})) else {
            panic!("no table");
        };
        let mut found: Vec<u8> = table.values().copied().collect();
        found.sort_unstable();
        assert_eq!(found, (0..=255).collect::<Vec<u8>>());
    }

    #[test]
    fn sentencepiece_pieces_keep_space_and_bytes() {
        let llama = || {
            json!({"type": "Sequence", "decoders": [
                {"type": "Replace", "pattern": {"String": "\u{2581}"}, "content": " "},
                {"type": "ByteFallback"},
                {"type": "Fuse"},
                {"type": "Strip", "content": " ", "start": 1, "stop": 0},
            ]})
        };
        assert_eq!(bytes(llama(), "\u{2581}Hello"), Some(b" Hello".to_vec()));
        assert_eq!(bytes(llama(), "<0xE4>"), Some(vec![0xE4]));
        assert_eq!(bytes(llama(), "<0x0A>"), Some(vec![b'\n']));
        for text in ["<0x>", "<0xE>", "<0x+4>", "<0xZZ>", "<0xE4", "\u{4F60}"] {
            assert_eq!(bytes(llama(), text), Some(text.as_bytes().to_vec()), "{text}");
        }
        let metaspace = json!({"type": "Metaspace", "replacement": "\u{2581}", "prepend_scheme": "always"});
        assert_eq!(bytes(metaspace.clone(), "\u{2581}a"), Some(b" a".to_vec()));
        assert_eq!(
            bytes(metaspace, "<0xE4>"),
            Some(b"<0xE4>".to_vec()),
            "no byte without a fallback"
        );
    }

    #[test]
    fn unknown_alphabets_give_no_bytes() {
        assert_eq!(bytes(Value::Null, "o3"), Some(b"o3".to_vec()));
        assert_eq!(bytes(json!({"type": "WordPiece", "prefix": "##"}), "##ing"), None);
        let regex = json!({"type": "Replace", "pattern": {"Regex": "_"}, "content": " "});
        assert_eq!(bytes(regex, "_a"), None);
    }
}
