//! Bodies that are tasks, and those that are refused.

use super::*;

/// Rows of files are rejected for the same reasons, before an agent's chat template would
/// reject them.
#[test]
fn a_prompt_that_no_run_can_play_is_no_task() {
    for (prompt, why) in [
        ("[]", "prompt is an empty list of messages"),
        (
            r#"[{"role":"user","content":"x"},{"role":"wizard","content":"y"}]"#,
            "prompt[1].role is \"wizard\": write system, user, assistant, tool",
        ),
        (r#"[{"role":"","content":"x"}]"#, "prompt[0].role is \"\""),
        (
            r#"[{"role":"tools","content":"[]"}]"#,
            "the run alone lists the tools that may be called",
        ),
    ] {
        let said = Task::parse(format!(r#"{{"prompt":{prompt}}}"#).as_bytes(), 1000).unwrap_err();
        assert!(said.to_string().contains(why), "{prompt}: {said}");
    }
    let padded =
        r#"{"prompt":[{"role":"user","content":"o3","name":null}],"label":"o3","metadata":null,"source":null}"#;
    assert_eq!(Task::parse(padded.as_bytes(), 1000).unwrap().label, "o3");
    let cut = Task::parse(br#"{"prompt": "cut \ud83d", "label": "x"}"#, 1000).unwrap_err();
    assert!(cut.to_string().contains("errors=\"replace\""), "{cut}");
    let all = Message::ROLES.map(|role| format!(r#"{{"role":"{role}","content":"x"}}"#));
    let line = format!(r#"{{"prompt":[{}]}}"#, all.join(","));
    assert!(Task::parse(line.as_bytes(), 1000).is_ok());
}

#[test]
fn label_keeps_the_digits_of_its_numbers() {
    for (label, kept) in [
        ("12.50", serde_json::json!(12.5)),
        ("911041647744.8803", serde_json::json!("911041647744.8803")),
        ("71875638520892.62", serde_json::json!("71875638520892.62")),
        ("18446744073709551616", serde_json::json!("18446744073709551616")),
        ("[1, 1e400]", serde_json::json!([1, "1e400"])),
    ] {
        let line = format!(r#"{{"prompt":"x","label":{label},"metadata":{{"a":0.10000000000000000555}}}}"#);
        let task = Task::parse(line.as_bytes(), 1000).unwrap();
        assert_eq!(task.label, kept);
        let again = Task::parse(&crate::codec::encode_json(&task), 1000).unwrap();
        assert_eq!(again, task);
    }
    let task = Task::parse(br#"{"prompt":"x","metadata":{"a":0.10000000000000000555}}"#, 1000).unwrap();
    assert_eq!(task.metadata["a"], 0.1);
}

#[test]
fn number_as_an_id_is_its_text() {
    for (id, text) in [
        ("5", "5"),
        ("-5", "-5"),
        ("18446744073709551615", "18446744073709551615"),
        ("\"5\"", "5"),
    ] {
        let line = format!(r#"{{"prompt":"x","id":{id}}}"#);
        let task = Task::parse(line.as_bytes(), 1000).unwrap();
        assert_eq!(task.resolve_id(Some("other"), line.as_bytes()), text);
    }
    for wrong in ["true", "2.5", "12345678901234567890123"] {
        assert_eq!(id_of(&serde_json::from_str(wrong).unwrap()), None, "{wrong}");
    }
}

#[test]
fn text_that_is_not_json_is_called_that_with_the_column() {
    for (line, said) in [
        (
            "not json",
            "expected ident at column 2; write one object, with double quotes",
        ),
        ("{'prompt': 'x'}", "key must be a string at column 2; write one object"),
        (
            r#"{"prompt": "x","#,
            "EOF while parsing a value at column 15; write one object",
        ),
    ] {
        let fault = Task::parse(line.as_bytes(), 1000).unwrap_err().to_string();
        assert!(fault.starts_with(&format!("the body is not JSON: {said}")), "{fault}");
    }
    let nan = Task::parse(br#"{"prompt":"x","label":NaN,"metadata":1e}"#, 1000).unwrap_err();
    assert!(!nan.to_string().contains("double quotes"), "{nan}");
}

#[test]
fn fault_names_the_field_its_value_and_the_form() {
    let long = format!(r#"{{"prompt":"x","metadata":"{}"}}"#, "m".repeat(500));
    for (line, said) in [
        (r#"{"prompt":7}"#, "prompt is 7, neither a text nor a list"),
        (
            r#"{"prompt":[{"role":"user"}]}"#,
            "prompt[0].content is missing: write a text",
        ),
        (
            r#"{"prompt":"x","id":true}"#,
            "id is true: write a text or a whole number",
        ),
        (r#"{"prompt":"x","id":2.5}"#, "id is 2.5: write it as a text"),
        (
            r#"{"prompt":"x","id":[5]}"#,
            "id is [5]: write a text or a whole number",
        ),
        (r#"{"prompt":"x","workflow":3}"#, "workflow is 3: write the name"),
        (r#"{"prompt":"x","metadata":[]}"#, "metadata is []: write an object"),
        (
            r#"{"prompt":"x","tools":"search"}"#,
            "tools is \"search\": write a list",
        ),
        (
            r#"{"prompt":"x","tools":["a",{"nam":"b"}]}"#,
            "tools[1] is {\"nam\":\"b\"}: ",
        ),
        (r#"{"prompt":"x","lable":3}"#, "unknown field `lable`, expected one of"),
        (r#"{"label":3}"#, "missing field `prompt`"),
        (r#"["x"]"#, "it is [\"x\"]: write an object"),
        (&long, "metadata is \"mmm"),
    ] {
        let fault = Task::parse(line.as_bytes(), 1000).unwrap_err().to_string();
        assert!(
            fault.starts_with(&format!("the body is not a task: {said}")),
            "{line}: {fault}"
        );
        assert!(fault.len() < 200, "{fault}");
    }
}
