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
            json!({"role": "user", "content": "x", "weight": 0.5, "odd": {"a": 1}}),
            "user",
            "x",
        ),
        (
            json!({"role": "user", "content": [{"text": "x"}, {"type": "text", "text": "y"}]}),
            "user",
            "x\ny",
        ),
    ] {
        assert_eq!(Message::read(&message), Ok(Message::new(role, content)), "{message}");
        assert_eq!(Message::read_text(&message), Message::read(&message));
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
            json!({"role": "user", "content": "x", "weight": 7}),
            "weight is 7: write a number from 0 to 1",
        ),
        (
            json!({"role": "user", "content": "x", "type": "image"}),
            "type is \"image\": ",
        ),
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
    let fault = Message::read_text(&shown).unwrap_err();
    assert_eq!((fault.path.as_str(), fault.is_unsupported), ("content[1].type", true));
    let fault = Message::read_chat(&[user(json!("x")), user(json!(5))]).unwrap_err();
    assert!(
        fault
            .within("prompt")
            .to_string()
            .starts_with("prompt[1].content is 5: ")
    );
}
