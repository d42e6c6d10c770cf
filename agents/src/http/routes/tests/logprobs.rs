//! Log-probs in OpenAI's shapes.

use actix_web::test;

use super::*;

/// Choices A, B and half a character are equally likely.
#[tokio::test]
async fn the_most_likely_tokens_come_in_openais_two_shapes() {
    let front = front_of(None, vec![66, 195, 65]);
    let logprob = serde_json::json!(-3f32.ln());
    let whole = async |path: &str, body: Value| {
        let (status, answer) = ask(&front, post(path, &body.to_string())).await;
        assert_eq!(status, 200, "{answer}");
        answer["choices"][0].clone()
    };
    let mut counts = Vec::new();
    for seed in 0..8 {
        let body = serde_json::json!({"model": "a", "prompt": "x", "logprobs": 2, "seed": seed});
        let choice = whole("/v1/completions", body).await;
        let logprobs = &choice["logprobs"];
        let (chosen, top) = (&logprobs["tokens"][0], logprobs["top_logprobs"][0].as_object().unwrap());
        assert!(
            ["A", "B", chosen.as_str().unwrap()]
                .iter()
                .all(|text| top[*text] == logprob),
            "{logprobs}"
        );
        assert_eq!(logprobs["token_logprobs"][0], logprob);
        counts.push(top.len());

        let messages = serde_json::json!([{"role": "user", "content": "x"}]);
        let mut body =
            serde_json::json!({"model": "a", "messages": messages, "logprobs": true, "top_logprobs": 3, "seed": seed});
        let choice = whole("/v1/chat/completions", body.clone()).await;
        let content = &choice["logprobs"]["content"];
        assert_eq!(
            content[0]["top_logprobs"],
            serde_json::json!([
                {"token": "A", "logprob": logprob, "bytes": [65]},
                {"token": "B", "logprob": logprob, "bytes": [66]},
                {"token": "token_id:195", "logprob": logprob, "bytes": [195]},
            ])
        );
        body["stream"] = true.into();
        let app = init_service(App::new().app_data(front.clone()).configure(routes)).await;
        let request = post("/v1/chat/completions", &body.to_string()).to_request();
        let bytes = test::read_body(call_service(&app, request).await).await;
        let first = std::str::from_utf8(&bytes).unwrap().split("\n\n").next().unwrap();
        let first: Value = serde_json::from_str(first.strip_prefix("data: ").unwrap()).unwrap();
        assert_eq!(&first["choices"][0]["logprobs"]["content"], content);
    }
    assert!(
        counts.contains(&2) && counts.contains(&3),
        "the chosen token is listed too if it is not among the likely ones: {counts:?}"
    );
    let body = serde_json::json!({"model": "a", "prompt": "x", "logprobs": 0});
    assert_eq!(
        whole("/v1/completions", body).await["logprobs"]["top_logprobs"],
        Value::Null
    );
}

/// The first bytes of characters, which all have the same text alone.
#[tokio::test]
async fn tokens_without_text_are_named_by_id_and_none_is_lost() {
    let front = front_of(None, vec![0xE2, 0xC3]);
    let body = r#"{"model": "a", "prompt": "x", "logprobs": 2}"#;
    let (status, answer) = ask(&front, post("/v1/completions", body)).await;
    assert_eq!(status, 200, "{answer}");
    let logprobs = &answer["choices"][0]["logprobs"];
    let top = logprobs["top_logprobs"][0].as_object().unwrap();
    let mut names: Vec<&str> = top.keys().map(String::as_str).collect();
    names.sort_unstable();
    assert_eq!(names, ["token_id:195", "token_id:226"]);
    let half = |logprob: &Value| (logprob.as_f64().unwrap() + std::f64::consts::LN_2).abs() < 1e-6;
    assert!(top.values().all(half), "{logprobs}");
    assert!(names.contains(&logprobs["tokens"][0].as_str().unwrap()), "{logprobs}");
}

#[tokio::test]
async fn too_many_logprobs_are_rejected_before_generation() {
    let mut long = Arc::try_unwrap(front(None).into_inner()).unwrap_or_else(|_| panic!("shared"));
    long.context = 1 << 20;
    let long = Data::new(long);
    // 20000 * 20 tokens.
    let body = r#"{"model": "a", "prompt": "x", "logprobs": 20, "max_tokens": 20000}"#;
    let (status, answer) = ask(&long, post("/v1/completions", body)).await;
    assert_eq!(
        (status, &answer["error"]["param"]),
        (400, &"logprobs".into()),
        "{answer}"
    );
    let few = r#"{"model": "a", "prompt": "x", "logprobs": 2, "max_tokens": 20000}"#;
    assert_eq!(ask(&long, post("/v1/completions", few)).await.0, 200);
}
