//! Texts told token by token are the whole text.

use std::sync::LazyLock;

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::text::TextCodec;
use crate::text::make::byte_char;
use crate::text::testing::{bytes, changed};

/// Pieces of several bytes beside the single ones: each ends a character and begins the next.
const STRADDLING: [&[u8]; 6] = [
    &[0xA3, 0xB1, 0xB2],
    &[0xB2, 0xF0],
    &[0xB2, 0xF0, 0xA3],
    &[0xB2, 0xF0, 0xA3, 0xB1],
    &[0xF0, 0xA3],
    &[0xB1, 0xB2, 0xF0],
];

/// A byte tokenizer with [`STRADDLING`] from id 256 on, and control tokens behind them.
static BYTES: LazyLock<TextCodec> = LazyLock::new(|| {
    changed(|tokenizer, _| {
        for (at, piece) in STRADDLING.iter().enumerate() {
            let piece: String = piece.iter().map(|byte| byte_char(*byte)).collect();
            tokenizer["model"]["vocab"][piece] = json!(256 + at);
        }
    })
});

/// Pieces as SentencePiece has them: a byte is `<0xE4>`. With `known`, in a form whose bytes are known.
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

fn told(codec: &TextCodec, ids: &[u32]) -> (Vec<String>, String) {
    let mut stream = codec.stream();
    let told = ids.iter().map(|id| stream.push(*id)).collect();
    (told, stream.rest())
}

fn whole(codec: &TextCodec, ids: &[u32]) -> String {
    let (told, rest) = told(codec, ids);
    told.concat() + &rest
}

#[test]
fn tokens_that_end_a_character_and_begin_the_next_tell_each_as_it_is_complete() {
    let ids = [0xF0, 0xA3, 0xB1, 258, 0xB1, 259, 258, 0xB1, 0xB2, u32::from(b'.')];
    let one = "\u{23C72}";
    let (told, rest) = told(&BYTES, &ids);
    assert_eq!(told, ["", "", "", one, "", one, one, "", one, "."]);
    assert_eq!(rest, "");
    assert_eq!(told.concat(), BYTES.text(&ids));
}

#[test]
fn broken_bytes_cost_no_character_behind_them() {
    for ids in [
        &[0xFF, 0xFF, 0xFF, 0xF0, 0xA3, 0xB1, 0xB2][..],
        &[0xF0, 0xF0, 0xF0, 0xF0, 0xA3, 0xB1, 0xB2],
        &[0xB2, 0xB2, 261, 0xA3, 256, 261],
        // Control tokens are no part of a text.
        &[0xF0, 262, 262, 262, 262, 0xA3, 263, 0xB1, 0xB2],
    ] {
        assert_eq!(whole(&BYTES, ids), BYTES.text(ids), "{ids:?}");
        assert!(whole(&BYTES, ids).contains('\u{23C72}') || ids.contains(&261));
    }
}

proptest! {
    /// Whatever the bytes are and however they are cut.
    #[test]
    fn told_is_the_whole_text_of_any_bytes(ids in prop::collection::vec(
        prop_oneof![256..262u32, prop::sample::select(vec![0xF0u32, 0xA3, 0xB1, 0xB2, 0xE4, 0xFF, 0x41, 262]), 0..300u32], 0..40,
    )) {
        prop_assert_eq!(whole(&BYTES, &ids), BYTES.text(&ids));
    }

    /// Of text that is whole, also where bytes are not known; cut at any place, as it comes from a tokenizer that never saw it.
    #[test]
    fn told_is_the_whole_text_of_any_characters(text in "[\u{20C72}\u{23C72}\u{E9}\u{2603}ab]{0,20}", cuts in prop::collection::vec(1..4usize, 40)) {
        let plain = bytes();
        let ids = plain.plain(&text).unwrap();
        let (told, rest) = told(&plain, &ids);
        prop_assert_eq!(told.concat(), text.clone());
        prop_assert_eq!(rest, "");
        prop_assert_eq!(told.iter().filter(|piece| !piece.is_empty()).count(), text.chars().count());
        // As bytes and as pieces, by turns.
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
