//! Messages in JSON: what is read, what is refused, and by which words.

use super::*;

const RED: &str = "data:image/png;base64,iVBOR";

#[test]
fn text_is_a_text_and_images_keep_their_places() {
    let plain = r#"{"role":"user","content":"hi"}"#;
    let message: Message = serde_json::from_str(plain).unwrap();
    assert_eq!(message, Message::user("hi"));
    assert_eq!(serde_json::to_string(&message).unwrap(), plain);
    let parts = format!(
        r#"{{"role":"user","content":[{{"type":"text","text":"é: "}},{{"type":"image_url","image_url":{{"url":"{RED}"}}}},{{"type":"image_url","image_url":{{"url":"https://x.org/a.png"}}}},{{"type":"text","text":" which?"}}]}}"#
    );
    let message: Message = serde_json::from_str(&parts).unwrap();
    assert_eq!(message.content, "é:  which?");
    assert_eq!(message.images.iter().map(|image| image.at).collect::<Vec<_>>(), [4, 4]);
    assert_eq!(serde_json::to_string(&message).unwrap(), parts);
}

#[test]
fn what_is_no_message_is_refused() {
    for bad in [
        r#"{"role":"user","content":[{"type":"image_url","image_url":{"url":"file:///etc/passwd"}}]}"#,
        r#"{"role":"user","content":[{"type":"image_url","image_url":{"url":"https://x .org"}}]}"#,
        r#"{"role":"user","content":[{"type":"audio","text":"x"}]}"#,
        r#"{"role":"user","content":5}"#,
        r#"{"role":"user","content":"x","images":["https://x.org"]}"#,
    ] {
        assert!(serde_json::from_str::<Message>(bad).is_err(), "{bad}");
    }
}

