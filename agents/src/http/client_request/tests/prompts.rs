//! Prompts and messages in the forms that clients send.

use super::*;

#[test]
fn prompts_have_four_forms() {
    let inputs = |prompt: Value| with(Endpoint::Completion, json!({"prompt": prompt})).unwrap().inputs;
    let text = |text: &str| Prompt::Text(text.into());
    assert_eq!(inputs(json!("x")), [text("x")]);
    assert_eq!(inputs(json!(["x", "y"])), [text("x"), text("y")]);
    assert_eq!(inputs(json!([1, 2])), [Prompt::Ids(vec![1, 2])]);
    assert_eq!(
        inputs(json!([[1, 2], [3]])),
        [Prompt::Ids(vec![1, 2]), Prompt::Ids(vec![3])]
    );
    for wrong in [
        json!(null),
        json!([]),
        json!(1),
        json!({}),
        json!([1, "x"]),
        json!([-1]),
        json!([1.5]),
        json!([4_294_967_296_u64]),
        json!([[1], 2]),
    ] {
        assert_eq!(refused(Endpoint::Completion, json!({"prompt": wrong})).0, "prompt");
    }
}

#[test]
fn messages_are_texts_of_three_roles() {
    let messages = json!([
        {"role": "developer", "content": "s"},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"role": "assistant", "content": "c", "refusal": null, "tool_calls": null},
        {"role": "user", "content": ""},
    ]);
    let ask = with(
        Endpoint::Chat,
        json!({"messages": messages, "add_generation_prompt": false}),
    )
    .unwrap();
    let Prompt::Chat { messages, generation } = &ask.inputs[0] else {
        panic!("{ask:?}")
    };
    let said: Vec<_> = messages.iter().map(|m| (m.role.as_str(), m.content.as_str())).collect();
    assert_eq!(
        said,
        [("system", "s"), ("user", "a\nb"), ("assistant", "c"), ("user", "")]
    );
    assert!(!generation);

    let place = |message: Value| refused(Endpoint::Chat, json!({"messages": [message]}));
    let unsupported = Some("unsupported_parameter");
    let image = json!({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]});
    assert_eq!(place(image), ("messages[0].content[0].type".into(), unsupported));
    assert_eq!(
        place(json!({"role": "tool", "content": "x"})),
        ("messages[0].role".into(), unsupported)
    );
    let calls = json!({"role": "assistant", "content": "x", "tool_calls": [{"id": "1"}]});
    assert_eq!(place(calls), ("messages[0].tool_calls".into(), unsupported));
    assert_eq!(
        place(json!({"role": "user", "content": "x", "type": "image"})).0,
        "messages[0].type"
    );
    let silent = json!({"role": "assistant", "content": null, "tool_calls": [{"id": "1"}]});
    assert_eq!(place(silent), ("messages[0].tool_calls".into(), unsupported));
    assert_eq!(
        place(json!({"role": "assistant", "content": null, "refusal": "no"})).0,
        "messages[0].refusal"
    );
    assert_eq!(
        place(json!({"role": "user", "content": "x", "odd": 1})).0,
        "messages[0].odd"
    );
    let unknown = Some("unknown_parameter");
    for field in ["attachments", "documents", "file"] {
        let mut message = json!({"role": "user", "content": "x"});
        message[field] = json!(["a.pdf"]);
        assert_eq!(place(message), (format!("messages[0].{field}"), unknown));
    }
    let part = json!({"type": "text", "text": "x", "file": {"file_id": "f"}});
    assert_eq!(
        place(json!({"role": "user", "content": [part]})),
        ("messages[0].content[0].file".into(), unknown)
    );
    assert_eq!(
        place(json!({"role": "user", "content": "x", "weight": 7})).0,
        "messages[0].weight"
    );
    assert_eq!(place(json!({"role": "user"})).0, "messages[0].content");
    assert_eq!(place(json!({"role": "king", "content": "x"})).0, "messages[0].role");
    assert_eq!(refused(Endpoint::Chat, json!({"messages": []})).0, "messages");
}

#[test]
fn messages_as_clients_send_them_are_their_texts() {
    let plain = json!([
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": ""},
        {"role": "user", "content": "b"},
    ]);
    let dressed = json!([
        {"role": "user", "content": "a", "type": "text", "name": "me", "weight": 1, "odd": {}, "file": ""},
        {"role": "assistant", "content": null, "refusal": null, "annotations": [], "audio": null, "tool_calls": [],
         "function_call": null, "provider_specific_fields": {"refusal": null}, "reasoning_content": ""},
        {"role": "user", "content": [{"type": "text", "text": "b", "cache_control": {"type": "ephemeral"}, "annotations": []}]},
    ]);
    let of = |messages: Value| with(Endpoint::Chat, json!({"messages": messages})).unwrap().inputs;
    assert_eq!(of(dressed), of(plain.clone()));
    assert_eq!(
        of(json!([{"role": "assistant"}])),
        of(json!([{"role": "assistant", "content": ""}]))
    );
}
