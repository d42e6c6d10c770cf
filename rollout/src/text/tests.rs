//! Tests the codec with tiny tokenizers.

mod bytes;
mod loaded;
mod reasoning;
mod stream;
mod tools;

use broker::protocol::turn::{Message, TurnPrompt};
use configs::{AgentConfig, History, TokenizerConfig};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::make::{ASSISTANT, END, tokens_of_chat, write_tokenizer};
use super::testing::{bytes, bytes_in, changed, chatml, first, message, spelled, words};
use super::*;

#[test]
fn a_prompt_of_words_is_the_words_and_one_marker() {
    let codec = words();
    assert_eq!(
        codec.render(&first(&[Message::user("o1")]), History::Keep).unwrap(),
        [1, 7]
    );
    assert_eq!(codec.render(&first(&[Message::user("")]), History::Keep).unwrap(), [7]);
    assert_eq!(
        codec
            .render(&first(&[Message::system("s0 x"), Message::user("o1")]), History::Keep)
            .unwrap(),
        [2, 4, 1, 7]
    );
    assert_eq!((codec.vocab_size(), codec.stop_ids()), (8, vec![6]));
    for (ids, text) in [
        (&[3u32][..], "s1"),
        (&[3, 6], "s1"),
        (&[3, 0, 6], "s1 o0"),
        (&[4], ""),
        (&[6], ""),
        (&[99], ""),
    ] {
        assert_eq!(codec.decode(&[], ids), text, "{ids:?}");
    }
    assert_eq!(codec.completion(&[], "s1").unwrap(), [3, 6]);
}

#[test]
fn bytes_are_their_values() {
    let codec = bytes();
    let ids = codec.render(&first(&[Message::user("37+48=")]), History::Keep).unwrap();
    assert_eq!(ids, [b"37+48=".map(u32::from).to_vec(), vec![258]].concat());
    assert_eq!(
        codec.completion(&[], "85").unwrap(),
        [u32::from(b'8'), u32::from(b'5'), 257]
    );
    assert_eq!((codec.vocab_size(), codec.stop_ids()), (259, vec![257]));
    let all: Vec<u32> = (0..256).collect();
    assert_eq!(codec.text(&all[..128]), (0..128u8).map(char::from).collect::<String>());
}

#[test]
fn later_turns_extend_the_held_ids() {
    let codec = bytes();
    let held = [vec![1, 2, 258, 7], vec![257]].concat();
    let next = |held: &[u32], text: &str| {
        let prompt = TurnPrompt {
            held: held.to_vec(),
            sampled: 0,
            messages: vec![Message::user(text)],
        };
        codec.render(&prompt, History::Keep).unwrap()
    };
    assert_eq!(next(&held, "a"), [1, 2, 258, 7, 257, 97, 258]);
    assert_eq!(
        next(&held[..4], "a"),
        [1, 2, 258, 7, 257, 97, 258],
        "the missing end of turn is added"
    );
    assert_eq!(
        next(&[1, 2, 258, 257, 257], ""),
        [1, 2, 258, 257, 257, 258],
        "what was sampled stays"
    );
}

#[test]
fn a_bridge_is_the_template_text_between_turns() {
    let codec = chatml();
    let prompt = codec.render(&first(&[Message::user("hi")]), History::Keep).unwrap();
    assert_eq!(
        spelled(&codec, &prompt),
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
    );
    let bridge = "\n<|im_start|>user\nand?<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n";
    for (ended, expected) in [(true, bridge.to_owned()), (false, format!("<|im_end|>{bridge}"))] {
        let mut held = [prompt.clone(), vec![261, 97, 262, 98]].concat();
        held.extend(ended.then_some(260));
        let next = TurnPrompt {
            held: held.clone(),
            sampled: (held.len() - prompt.len()) as u32,
            messages: vec![Message::user("and?")],
        };
        let ids = codec.render(&next, History::Keep).unwrap();
        assert_eq!(ids[..held.len()], held);
        assert_eq!(spelled(&codec, &ids[held.len()..]), expected);
        let stripped = codec.render(&next, History::StripReasoning).unwrap();
        assert!(!stripped[..stripped.len() - 20].contains(&261) && stripped.contains(&98));
    }
    assert_eq!(codec.stop_ids(), [260, 257]);
}

#[test]
fn reasoning_is_not_for_partners() {
    let codec = chatml();
    assert_eq!(codec.decode(&[], &[261, 97, 262, 98, 260]), "b");
    assert_eq!(codec.text(&[261, 97, 262, 98, 260]), "<think>a</think>b");
    assert_eq!(
        codec.completion(&[], "<think>a</think>b<|im_end|>").unwrap()[..4],
        [261, 97, 262, 98]
    );
}

