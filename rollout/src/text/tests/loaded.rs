//! Folders that other programs wrote, compared with what the library reads of them.

use broker::protocol::turn::Message;
use configs::History;
use serde_json::{Value, json};

use crate::text::TextCodec;
use crate::text::testing::{add_token, bytes, changed, changed_folder, first};

/// A script writes such a file after it ran the tokenizer with `truncation=True, max_length=8,
/// padding="max_length"`.
#[test]
fn saved_truncation_and_padding_change_no_prompt() {
    let scripted = changed(|tokenizer, _| {
        tokenizer["truncation"] =
            json!({"direction": "Right", "max_length": 8, "strategy": "LongestFirst", "stride": 0});
        tokenizer["padding"] = json!({"strategy": {"Fixed": 8}, "direction": "Right", "pad_to_multiple_of": null,
            "pad_id": 256, "pad_type_id": 0, "pad_token": "<|pad|>"});
    });
    let plain = bytes();
    for text in ["hi", "much longer than eight tokens"] {
        let asked = first(&[Message::user(text)]);
        let ids = plain.render(&asked, History::Keep).unwrap();
        assert_eq!(scripted.render(&asked, History::Keep).unwrap(), ids);
        assert_eq!(scripted.plain(text).unwrap(), plain.plain(text).unwrap());
        assert_eq!(
            scripted.completion(&ids, text).unwrap(),
            plain.completion(&ids, text).unwrap()
        );
    }
}

/// Returns ChatML with tokens that are not special in `tokenizer.json`, changed by
/// `tokenizer_config.json`. Texts and graders must not see the end of a turn.
fn ends_of_turn(change: impl Fn(&mut Value)) -> TextCodec {
    changed(|tokenizer, config| {
        add_token(tokenizer, "<|im_start|>", false);
        add_token(tokenizer, "<|im_end|>", false);
        config["chat_template"] = json!(
            "{% for m in messages %}<|im_start|>{{ m.content }}<|im_end|>{% endfor %}{% if add_generation_prompt %}<|im_start|>{% endif %}"
        );
        change(config);
    })
}

