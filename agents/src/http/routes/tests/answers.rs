//! Answers: ids, streams, echoed prompts and stops.

use actix_web::test;

use super::*;

#[tokio::test]
async fn every_answer_is_json_in_openais_shape() {
    let front = front(None);
    let (status, models) = ask(&front, get("/v1/models")).await;
    assert_eq!(
        (status, &models["data"][0]["id"], &models["data"][0]["dyad"]["weights"]),
        (200, &"a".into(), &"1.2".into())
    );
    let (status, chat) = ask(&front, post("/v1/chat/completions", CHAT)).await;
    assert_eq!(
        (status, &chat["choices"][0]["message"]["content"]),
        (200, &"A".into()),
        "{chat}"
    );
    assert_eq!(chat["choices"][0]["dyad"]["spans"][0]["weights"], "1.2");
    for (expected, request) in [
        (404, get("/v1/models/b")),
        (404, get("/")),
        (404, get("/v1/embeddings")),
        (405, get("/v1/chat/completions")),
        (405, post("/v1/models", "{}")),
        (400, post("/v1/completions", "{")),
        (400, post("/v1/completions", r#"{"model": "a", "prompt": ""}"#)),
        (400, post("/v1/completions", r#"{"model": "a", "prompt": [264]}"#)),
        (404, post("/v1/completions", r#"{"model": "b", "prompt": "x"}"#)),
        (400, post("/v1/completions", r#"{"model": "a", "prompt": "x", "n": 3}"#)),
        (413, post("/v1/completions", &"x".repeat(1001))),
        (
            415,
            post("/v1/completions", "{}").insert_header(("content-type", "text/plain")),
        ),
    ] {
        let (status, body) = ask(&front, request).await;
        assert_eq!(status, expected, "{body}");
        assert!(
            body["error"]["message"]
                .as_str()
                .is_some_and(|message| message.len() > 20),
            "{body}"
        );
    }
}

/// Models have more ids than their tokenizers, and untrained ones sample them.
#[tokio::test]
async fn the_ids_of_an_answer_may_go_back_in() {
    let front = front_of(None, vec![261]);
    assert!(front.text.vocab_size() <= 261);
    let asks = |prompt: Value| {
        let body = serde_json::json!({"model": "a", "prompt": prompt, "max_tokens": 2, "echo": true, "return_token_ids": true});
        post("/v1/completions", &body.to_string())
    };
    let (status, answer) = ask(&front, asks(serde_json::json!([65]))).await;
    assert_eq!(
        (status, &answer["choices"][0]["token_ids"][0]),
        (200, &serde_json::json!(261)),
        "{answer}"
    );
    let (status, answer) = ask(&front, asks(serde_json::json!([65, 261]))).await;
    assert_eq!(status, 200, "{answer}");
    assert_eq!(answer["choices"][0]["prompt_token_ids"], serde_json::json!([65, 261]));
    assert_eq!(ask(&front, asks(serde_json::json!([65, 264]))).await.0, 400);
}

#[tokio::test]
async fn a_stream_is_events_and_ends_with_its_mark() {
    let front = front(None);
    let body = r#"{"model": "a", "prompt": ["x", "y"], "stream": true, "stream_options": {"include_usage": true}}"#;
    let app = init_service(App::new().app_data(front.clone()).configure(routes)).await;
    let response: ServiceResponse = call_service(&app, post("/v1/completions", body).to_request()).await;
    assert_eq!(
        response.headers().get("content-type").unwrap(),
        "text/event-stream; charset=utf-8"
    );
    let bytes = test::read_body(response).await;
    let text = std::str::from_utf8(&bytes).unwrap();
    let events: Vec<&str> = text
        .split_terminator("\n\n")
        .map(|event| event.strip_prefix("data: ").unwrap())
        .collect();
    let (done, rest) = events.split_last().unwrap();
    assert_eq!(*done, "[DONE]");
    let (usage, pieces) = rest.split_last().unwrap();
    let usage: Value = serde_json::from_str(usage).unwrap();
    assert_eq!(
        usage["usage"],
        serde_json::json!({"prompt_tokens": 2, "completion_tokens": 2, "total_tokens": 4})
    );
    let mut indices: Vec<u64> = pieces
        .iter()
        .map(|piece| {
            serde_json::from_str::<Value>(piece).unwrap()["choices"][0]["index"]
                .as_u64()
                .unwrap()
        })
        .collect();
    indices.sort_unstable();
    assert_eq!(indices, [0, 1]);
    assert_eq!(front.gate.busy(), 0, "its place is free again");
}

#[tokio::test]
async fn a_prompt_comes_back_before_each_of_its_choices() {
    let front = front(None);
    // The ids are x and the end of a turn.
    for (prompt, echo) in [
        (serde_json::json!("x<|end|>"), "x<|end|>"),
        (serde_json::json!([120, 257]), "x<|end|>"),
    ] {
        let mut body =
            serde_json::json!({"model": "a", "prompt": prompt, "echo": true, "n": 2, "return_token_ids": true});
        let (status, answer) = ask(&front, post("/v1/completions", &body.to_string())).await;
        assert_eq!(status, 200, "{answer}");
        for choice in answer["choices"].as_array().unwrap() {
            assert_eq!(choice["text"], format!("{echo}A"));
            assert_eq!(choice["token_ids"], serde_json::json!([65]));
        }
        body["stream"] = true.into();
        let app = init_service(App::new().app_data(front.clone()).configure(routes)).await;
        let bytes =
            test::read_body(call_service(&app, post("/v1/completions", &body.to_string()).to_request()).await).await;
        let events = std::str::from_utf8(&bytes).unwrap().split_terminator("\n\n");
        let events = events.filter_map(|event| serde_json::from_str::<Value>(event.strip_prefix("data: ")?).ok());
        let mut texts = [String::new(), String::new()];
        for event in events {
            let choice = &event["choices"][0];
            texts[choice["index"].as_u64().unwrap() as usize] += choice["text"].as_str().unwrap();
        }
        assert_eq!(texts, [format!("{echo}A"), format!("{echo}A")]);
    }
}

#[tokio::test]
async fn a_stop_token_ends_an_answer_with_and_without_its_text() {
    let front = front(None);
    for (kept, text) in [(false, ""), (true, "A")] {
        let body = serde_json::json!({"model": "a", "prompt": "x", "stop_token_ids": [9, 65],
            "include_stop_str_in_output": kept, "return_token_ids": true, "max_tokens": 5});
        let (status, answer) = ask(&front, post("/v1/completions", &body.to_string())).await;
        let choice = &answer["choices"][0];
        assert_eq!((status, &choice["text"]), (200, &text.into()), "{answer}");
        assert_eq!(
            (&choice["finish_reason"], &choice["token_ids"]),
            (&"stop".into(), &serde_json::json!([65]))
        );
        assert_eq!(choice["stop_reason"], 65);
    }
}

#[tokio::test]
async fn a_rendered_prompt_is_the_chat_or_a_warning() {
    let mut front = plain_front(None, vec![65]);
    let chat = r#"{"model": "a", "messages": [{"role": "user", "content": "x"}], "return_token_ids": true}"#;
    let messages = [broker::protocol::turn::Message::user("x")];
    let chat_ids = front.text.chat(&messages, true).unwrap();
    let rendered = front.text.spelled(&chat_ids);
    let text = serde_json::json!({"model": "a", "prompt": rendered, "return_token_ids": true}).to_string();
    let plain = Data::new(plain_front(None, vec![65]));
    let (_, answer) = ask(&plain, post("/v1/completions", &text)).await;
    let warning = answer["dyad"]["warning"].as_str().unwrap();
    assert!(
        warning.contains("read as text") && warning.contains("http.control_tokens"),
        "{warning}"
    );
    assert!(plain.warned.load(std::sync::atomic::Ordering::Relaxed));
    let (_, harmless) = ask(&plain, post("/v1/completions", r#"{"model": "a", "prompt": "x"}"#)).await;
    assert!(harmless["dyad"].is_null(), "{harmless}");
    front.control_tokens = true;
    let front = Data::new(front);
    let (_, by_chat) = ask(&front, post("/v1/chat/completions", chat)).await;
    let (_, by_text) = ask(&front, post("/v1/completions", &text)).await;
    assert_eq!(by_text["choices"][0]["prompt_token_ids"], by_chat["prompt_token_ids"]);
    assert!(by_text["dyad"].is_null(), "{by_text}");
}