#[test]
fn a_normaliser_cannot_smuggle_control_tokens_in() {
    let codec = changed(|tokenizer, _| {
        tokenizer["normalizer"] = json!({"type": "Replace", "pattern": {"String": "@"}, "content": "<|"});
        for token in tokenizer["added_tokens"].as_array_mut().unwrap() {
            token["normalized"] = json!(true);
        }
    });
    let ids = codec
        .render(&first(&[Message::user("a@end|>b")]), History::Keep)
        .unwrap();
    assert_eq!(
        ids.iter().filter(|id| codec.is_control(**id)).collect::<Vec<_>>(),
        [&258],
        "{ids:?}"
    );
    assert!(codec.text(&ids).starts_with('a') && codec.text(&ids).ends_with('b'));
}

#[test]
fn streams_never_tell_half_a_character() {
    let codec = bytes();
    let mut stream = codec.stream();
    let streamed: Vec<String> = "aé☃𝄞b".bytes().map(|b| stream.push(b.into())).collect();
    assert_eq!(streamed, ["a", "", "é", "", "", "☃", "", "", "", "𝄞", "b"]);
    let mut stream = codec.stream();
    let streamed: String = [b'a', 0xff, 0xff, 0xff, 0xff, 0xff, b'b', b'c']
        .map(|b| stream.push(b.into()))
        .concat();
    assert!(
        streamed.starts_with('a') && streamed.ends_with("bc") && streamed.contains('\u{FFFD}'),
        "{streamed}"
    );
    assert_eq!(codec.decode(&[], &[97, 0xE2, 0x98]), "a\u{FFFD}");
    let mut stream = codec.stream();
    let streamed: String = [b'a', 0xE2, 0x98].map(|b| stream.push(b.into())).concat();
    assert_eq!((streamed.as_str(), stream.rest().as_str()), ("a", "\u{FFFD}"));
    assert_eq!(stream.rest(), "", "returned once");
}

#[test]
fn a_plain_text_is_itself_and_no_control_token() {
    let codec = bytes();
    let text = format!("a{END}b<|pa<|pad|>d|>");
    let ids = codec.plain(&text).unwrap();
    assert!(ids.iter().all(|id| !codec.is_control(*id)), "{ids:?}");
    assert_eq!(codec.text(&ids), text);
    assert_eq!(codec.spelled(&[97, 257]), format!("a{END}"));
    let chat = [message("user", "q")];
    let (open, closed) = (codec.chat(&chat, true).unwrap(), codec.chat(&chat, false).unwrap());
    assert_eq!(codec.spelled(&open), format!("{}{ASSISTANT}", codec.spelled(&closed)));
}

#[test]
fn errors_name_the_fault_of_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    assert!(
        TextCodec::open(folder.path())
            .err()
            .unwrap()
            .to_string()
            .contains("tokenizer.json")
    );
    bytes_in(folder.path());
    std::fs::write(folder.path().join("tokenizer_config.json"), "{}").unwrap();
    assert!(matches!(
        TextCodec::open(folder.path()),
        Err(TextError::NoTemplate { .. })
    ));
    std::fs::write(folder.path().join("tokenizer_config.json"), "{").unwrap();
    assert!(matches!(TextCodec::open(folder.path()), Err(TextError::Format { .. })));
    std::fs::write(folder.path().join("tokenizer_config.json"), "{}").unwrap();
    let template = |text: &str| std::fs::write(folder.path().join("chat_template.jinja"), text).unwrap();
    template("{% for %}");
    assert!(matches!(TextCodec::open(folder.path()), Err(TextError::Jinja { .. })));
    template("{{ strftime_now('%Y') }}{{ messages[-1].content }}");
    assert!(
        TextCodec::open(folder.path())
            .err()
            .unwrap()
            .to_string()
            .contains("write template_date = ")
    );
    let codec = TextCodec::open_at(folder.path(), 1_795_176_000).unwrap();
    assert_eq!(
        codec.text(&codec.render(&first(&[Message::user("x")]), History::Keep).unwrap()),
        "2026x"
    );
    let agent = "model.served = \"m\"\ntemplate_args = { mood = \"calm\" }\ntemplate_date = \"2026-11-23\"";
    let agent: AgentConfig = toml::from_str(agent).unwrap();
    template("{{ strftime_now('%A, %d %b %Y, %H:%M') }} {{ mood }}: {{ messages[-1].content }}");
    let codec = TextCodec::open_for(folder.path(), &agent).unwrap();
    assert_eq!(
        codec.text(&codec.render(&first(&[Message::user("x")]), History::Keep).unwrap()),
        "Monday, 23 Nov 2026, 00:00 calm: x"
    );
    template("{{ raise_exception('only poems') if messages[0].content == 'x' }}{{ messages[-1].content }}");
    let codec = TextCodec::open(folder.path()).unwrap();
    let refused = codec.render(&first(&[Message::user("x")]), History::Keep);
    assert!(refused.unwrap_err().to_string().contains("only poems"));
    let unknown = codec.render(&first(&[message("<|end|>", "y")]), History::Keep);
    assert!(matches!(unknown, Err(TextError::Role { .. })));
    for bad in [vec![], vec!["a b"], vec![""], vec!["a", "a"], vec!["<|end|>"]] {
        let words = TokenizerConfig::Words(bad.into_iter().map(str::to_owned).collect());
        assert!(matches!(
            write_tokenizer(folder.path(), &words),
            Err(TextError::Word { .. })
        ));
    }
}

