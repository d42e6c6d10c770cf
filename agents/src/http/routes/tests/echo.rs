//! Completions that begin with their prompts, and the prompts' log-probs.

use actix_web::App;
use actix_web::dev::ServiceResponse;
use actix_web::test::{call_service, init_service, read_body};
use broker::ids::{RequestId, WeightVersion};
use serde_json::Value;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::watch;

use super::*;
use crate::engine::scripted::ScriptedEngine;
use crate::engine::{EngineClient, Finished, GenerationJob, Visit};

/// Returns a whole completion.
async fn complete(front: &Data<Front>, body: &Value) -> Value {
    let (status, answer) = ask(front, post("/v1/completions", &body.to_string())).await;
    assert_eq!(status, 200, "{answer}");
    answer
}

/// Returns the choices of a streamed completion, chunk by chunk.
async fn streamed(front: &Data<Front>, body: &Value) -> Vec<Value> {
    let app = init_service(App::new().app_data(front.clone()).configure(routes)).await;
    let request = post("/v1/completions", &body.to_string()).to_request();
    let response: ServiceResponse = call_service(&app, request).await;
    let bytes = read_body(response).await;
    let events = std::str::from_utf8(&bytes).unwrap().split_terminator("\n\n");
    let events = events.filter_map(|event| serde_json::from_str::<Value>(event.strip_prefix("data: ")?).ok());
    events.map(|mut event| event["choices"][0].take()).collect()
}

/// Choices A and B are equally likely.
#[tokio::test]
async fn the_log_probs_of_a_prompt_precede_those_of_its_answer() {
    let front = front_of(None, vec![66, 65]);
    let half = json!(-2f32.ln());
    let snow = [226, 152, 131];
    for prompt in [json!("a\u{2603}b"), json!([97, 226, 152, 131, 98])] {
        let mut body = json!({"model": "a", "prompt": prompt, "echo": true, "logprobs": 1, "max_tokens": 1, "seed": 3});
        let answer = complete(&front, &body).await;
        let choice = &answer["choices"][0];
        let logprobs = &choice["logprobs"];
        let said = logprobs["tokens"][5].as_str().unwrap();
        assert!(["A", "B"].contains(&said), "{logprobs}");
        assert_eq!(choice["text"], format!("a\u{2603}b{said}"));
        let names = snow.map(|byte| format!("token_id:{byte}"));
        assert_eq!(
            logprobs["tokens"],
            json!(["a", names[0], names[1], names[2], "b", said])
        );
        assert_eq!(logprobs["token_logprobs"], json!([null, half, half, half, half, half]));
        assert_eq!(logprobs["text_offset"], json!([0, 1, 1, 1, 2, 3]));
        let top = logprobs["top_logprobs"].as_array().unwrap();
        assert_eq!((top.len(), &top[0]), (6, &Value::Null));
        // The prompt's own token is listed with the likeliest one.
        assert_eq!(top[1], json!({"token_id:226": half, "A": half}));
        assert_eq!(top[4], json!({"b": half, "A": half}));
        assert_eq!(
            choice["dyad"]["prompt_spans"],
            json!([{"weights": "1.2", "start": 1, "end": 5}])
        );
        assert_eq!(
            choice["dyad"]["spans"],
            json!([{"weights": "1.2", "start": 0, "end": 1}])
        );
        assert_eq!(
            answer["usage"],
            json!({"prompt_tokens": 5, "completion_tokens": 1, "total_tokens": 6})
        );

        body["stream"] = true.into();
        let pieces = streamed(&front, &body).await;
        assert_eq!(pieces.len(), 1);
        for field in ["text", "logprobs", "finish_reason", "dyad"] {
            assert_eq!(pieces[0][field], choice[field], "{field}");
        }
        body["logprobs"] = 0.into();
        body["stream"] = false.into();
        let plain = complete(&front, &body).await;
        let plain = &plain["choices"][0]["logprobs"];
        assert_eq!(
            (&plain["top_logprobs"], &plain["token_logprobs"]),
            (&Value::Null, &logprobs["token_logprobs"])
        );
    }
}

