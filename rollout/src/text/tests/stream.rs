//! Texts that are streamed token by token equal the whole text.

use std::sync::LazyLock;

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::text::TextCodec;
use crate::text::make::byte_char;
use crate::text::testing::{bytes, changed};

/// Pieces of several bytes next to the single ones. Each ends a character and begins the next.
const STRADDLING: [&[u8]; 6] = [
    &[0xA3, 0xB1, 0xB2],
    &[0xB2, 0xF0],
    &[0xB2, 0xF0, 0xA3],
    &[0xB2, 0xF0, 0xA3, 0xB1],
    &[0xF0, 0xA3],
    &[0xB1, 0xB2, 0xF0],
];

/// A byte tokenizer with [`STRADDLING`] from id 256 on, and control tokens after them.
static BYTES: LazyLock<TextCodec> = LazyLock::new(|| {
    changed(|tokenizer, _| {
        for (at, piece) in STRADDLING.iter().enumerate() {
            let piece: String = piece.iter().map(|byte| byte_char(*byte)).collect();
            tokenizer["model"]["vocab"][piece] = json!(256 + at);
        }
    })
});

/// Returns a codec with SentencePiece's pieces: a byte is `<0xE4>`. With `known`, the bytes of the
/// pieces are known.
fn pieces(known: bool) -> TextCodec {
    changed(|tokenizer, _| {
        let mut vocabulary: serde_json::Map<String, Value> =
            (0..=255).map(|byte| (format!("<0x{byte:02X}>"), byte.into())).collect();
        for (at, piece) in ["\u{2581}a", "\u{20C72}", "b"].iter().enumerate() {
            vocabulary.insert((*piece).into(), (256 + at).into());
        }
        tokenizer["model"]["vocab"] = vocabulary.into();
        let space = if known {
            json!({"String": "\u{2581}"})
        } else {
            json!({"Regex": "\u{2581}"})
        };
        tokenizer["decoder"] = json!({"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": space, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}]});
        tokenizer["pre_tokenizer"] = Value::Null;
    })
}

static PIECES: LazyLock<[TextCodec; 2]> = LazyLock::new(|| [pieces(true), pieces(false)]);

fn streamed(codec: &TextCodec, ids: &[u32]) -> (Vec<String>, String) {
    let mut stream = codec.stream();
    let streamed = ids.iter().map(|id| stream.push(*id)).collect();
    (streamed, stream.rest())
}

fn whole(codec: &TextCodec, ids: &[u32]) -> String {
    let (streamed, rest) = streamed(codec, ids);
    streamed.concat() + &rest
}

#[test]
fn straddling_tokens_return_each_character_when_complete() {
    let ids = [0xF0, 0xA3, 0xB1, 258, 0xB1, 259, 258, 0xB1, 0xB2, u32::from(b'.')];
    let one = "\u{23C72}";
    let (streamed, rest) = streamed(&BYTES, &ids);
    assert_eq!(streamed, ["", "", "", one, "", one, one, "", one, "."]);
    assert_eq!(rest, "");
    assert_eq!(streamed.concat(), BYTES.text(&ids));
}

#[test]
fn broken_bytes_cost_no_character_behind_them() {
    for ids in [
        &[0xFF, 0xFF, 0xFF, 0xF0, 0xA3, 0xB1, 0xB2][..],
        &[0xF0, 0xF0, 0xF0, 0xF0, 0xA3, 0xB1, 0xB2],
        &[0xB2, 0xB2, 261, 0xA3, 256, 261],
        // Control tokens are not part of a text.
        &[0xF0, 262, 262, 262, 262, 0xA3, 263, 0xB1, 0xB2],
    ] {
        assert_eq!(whole(&BYTES, ids), BYTES.text(ids), "{ids:?}");
        assert!(whole(&BYTES, ids).contains('\u{23C72}') || ids.contains(&261));
    }
}

proptest! {
    /// Holds for any bytes, cut anywhere.
    #[test]
    fn any_bytes_stream_to_the_whole_text(ids in prop::collection::vec(
        prop_oneof![256..262u32, prop::sample::select(vec![0xF0u32, 0xA3, 0xB1, 0xB2, 0xE4, 0xFF, 0x41, 262]), 0..300u32], 0..40,
    )) {
        prop_assert_eq!(whole(&BYTES, &ids), BYTES.text(&ids));
    }

    /// Holds for valid text, also if the bytes of tokens are unknown. The cuts are arbitrary,
    /// because tokens may come from another tokenizer.
    #[test]
    fn any_characters_stream_to_the_whole_text(text in "[\u{20C72}\u{23C72}\u{E9}\u{2603}ab]{0,20}", cuts in prop::collection::vec(1..4usize, 40)) {
        let plain = bytes();
        let ids = plain.plain(&text).unwrap();
        let (streamed, rest) = streamed(&plain, &ids);
        prop_assert_eq!(streamed.concat(), text.clone());
        prop_assert_eq!(rest, "");
        prop_assert_eq!(streamed.iter().filter(|piece| !piece.is_empty()).count(), text.chars().count());
        // Alternates bytes and pieces.
        let mut ids = Vec::new();
        for (c, cut) in text.chars().zip(&cuts) {
            let piece = match (c, cut) {
                ('a', 1) => Some(256),
                ('\u{20C72}', 1 | 2) => Some(257),
                ('b', 1) => Some(258),
                _ => None,
            };
            match piece {
                Some(id) => ids.push(id),
                None => ids.extend(c.to_string().bytes().map(u32::from)),
            }
        }
        for codec in &*PIECES {
            prop_assert_eq!(whole(codec, &ids), codec.text(&ids));
        }
    }
}
