//! The routes of a front with the scripted engine.

mod access;
mod answers;
mod echo;
mod logprobs;

use std::sync::atomic::AtomicBool;

use actix_web::App;
use actix_web::dev::ServiceResponse;
use actix_web::test::{TestRequest, call_service, init_service, read_body_json};
use broker::ids::RunId;
use configs::{SamplingConfig, TokenizerConfig};
use serde_json::Value;

use super::super::gate::RequestGate;
use super::super::rates::FrontRates;
use super::*;
use crate::base::secret::Token;
use crate::engine::scripted::ScriptedEngine;

const SECRET: &str = "0123456789abcdef";
const CHAT: &str = r#"{"model": "a", "messages": [{"role": "user", "content": "x"}]}"#;

fn front(token: Option<&str>) -> Data<Front> {
    front_of(token, vec![65])
}

/// A front with an engine that answers with one of these tokens.
fn front_of(token: Option<&str>, choices: Vec<u32>) -> Data<Front> {
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
async fn ask(front: &Data<Front>, request: TestRequest) -> (u16, Value) {
    let app = init_service(App::new().app_data(front.clone()).configure(routes)).await;
    let response: ServiceResponse = call_service(&app, request.to_request()).await;
    let status = response.status().as_u16();
    (status, read_body_json(response).await)
}

fn post(path: &str, body: &str) -> TestRequest {
    TestRequest::post()
        .uri(path)
        .insert_header(("host", "127.0.0.1:8001"))
        .insert_header(("content-type", "application/json"))
        .set_payload(body.to_owned())
}

fn get(path: &str) -> TestRequest {
    TestRequest::get().uri(path).insert_header(("host", "localhost:8001"))
}