#[tokio::test]
async fn a_choice_may_be_its_prompt_alone() {
    let front = front(None);
    let length = json!("length");
    let long: Vec<u32> = (0..60).collect();
    for (prompt, n, logprobs) in [
        (json!(["x", "yz"]), 1, json!(5)),
        (json!([[120], [121, 122]]), 1, json!(0)),
        (json!("yz"), 2, json!(1)),
        (json!("yz"), 2, Value::Null),
        // The prompt fills the whole context.
        (json!(long), 1, json!(0)),
    ] {
        let mut body =
            json!({"model": "a", "prompt": prompt, "n": n, "logprobs": logprobs, "echo": true, "max_tokens": 0});
        let answer = complete(&front, &body).await;
        assert_eq!(answer["usage"]["completion_tokens"], 0);
        let choices = answer["choices"].as_array().unwrap();
        let mut characters = 0;
        for choice in choices {
            assert_eq!(
                (&choice["finish_reason"], &choice["dyad"]["spans"]),
                (&length, &json!([]))
            );
            let text = choice["text"].as_str().unwrap();
            characters += text.chars().count();
            if logprobs.is_null() {
                assert_eq!(choice["logprobs"], Value::Null);
                continue;
            }
            for list in ["tokens", "token_logprobs", "text_offset"] {
                let places = choice["logprobs"][list].as_array().unwrap().len();
                assert_eq!(places, text.chars().count(), "{choice}");
            }
            assert_eq!(choice["logprobs"]["token_logprobs"][0], Value::Null);
        }
        assert_eq!(
            characters as u64,
            answer["usage"]["prompt_tokens"].as_u64().unwrap() * n
        );
        body["stream"] = true.into();
        let mut pieces = streamed(&front, &body).await;
        pieces.sort_by_key(|piece| piece["index"].as_u64());
        assert_eq!(pieces.len(), choices.len());
        for (piece, choice) in pieces.iter().zip(choices) {
            assert_eq!(
                (&piece["text"], &piece["logprobs"]),
                (&choice["text"], &choice["logprobs"])
            );
            assert_eq!(piece["finish_reason"], length);
        }
        assert_eq!(front.gate.busy(), 0, "its places are free again");
    }
    let answer = json!({"model": "a", "prompt": long, "echo": true, "max_tokens": 1});
    let (status, answer) = ask(&front, post("/v1/completions", &answer.to_string())).await;
    assert_eq!(
        (status, &answer["error"]["code"]),
        (400, &"context_length_exceeded".into())
    );
}

/// An engine that gives no log-probs of prompts.
struct Unscored(Arc<ScriptedEngine>);

impl EngineClient for Unscored {
    fn submit(&self, jobs: Vec<GenerationJob>, wave: bool, done: UnboundedSender<Vec<Finished>>) {
        self.0.submit(jobs, wave, done);
    }
    fn visit(&self, visits: Vec<Visit>) {
        self.0.visit(visits);
    }
    fn leave(&self, request: RequestId) {
        self.0.leave(request);
    }
    fn versions(&self) -> watch::Receiver<WeightVersion> {
        self.0.versions()
    }
    fn refusals(&self) -> watch::Receiver<Option<crate::engine::WeightRefusal>> {
        self.0.refusals()
    }
}

#[tokio::test]
async fn prompt_log_probs_are_rejected_if_the_engine_has_none() {
    let mut front = Arc::try_unwrap(front(None).into_inner()).unwrap_or_else(|_| panic!("shared"));
    front.engine = Arc::new(Unscored(ScriptedEngine::new(vec![65], WeightVersion::default())));
    let front = Data::new(front);
    for stream in [false, true] {
        let body = json!({"model": "a", "prompt": "x", "echo": true, "logprobs": 1, "stream": stream});
        let (status, answer) = ask(&front, post("/v1/completions", &body.to_string())).await;
        let error = &answer["error"];
        assert_eq!(
            (status, &error["param"], &error["code"]),
            (400, &"echo".into(), &"unsupported_parameter".into())
        );
        let message = error["message"].as_str().unwrap();
        assert!(message.contains("does not give log-probs of prompts"), "{message}");
    }
    for (more, text) in [
        (json!({"echo": true}), "xA"),
        (json!({"logprobs": 1}), "A"),
        (json!({"echo": true, "max_tokens": 0}), "x"),
    ] {
        let mut body = json!({"model": "a", "prompt": "x"});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        assert_eq!(complete(&front, &body).await["choices"][0]["text"], text);
    }
}