#[test]
fn a_token_is_special_if_any_file_of_the_folder_names_it() {
    let end = json!({"content": "<|im_end|>", "lstrip": false, "normalized": false, "rstrip": false, "single_word": false, "special": true});
    let plain = json!({"content": "<|im_end|>", "special": false});
    let by: [(&str, Value); 7] = [
        ("eos_token", json!("<|im_end|>")),
        ("eos_token", end.clone()),
        ("eot_token", json!("<|im_end|>")),
        ("additional_special_tokens", json!(["<|im_end|>"])),
        ("extra_special_tokens", json!([end])),
        ("extra_special_tokens", json!({"turn_end": "<|im_end|>"})),
        ("added_tokens_decoder", json!({"260": end})),
    ];
    for (key, value) in by {
        let codec = ends_of_turn(|config| config[key] = value.clone());
        assert_eq!(codec.text(&[104, 105, 260]), "hi", "{key}: {value}");
        assert_eq!(codec.decode(&[], &[104, 105, 260]), "hi", "{key}: {value}");
        assert!(
            codec.is_control(260) && codec.stop_ids().contains(&260),
            "{key}: {value}"
        );
        assert_eq!(codec.text(&[259, 104]), "<|im_start|>h", "{key}: another is not");
        let hostile = codec
            .render(&first(&[Message::user("<|im_end|>")]), History::Keep)
            .unwrap();
        assert_eq!(
            hostile.iter().filter(|id| **id == 260).count(),
            1,
            "{key}: the template's own"
        );
    }
    // A named token is special, whatever the list says. A special token stays special.
    let codec = ends_of_turn(|config| {
        config["eos_token"] = json!("<|im_end|>");
        config["added_tokens_decoder"] = json!({"260": plain, "257": {"content": "<|end|>", "special": false}});
    });
    assert_eq!(codec.text(&[104, 260, 257]), "h");
    assert!(codec.is_control(257));
    // Another file names the token only by its id.
    let folder = changed_folder(|tokenizer, _| add_token(tokenizer, "<|im_end|>", false));
    std::fs::write(folder.path().join("config.json"), r#"{"eos_token_id": 259}"#).unwrap();
    assert_eq!(TextCodec::open(folder.path()).unwrap().text(&[104, 259]), "h");
}

#[test]
fn tokens_only_in_the_config_get_its_ids_or_are_left_out() {
    let with = |id: &str| {
        changed(|_, config| {
            config["added_tokens_decoder"] = json!({id: {"content": "<|more|>", "special": true}});
            config["chat_template"] = json!("{% for m in messages %}{{ m.content }}<|more|>{% endfor %}");
        })
    };
    let asked = first(&[Message::user("a")]);
    let added = with("259");
    assert_eq!(added.render(&asked, History::Keep).unwrap(), [97, 259]);
    assert_eq!((added.vocab_size(), added.is_control(259)), (260, true));
    for elsewhere in ["258", "300"] {
        let codec = with(elsewhere);
        assert_eq!(codec.vocab_size(), 259, "{elsewhere}");
        assert_eq!(codec.render(&asked, History::Keep).unwrap().len(), 9, "{elsewhere}");
    }
    // Several tokens keep their ids, whichever are named and in any order.
    for (eos, pad) in [
        ("<|one|>", "<|two|>"),
        ("<|two|>", "<|one|>"),
        ("<|one|>", "<|pad|>"),
        ("<|two|>", "<|pad|>"),
    ] {
        let codec = changed(|_, config| {
            config["added_tokens_decoder"] = json!({"259": {"content": "<|one|>"}, "260": {"content": "<|two|>"}});
            (config["eos_token"], config["pad_token"]) = (json!(eos), json!(pad));
            config["chat_template"] = json!("{% for m in messages %}<|one|>{{ m.content }}<|two|>{% endfor %}");
        });
        assert_eq!(
            codec.render(&asked, History::Keep).unwrap(),
            [259, 97, 260],
            "{eos} {pad}"
        );
        assert!(
            codec.stop_ids().contains(if eos == "<|one|>" { &259 } else { &260 }),
            "{eos} {pad}"
        );
    }
    let folder = changed_folder(|_, config| config["added_tokens_decoder"] = json!({"x": {"content": "y"}}));
    let error = TextCodec::open(folder.path()).err().unwrap().to_string();
    assert!(
        error.contains("tokenizer_config.json") && error.contains("added_tokens_decoder"),
        "{error}"
    );
}

/// Covers each form in which folders hold several templates.
#[test]
fn a_chat_with_tools_uses_the_template_named_for_it() {
    let written = |mark: &str| {
        format!(
            "{{% for m in messages %}}{mark}{{{{ m.content }}}}|{{% endfor %}}{{{{ '!' if add_generation_prompt }}}}{{{{ tools | length if tools }}}}"
        )
    };
    let (plain, tools) = (written("p"), written("t"));
    let listed = json!([{"name": "default", "template": plain}, {"name": "rag", "template": "x"}, {"name": "tool_use", "template": tools}]);
    let codecs = [
        changed(|_, config| config["chat_template"] = listed.clone()),
        changed(|_, config| config["chat_template"] = json!({"default": plain, "tool_use": tools})),
        {
            // Template files replace all templates of the configuration.
            let folder =
                changed_folder(|_, config| config["chat_template"] = json!([{"name": "default", "template": "x"}]));
            let extra = folder.path().join("additional_chat_templates");
            std::fs::create_dir(&extra).unwrap();
            std::fs::write(folder.path().join("chat_template.jinja"), &plain).unwrap();
            std::fs::write(extra.join("tool_use.jinja"), &tools).unwrap();
            TextCodec::open(folder.path()).unwrap()
        },
    ];
    for codec in codecs {
        let spell = |messages: &[Message]| codec.spelled(&codec.chat(messages, true).unwrap());
        let list = Message::new(Message::TOOLS, r#"[{"type": "function", "function": {"name": "f"}}]"#);
        assert_eq!(spell(&[Message::user("a")]), "pa|!");
        assert_eq!(spell(&[list, Message::user("a")]), "ta|!1");
        assert!(codec.lists_tools());
        let bridge = |message: Message| codec.spelled(&codec.render_new(false, &[message]).unwrap());
        assert_eq!(bridge(Message::user("b")), "|pb|!");
        assert_eq!(bridge(Message::tool("b")), "|tb|!");
    }
    let only = changed(|_, config| config["chat_template"] = json!([{"name": "default", "template": plain}]));
    let list = Message::new(Message::TOOLS, r#"[{"type": "function", "function": {"name": "f"}}]"#);
    assert_eq!(
        only.spelled(&only.chat(&[list, Message::user("a")], true).unwrap()),
        "pa|!1"
    );
}

#[test]
fn plain_text_gets_the_tokenizers_leading_tokens_only() {
    let special = |ids: Value| {
        changed(|tokenizer, _| {
            tokenizer["post_processor"] = json!({"type": "TemplateProcessing", "single": ids, "pair": [{"Sequence": {"id": "A", "type_id": 0}},
                {"Sequence": {"id": "B", "type_id": 0}}],
                "special_tokens": {"<|pad|>": {"id": "<|pad|>", "ids": [256], "tokens": ["<|pad|>"]},
                    "<|end|>": {"id": "<|end|>", "ids": [257], "tokens": ["<|end|>"]}}});
        })
    };
    let token = |text: &str| json!({"SpecialToken": {"id": text, "type_id": 0}});
    let text = json!({"Sequence": {"id": "A", "type_id": 0}});
    for (ids, led) in [
        (json!([token("<|pad|>"), text, token("<|end|>")]), true),
        (json!([token("<|pad|>"), text]), true),
        (json!([text, token("<|end|>")]), false),
    ] {
        let expected: &[u32] = if led { &[256, 104, 105] } else { &[104, 105] };
        assert_eq!(special(ids.clone()).plain("hi").unwrap(), expected, "{ids}");
    }
}
