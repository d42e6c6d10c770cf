//! The bytes of single tokens.

use proptest::prelude::*;
use serde_json::json;

use crate::text::testing::{add_token, bytes, changed, chatml, words};

#[test]
fn a_token_has_bytes_of_its_own_whatever_its_text() {
    let codec = chatml();
    for byte in 0..=255u8 {
        assert_eq!(codec.bytes(u32::from(byte)), Some(vec![byte]));
    }
    let end = codec.plain("<|im_end|>").unwrap();
    assert_eq!(
        end.iter().flat_map(|id| codec.bytes(*id).unwrap()).collect::<Vec<u8>>(),
        b"<|im_end|>",
        "written out, for a text has no control tokens"
    );
    let control = codec.stop_ids()[0];
    assert_eq!(codec.bytes(control), Some(b"<|im_end|>".to_vec()));
    assert_eq!(codec.bytes(codec.vocab_size() as u32), None);
    let words = words();
    assert_eq!(words.bytes(2), Some(b"s0".to_vec()));
}

/// The decoder also reads SentencePiece's mark as a space there.
#[test]
fn added_tokens_have_the_bytes_of_their_text() {
    let codec = changed(|tokenizer, _| {
        tokenizer["decoder"] = json!({"type": "Replace", "pattern": {"String": "\u{2581}"}, "content": " "});
        add_token(tokenizer, "<begin\u{2581}of\u{2581}text>", true);
        add_token(tokenizer, "\u{2581}\u{2581}", false);
    });
    let ids = codec.vocab_size() as u32 - 2..codec.vocab_size() as u32;
    for (id, text) in ids.zip(["<begin of text>", "  "]) {
        assert_eq!(codec.bytes(id), Some(text.as_bytes().to_vec()));
        assert_eq!(codec.spelled(&[id]), text);
    }
}

proptest! {
    #[test]
    fn token_bytes_join_to_the_bytes_of_the_text(text in "\\PC{0,40}") {
        let codec = bytes();
        let ids = codec.plain(&text).unwrap();
        let together: Vec<u8> = ids.iter().flat_map(|id| codec.bytes(*id).unwrap()).collect();
        prop_assert_eq!(together, text.into_bytes());
    }
}