#[test]
fn padding_and_labels_are_passed_over_and_lost_parts_named() {
    let padded = r#"{"role":"user","content":"x","name":null,"tool_calls":null,"images":[],"tool_call_id":"1"}"#;
    let named = r#"{"role":"user","name":"me","weight":1,"content":[{"type":"text","text":"x","image_url":null}]}"#;
    for passed in [padded, named] {
        let message: Message = serde_json::from_str(passed).unwrap();
        assert_eq!(message, Message::user("x"), "{passed}");
    }
    for content in ["null", "\"x\""] {
        let calls = format!(r#"{{"role":"assistant","content":{content},"tool_calls":[{{"id":"1"}}]}}"#);
        let error = serde_json::from_str::<Message>(&calls).unwrap_err().to_string();
        assert!(error.contains("tool_calls would be lost"), "{error}");
    }
}

#[test]
fn notes_of_data_sets_are_passed_over_and_requests_with_them_refused() {
    for (field, value) in [
        ("weight", json!(2)),
        ("weight", json!(-1)),
        ("weight", json!("1")),
        ("type", json!("question")),
        ("thinking", json!("hm")),
        ("refusal", json!("no")),
        ("reasoning_details", json!([{"text": "hm"}])),
        ("attachments", json!(["a.pdf"])),
        ("tool_call_id", json!("1")),
    ] {
        let mut message = json!({"role": "user", "content": "x"});
        message[field] = value;
        assert_eq!(Message::read(&message), Ok(Message::user("x")), "{message}");
        assert_eq!(Message::read_request(&message).unwrap_err().path, field, "{message}");
    }
}

#[test]
fn text_parts_are_joined_as_they_are_and_in_requests_by_line_breaks() {
    for (texts, joined) in [(["Hello ", "world"], "Hello world"), (["", "x"], "x"), (["x", ""], "x")] {
        let parts = texts.map(|text| json!({"type": "text", "text": text}));
        let message = json!({"role": "user", "content": parts});
        assert_eq!(Message::read(&message), Ok(Message::user(joined)));
        assert_eq!(Message::read_request(&message), Ok(Message::user(texts.join("\n"))));
    }
}

#[test]
fn padding_around_a_text_is_no_image_and_an_empty_text_may_hold_the_place_of_one() {
    for part in [
        json!({"text": "x", "image_url": {"url": null}}),
        json!({"text": "x", "image": {"bytes": null, "path": null}}),
        json!({"text": "x", "image": "", "image_url": []}),
        json!({"type": "text", "text": "x", "image": {"bytes": null}}),
    ] {
        let message = json!({"role": "user", "content": [part]});
        assert_eq!(Message::read(&message), Ok(Message::user("x")), "{message}");
        assert_eq!(Message::read_request(&message), Ok(Message::user("x")), "{message}");
    }
    let place = json!({"role": "user", "content": [{"type": "image", "text": ""}, {"type": "text", "text": "x"}]});
    assert_eq!(Message::read(&place), Ok(Message::user("x")));
    let marked = json!({"role": "user", "content": [{"type": "image", "text": "<image>"}]});
    assert_eq!(Message::read(&marked), Ok(Message::user("<image>")));
    assert_eq!(Message::read_request(&place).unwrap_err().path, "content[0].type");
    let shown = json!({"role": "user", "content": [{"text": "", "image": RED}]});
    assert_eq!(Message::read(&shown), Ok(Message::user("").showing([RED.to_owned()])));
    for part in [
        json!({}),
        json!({"text": null}),
        json!({"txt": "x"}),
        json!({"image_url": {"url": null}}),
    ] {
        let message = json!({"role": "user", "content": [part]});
        for fault in [Message::read(&message), Message::read_request(&message)] {
            let said = "content[0].type is missing: write {\"type\": \"text\", \"text\": ..}";
            assert_eq!(fault.unwrap_err().to_string(), said, "{message}");
        }
    }
}

#[test]
fn requests_are_told_what_they_may_write() {
    let user = |part: serde_json::Value| json!({"role": "user", "content": [part]});
    for (message, kind, said) in [
        (
            json!({"content": "x"}),
            FaultKind::Wrong,
            "role is missing: write system, user or assistant",
        ),
        (
            json!({"role": "king", "content": "x"}),
            FaultKind::Wrong,
            "role is \"king\": write system, user or assistant",
        ),
        (
            json!({"role": "tool", "content": "x", "tool_call_id": "1"}),
            FaultKind::Unsupported,
            "role is not supported",
        ),
        (
            user(json!({"type": "input_audio"})),
            FaultKind::Unsupported,
            "content[0].type is \"input_audio\": a content is of text alone",
        ),
        (
            user(json!({"image_url": {"url": RED}})),
            FaultKind::Unsupported,
            "content[0].image_url is an image",
        ),
        (
            user(json!({"type": "text", "text": "x", "file": {"file_id": "f"}})),
            FaultKind::Unknown,
            "content[0].file is not known here",
        ),
        (
            json!({"role": "user", "content": "x", "documents": [1]}),
            FaultKind::Unknown,
            "documents is not known here",
        ),
        (
            json!({"role": "user", "content": "x", "weight": 7}),
            FaultKind::Wrong,
            "weight is 7: write a number from 0 to 1",
        ),
        (
            json!({"role": "user", "content": "x", "type": "image"}),
            FaultKind::Unsupported,
            "type is \"image\": ",
        ),
    ] {
        let fault = Message::read_request(&message).unwrap_err();
        assert!(fault.to_string().starts_with(said), "{message}: {fault}");
        assert_eq!(fault.kind, kind, "{message}");
    }
}

#[test]
fn messages_of_openai_are_read_as_what_they_say() {
    for (message, role, content) in [
        (json!({"role": "developer", "content": "x"}), "system", "x"),
        (json!({"role": "assistant", "content": null}), "assistant", ""),
        (
            json!({"role": "assistant", "refusal": null, "tool_calls": []}),
            "assistant",
            "",
        ),
        (json!({"role": "user", "content": "x", "weight": null}), "user", "x"),
        (
            json!({"role": "user", "content": "x", "weight": 0.5, "name": "me", "odd": {"a": null}, "file": ""}),
            "user",
            "x",
        ),
        (
            json!({"role": "user", "content": [{"text": "x", "cache_control": {"type": "ephemeral"}}]}),
            "user",
            "x",
        ),
    ] {
        assert_eq!(Message::read(&message), Ok(Message::new(role, content)), "{message}");
        assert_eq!(Message::read_request(&message), Message::read(&message));
    }
}

#[test]
fn faults_name_the_field_its_value_and_the_mend() {
    let user = |content: serde_json::Value| json!({"role": "user", "content": content});
    for (message, said) in [
        (json!(3), "is 3: write an object with role and content"),
        (
            json!({"content": "x"}),
            "role is missing: write system, user, assistant, tool",
        ),
        (user(json!(null)), "content is null: write a text"),
        (json!({"role": "user"}), "content is missing: write a text"),
        (
            json!({"role": "user", "content": "x", "prefix": true}),
            "prefix would be lost",
        ),
        (user(json!(["x"])), "content[0] is \"x\": write {\"type\""),
        (
            user(json!([{"type": "text", "text": 5}])),
            "content[0].text is 5: write a text",
        ),
        (user(json!([{"type": "text"}])), "content[0].text is missing"),
        (user(json!([{"type": "audio"}])), "content[0].type is \"audio\""),
        (
            user(json!([{"type": "image_url", "text": "x", "image_url": RED}])),
            "content[0].text would be lost",
        ),
        (
            user(json!([{"type": "text", "text": "x", "image": RED}])),
            "content[0].image would be lost",
        ),
        (
            user(json!([{"type": "image_url"}])),
            "content[0].image_url is missing: write {\"url\"",
        ),
    ] {
        let fault = Message::read(&message).unwrap_err().to_string();
        assert!(fault.starts_with(said), "{message}: {fault}");
    }
    let shown = user(json!([{"type": "text", "text": "x"}, {"type": "image_url", "image_url": {"url": RED}}]));
    let fault = Message::read_request(&shown).unwrap_err();
    assert_eq!(
        (fault.path.as_str(), fault.kind),
        ("content[1].type", FaultKind::Unsupported)
    );
    let fault = Message::read_chat(&[user(json!("x")), user(json!(5))]).unwrap_err();
    assert!(
        fault
            .within("prompt")
            .to_string()
            .starts_with("prompt[1].content is 5: ")
    );
}