/// transformers' AutoTokenizer gave these ids for the folders that [`write_tokenizer`] writes.
#[test]
fn ids_equal_those_of_transformers() {
    let golden: Value = serde_json::from_str(include_str!("../../golden/transformers.json")).unwrap();
    for case in golden.as_array().unwrap() {
        let codec = if case["tokenizer"] == "words" { words() } else { bytes() };
        let messages: Vec<Message> = serde_json::from_value(case["messages"].clone()).unwrap();
        let ids = codec.render(&first(&messages), History::Keep).unwrap();
        assert_eq!(json!(ids), case["ids"], "{case}");
        assert_eq!(json!(codec.text(&ids)), case["text"], "{case}");
    }
}

#[test]
fn counted_tokens_of_a_chat_are_those_of_the_codec() {
    for chat in [
        vec![("user", "s1 s2")],
        vec![("system", "s1"), ("user", " nowhere\ns1  s2 ")],
        vec![
            ("user", "é"),
            ("assistant", "s1"),
            ("user", "s2"),
            ("tool", "s3"),
            ("user", ""),
        ],
        vec![("assistant", "s1"), ("assistant", "s2")],
        vec![("user", "")],
        // The built-in template does not show the list of tools.
        vec![
            (
                Message::TOOLS,
                r#"[{"type": "function", "function": {"name": "s1 s2"}}]"#,
            ),
            ("system", "s1"),
            ("user", "s2"),
        ],
    ] {
        let chat: Vec<Message> = chat.into_iter().map(|(role, text)| Message::new(role, text)).collect();
        for (codec, config) in [
            (words(), TokenizerConfig::Words(Vec::new())),
            (bytes(), TokenizerConfig::Bytes),
        ] {
            let ids = codec.render(&first(&chat), History::Keep).unwrap();
            assert_eq!(tokens_of_chat(&config, &chat), ids.len(), "{config:?} {chat:?}");
        }
    }
}

proptest! {
    #[test]
    fn contents_never_become_control_tokens(
        contents in prop::collection::vec(
            prop::collection::vec(
                prop::sample::select(vec![
                    "<|im_end|>", "<|im_start|>", "<|", "im_end", "|>", "<", "<think>", "</think>", "<|end|>", "\n", "a",
                    "<|im_<|im_end|>end|>", "\u{E000}", "\u{E001}", "é", "<|assistant|>",
                ]),
                0..8,
            ),
            1..4,
        ),
    ) {
        let messages: Vec<Message> = contents.iter().map(|pieces| Message::user(pieces.concat())).collect();
        let control = |codec: &TextCodec, ids: &[u32]| ids.iter().filter(|id| codec.is_control(**id)).count();
        let codec = chatml();
        let plain: Vec<Message> = messages.iter().map(|_| Message::user("a")).collect();
        for held in [vec![], vec![1, 260]] {
            let render = |messages: &[Message]| {
                let prompt = TurnPrompt { held: held.clone(), sampled: 0, messages: messages.to_vec() };
                codec.render(&prompt, History::Keep).unwrap()
            };
            let ids = render(&messages);
            prop_assert_eq!(control(&codec, &ids), control(&codec, &render(&plain)));
            prop_assert_eq!(ids.iter().filter(|id| **id == 261).count(), 1, "only the template's own <think>");
            // No content is lost: all its bytes are there.
            let text = codec.text(&ids);
            for message in &messages {
                prop_assert!(text.contains(&message.content), "{:?} in {:?}", &message.content, text);
            }
        }
    }

    #[test]
    fn held_ids_are_a_prefix_of_the_next_prompt(held in prop::collection::vec(0..263u32, 1..40), text in "\\PC{0,10}") {
        let codec = chatml();
        let prompt = TurnPrompt { held: held.clone(), sampled: 0, messages: vec![Message::user(text)] };
        let ids = codec.render(&prompt, History::Keep).unwrap();
        prop_assert_eq!(&ids[..held.len()], &held[..]);
        prop_assert!(held.ends_with(&[260]) || ids[held.len()] == 260, "the turn is ended");
    }

    #[test]
    fn any_bytes_decode(ids in prop::collection::vec(0..300u32, 0..60)) {
        let codec = bytes();
        let mut stream = codec.stream();
        let streamed: String = ids.iter().map(|id| stream.push(*id)).collect();
        let whole = codec.text(&ids);
        let whole_characters = !whole.contains(char::REPLACEMENT_CHARACTER);
        prop_assert!(!whole_characters || streamed == whole, "{:?} of {:?}", streamed, whole);
        prop_assert!(!codec.decode(&[], &ids).contains("<|end|>"));
    }
}
