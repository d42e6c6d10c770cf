//! The routes of vLLM that the driver uses.

use std::path::Path;
use std::sync::atomic::Ordering;

use actix_web::web::{Bytes, Data, Json, ServiceConfig, get, post};
use actix_web::{HttpRequest, HttpResponse};
use futures_util::stream;
use serde_json::{Map, Value, json};

use super::generate::{Call, generate};
use super::{FakeFault, Shared};
use crate::engine::foreign::server::CallEnd;

const NAME: &str = "the-model";

pub(super) fn routes(config: &mut ServiceConfig) {
    config
        .route("/health", get().to(health))
        .route("/v1/models", get().to(models))
        .route("/v1/completions", post().to(completions))
        .route("/v1/load_lora_adapter", post().to(load_adapter))
        .route("/v1/unload_lora_adapter", post().to(unload_adapter))
        .route("/abort_requests", post().to(abort))
        .route("/collective_rpc", post().to(collective_rpc))
        .route("/reset_prefix_cache", post().to(reset))
        .route("/update_weight_version", post().to(update_version))
        .route("/weight_info", get().to(weight_info));
}

async fn health(shared: Data<Shared>) -> HttpResponse {
    shared.health()
}

async fn models(request: HttpRequest, shared: Data<Shared>) -> HttpResponse {
    if let Some(away) = shared.turned_away(&request) {
        return away;
    }
    let held = shared.held.lock().unwrap();
    let adapters = held
        .adapters
        .keys()
        .map(|name| json!({"id": name, "object": "model", "parent": NAME, "max_model_len": null}));
    let base = json!({
        "id": NAME,
        "object": "model",
        "root": shared.folder,
        "parent": null,
        "max_model_len": held.model.shape.max_context,
    });
    let data: Vec<Value> = std::iter::once(base).chain(adapters).collect();
    HttpResponse::Ok().json(json!({ "object": "list", "data": data }))
}

fn refused(status: u16, message: &str) -> HttpResponse {
    let status = actix_web::http::StatusCode::from_u16(status).unwrap();
    let error = json!({ "error": { "message": message, "type": "x", "param": null, "code": status.as_u16() } });
    HttpResponse::build(status).json(error)
}

async fn completions(request: HttpRequest, shared: Data<Shared>, body: Json<Value>) -> HttpResponse {
    if let Some(away) = shared.turned_away(&request) {
        return away;
    }
    shared.asked.lock().unwrap().push(body.0.clone());
    let call = read(&body);
    {
        let held = shared.held.lock().unwrap();
        if let Some(name) = call.adapter.as_ref().filter(|name| !held.adapters.contains_key(*name)) {
            return refused(404, &format!("The model `{name}` does not exist."));
        }
        let (most, tokens) = (held.model.shape.max_context, call.prompt.len() + call.max_new_tokens);
        if tokens > most {
            let said =
                format!("This model's maximum context length is {most} tokens. However, you requested {tokens} tokens");
            return refused(400, &said);
        }
    }
    let made = generate(&shared, &call).await;
    let reason = match made.end {
        CallEnd::Stop => "stop",
        CallEnd::Length => "length",
        CallEnd::Aborted => "abort",
    };
    let (mut ids, mut logprobs) = (json!(made.ids), json!(made.logprobs));
    match made.fault {
        Some(FakeFault::NoLogprob) => logprobs[0] = Value::Null,
        Some(FakeFault::Fewer) => drop(logprobs.as_array_mut().unwrap().pop()),
        Some(FakeFault::Foreign) => ids[0] = json!(999_999),
        _ => {}
    }
    let named = |(id, logprob): (u32, f32)| (format!("token_id:{id}"), json!(logprob));
    let chosen = made.ids.iter().copied().zip(made.logprobs.iter().copied());
    // The chosen token is included, even if it is not among the likely ones.
    let places = made.top.iter().zip(chosen).map(|(place, chosen)| {
        let all = place.iter().copied().chain([chosen]);
        Value::Object(all.map(named).collect::<Map<_, _>>())
    });
    let places: Vec<Value> = places.collect();
    let names: Vec<String> = made.ids.iter().map(|id| format!("token_id:{id}")).collect();
    let mut choice = json!({
        "index": 0,
        "text": shared.text.text(&made.ids),
        "logprobs": {
            "tokens": names,
            "token_logprobs": logprobs,
            "top_logprobs": places,
        },
        "finish_reason": reason,
        "token_ids": ids,
    });
    if made.ids.is_empty() {
        choice["logprobs"] = Value::Null;
    }
    if shared.says_versions && body["return_weight_versions"] == true && !made.ids.is_empty() {
        choice["weight_versions"] = json!([{ "version": made.label, "start": 0, "end": made.ids.len() }]);
    }
    let usage = json!({ "prompt_tokens": call.prompt.len(), "completion_tokens": made.ids.len() });
    let answer = json!({ "id": body["request_id"], "object": "text_completion", "choices": [choice], "usage": usage });
    spoilt(made.fault, answer)
}

