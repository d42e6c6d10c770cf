use std::sync::atomic::AtomicBool;

use actix_web::dev::ServiceResponse;
use actix_web::test::{TestRequest, call_service, init_service, read_body_json};
use actix_web::{App, test};
use broker::ids::RunId;
use configs::{SamplingConfig, TokenizerConfig};
use serde_json::Value;

use super::super::gate::{FrontPhase, RequestGate};
use super::super::rates::FrontRates;
use super::*;
use crate::base::secret::Token;
use crate::engine::scripted::ScriptedEngine;

const SECRET: &str = "0123456789abcdef";
const CHAT: &str = r#"{"model": "a", "messages": [{"role": "user", "content": "x"}]}"#;

pub(super) fn front(token: Option<&str>) -> Data<Front> {
    front_of(token, vec![65])
}

/// A front with an engine that answers with one of these tokens.
pub(super) fn front_of(token: Option<&str>, choices: Vec<u32>) -> Data<Front> {
    Data::new(plain_front(token, choices))
}

fn plain_front(token: Option<&str>, choices: Vec<u32>) -> Front {
    let folder = tempfile::tempdir().unwrap();
    rollout::text::make::write_tokenizer(folder.path(), &TokenizerConfig::Bytes).unwrap();
    Front {
        agent: "a".parse().unwrap(),
        run: RunId::new("r").unwrap(),
        engine: ScriptedEngine::new(choices, broker::ids::WeightVersion { lineage: 1, step: 2 }),
        text: Arc::new(rollout::text::TextCodec::open(folder.path()).unwrap()),
        vocab: 264,
        sampling: SamplingConfig::default(),
        token: token.map(|secret| Token::new(crate::base::secret::VARIABLE, secret).unwrap()),
        control_tokens: false,
        warned: AtomicBool::new(false),
        body: 1000,
        context: 60,
        gate: RequestGate::new(1, 2),
        rates: FrontRates::new(Some(1000), None),
        since: 0,
    }
}

/// Status and body of an answer.
pub(super) async fn ask(front: &Data<Front>, request: TestRequest) -> (u16, Value) {
    let app = init_service(App::new().app_data(front.clone()).configure(routes)).await;
    let response: ServiceResponse = call_service(&app, request.to_request()).await;
    let status = response.status().as_u16();
    (status, read_body_json(response).await)
}

pub(super) fn post(path: &str, body: &str) -> TestRequest {
    TestRequest::post()
        .uri(path)
        .insert_header(("host", "127.0.0.1:8001"))
        .insert_header(("content-type", "application/json"))
        .set_payload(body.to_owned())
}

fn get(path: &str) -> TestRequest {
    TestRequest::get().uri(path).insert_header(("host", "localhost:8001"))
}

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

#[tokio::test]
async fn a_front_with_a_token_answers_nothing_without_it() {
    let front = front(Some(SECRET));
    for path in ["/v1/models", "/v1/models/a", "/", "/v1/completions"] {
        let (status, body) = ask(&front, get(path)).await;
        assert_eq!(
            (status, &body["error"]["code"]),
            (401, &"invalid_api_key".into()),
            "{path}"
        );
        let wrong = get(path).insert_header(("authorization", "Bearer 0123456789abcdeg"));
        assert_eq!(ask(&front, wrong).await.0, 401, "{path}");
    }
    assert_eq!(ask(&front, post("/v1/chat/completions", CHAT)).await.0, 401);
    let shown = ("authorization", "Bearer 0123456789abcdef");
    assert_eq!(
        ask(&front, post("/v1/chat/completions", CHAT).insert_header(shown))
            .await
            .0,
        200
    );
    let elsewhere = get("/v1/models")
        .insert_header(shown)
        .insert_header(("host", "gpu-7.example"));
    assert_eq!(
        ask(&front, elsewhere).await.0,
        200,
        "a client with the token may use any host name"
    );
}

#[tokio::test]
async fn a_page_of_another_site_is_refused() {
    let front = front(None);
    let rebound = post("/v1/chat/completions", CHAT).insert_header(("host", "evil.example:8001"));
    let (status, body) = ask(&front, rebound).await;
    assert_eq!((status, &body["error"]["code"]), (403, &"invalid_host".into()));
    let simple = post("/v1/chat/completions", CHAT).insert_header(("content-type", "text/plain"));
    assert_eq!(ask(&front, simple).await.0, 415);
    let preflight = TestRequest::with_uri("/v1/chat/completions").method(actix_web::http::Method::OPTIONS);
    let (status, _) = ask(&front, preflight.insert_header(("host", "127.0.0.1"))).await;
    assert_eq!(status, 405, "nothing is allowed to other sites");
}

#[tokio::test]
async fn a_request_too_many_gets_429_and_one_too_late_503() {
    let front = front(None);
    let place = front.gate.enter().unwrap();
    assert_eq!(ask(&front, post("/v1/chat/completions", CHAT)).await.0, 429);
    drop(place);
    assert_eq!(ask(&front, post("/v1/chat/completions", CHAT)).await.0, 200);
    front.gate.set(FrontPhase::Closing);
    assert_eq!(ask(&front, post("/v1/chat/completions", CHAT)).await.0, 503);
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
async fn a_client_that_is_too_fast_learns_when_to_retry() {
    let mut slow = Arc::try_unwrap(front(None).into_inner()).unwrap_or_else(|_| panic!("shared"));
    slow.rates = FrontRates::new(Some(1), None);
    let slow = Data::new(slow);
    assert_eq!(ask(&slow, post("/v1/chat/completions", CHAT)).await.0, 200);
    let app = init_service(App::new().app_data(slow.clone()).configure(routes)).await;
    let response: ServiceResponse = call_service(&app, post("/v1/chat/completions", CHAT).to_request()).await;
    assert_eq!(response.status(), 429);
    let after = response
        .headers()
        .get("retry-after")
        .unwrap()
        .to_str()
        .unwrap()
        .parse::<u64>()
        .unwrap();
    assert!((1..=60).contains(&after), "{after}");
    let body: Value = read_body_json(response).await;
    assert_eq!(body["error"]["code"], "rate_limit_exceeded");
    let models = ask(&slow, get("/v1/models")).await;
    assert_eq!(models.0, 200, "the model list has no rate limit");
    let mut few = Arc::try_unwrap(front(None).into_inner()).unwrap_or_else(|_| panic!("shared"));
    few.rates = FrontRates::new(None, Some(20));
    let few = Data::new(few);
    let body = r#"{"model": "a", "prompt": "x", "max_tokens": 50}"#;
    assert_eq!(ask(&few, post("/v1/completions", body)).await.0, 400);
}

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