/// Returns the answer, changed by the fault.
pub(super) fn spoilt(fault: Option<FakeFault>, answer: Value) -> HttpResponse {
    let text = answer.to_string();
    let half = Bytes::copy_from_slice(&text.as_bytes()[..text.len() / 2]);
    let broken = || Err(std::io::Error::other("broken"));
    match fault {
        Some(FakeFault::Failing) => {
            HttpResponse::InternalServerError().json(json!({ "error": { "message": "CUDA error" } }))
        }
        Some(FakeFault::Complaining) => {
            let words = stream::repeat_with(|| Ok::<_, std::io::Error>(Bytes::from_static(&[b'x'; 4096])));
            HttpResponse::InternalServerError().streaming(words)
        }
        Some(FakeFault::Endless) => HttpResponse::Ok()
            .content_type("application/json")
            .body(text + &" ".repeat(2 << 20)),
        Some(FakeFault::Dropped) => HttpResponse::Ok().streaming(stream::iter([broken()])),
        Some(FakeFault::Half) => HttpResponse::Ok().streaming(stream::iter([Ok(half), broken()])),
        Some(FakeFault::Truncated) => HttpResponse::Ok().content_type("application/json").body(half),
        _ => HttpResponse::Ok().content_type("application/json").body(text),
    }
}

fn read(body: &Value) -> Call {
    let model = body["model"].as_str().unwrap();
    Call {
        prompt: serde_json::from_value(body["prompt"].clone()).unwrap(),
        max_new_tokens: body["max_tokens"].as_u64().unwrap_or(16) as usize,
        temperature: body["temperature"].as_f64().unwrap_or(1.0) as f32,
        seed: body["seed"].as_u64(),
        stop_ids: serde_json::from_value(body["stop_token_ids"].clone()).unwrap_or_default(),
        stop: serde_json::from_value(body["stop"].clone()).unwrap_or_default(),
        adapter: (model != NAME).then(|| model.to_owned()),
        top: body["logprobs"].as_u64().unwrap_or(0) as usize,
    }
}

async fn abort(shared: Data<Shared>) -> HttpResponse {
    shared.aborts.send_modify(|aborts| *aborts += 1);
    HttpResponse::Ok().json(json!({ "status": "aborted" }))
}

async fn collective_rpc(shared: Data<Shared>, body: Json<Value>) -> HttpResponse {
    assert_eq!(body["method"], "reload_weights");
    let folder = body["kwargs"]["weights_path"].as_str().unwrap();
    match shared.load(Path::new(folder)) {
        Ok(()) => {
            shared.stale.store(true, Ordering::Relaxed);
            HttpResponse::Ok().json(json!({ "results": [null] }))
        }
        // It does not distinguish a client's mistake from its own.
        Err(said) => refused(500, &said),
    }
}

/// Returns 200 in either case.
async fn reset(request: HttpRequest, shared: Data<Shared>) -> HttpResponse {
    let asked = request.query_string();
    let all = asked.contains("reset_running_requests=true") && asked.contains("reset_external=true");
    let done = all && !super::takes_one(&shared.keeps);
    if done {
        shared.stale.store(false, Ordering::Relaxed);
    }
    HttpResponse::Ok().json(json!({ "success": done }))
}

async fn update_version(shared: Data<Shared>, body: Json<Value>) -> HttpResponse {
    let label = body["new_version"].as_str().unwrap();
    if label != "loading" && shared.stale.load(Ordering::Relaxed) {
        *shared.torn.lock().unwrap() += 1;
    }
    shared.held.lock().unwrap().label = label.to_owned();
    HttpResponse::Ok().json(json!({ "success": true, "new_version": label }))
}

async fn weight_info(shared: Data<Shared>) -> HttpResponse {
    HttpResponse::Ok().json(json!({ "weight_version": shared.held.lock().unwrap().label }))
}

async fn load_adapter(shared: Data<Shared>, body: Json<Value>) -> HttpResponse {
    let name = body["lora_name"].as_str().unwrap();
    if shared.held.lock().unwrap().adapters.contains_key(name) {
        return refused(400, &format!("The lora adapter '{name}' has already been loaded."));
    }
    match shared.load_adapter(name, Path::new(body["lora_path"].as_str().unwrap())) {
        Ok(()) => HttpResponse::Ok().body(format!("Success: LoRA adapter '{name}' added successfully.")),
        Err(said) => refused(400, &said),
    }
}

async fn unload_adapter(shared: Data<Shared>, body: Json<Value>) -> HttpResponse {
    let name = body["lora_name"].as_str().unwrap().to_owned();
    match shared.unload(&name) {
        Some(_) => HttpResponse::Ok().body("Success"),
        None => refused(500, "busy"),
    }
}
