//! The routes of SGLang that the driver uses.

use std::path::Path;

use actix_web::web::{Data, Json, ServiceConfig, get, post};
use actix_web::{HttpRequest, HttpResponse};
use serde_json::{Value, json};

use super::generate::{Call, generate};
use super::{FakeFault, Shared};
use crate::engine::foreign::server::CallEnd;

pub(super) fn routes(config: &mut ServiceConfig) {
    config
        .route("/health", get().to(health))
        .route("/model_info", get().to(model_info))
        .route("/server_info", get().to(server_info))
        .route("/generate", post().to(generated))
        .route("/abort_request", post().to(abort))
        .route("/update_weights_from_disk", post().to(update))
        .route("/load_lora_adapter", post().to(load_adapter))
        .route("/unload_lora_adapter", post().to(unload_adapter));
}

async fn health(shared: Data<Shared>) -> HttpResponse {
    shared.health()
}

async fn model_info(request: HttpRequest, shared: Data<Shared>) -> HttpResponse {
    if let Some(away) = shared.turned_away(&request) {
        return away;
    }
    let held = shared.held.lock().unwrap();
    HttpResponse::Ok().json(json!({
        "model_path": shared.folder,
        "tokenizer_path": shared.folder,
        "is_generation": true,
        "weight_version": held.label,
    }))
}

async fn server_info(shared: Data<Shared>) -> HttpResponse {
    let held = shared.held.lock().unwrap();
    HttpResponse::Ok().json(json!({ "context_length": held.model.shape.max_context }))
}

fn refused(message: &str) -> HttpResponse {
    HttpResponse::BadRequest().json(json!({ "error": { "message": message } }))
}

async fn generated(request: HttpRequest, shared: Data<Shared>, body: Json<Value>) -> HttpResponse {
    if let Some(away) = shared.turned_away(&request) {
        return away;
    }
    shared.asked.lock().unwrap().push(body.0.clone());
    let call = read(&body);
    if let Some(problem) = problem(&shared, &call) {
        return refused(&problem);
    }
    let made = generate(&shared, &call).await;
    let reason = match made.end {
        CallEnd::Stop => json!({"type": "stop", "matched": made.ids.last()}),
        CallEnd::Length => json!({"type": "length", "length": made.ids.len()}),
        CallEnd::Aborted => json!({"type": "abort", "message": "Aborted"}),
    };
    let pair = |(id, logprob): (&u32, &f32)| json!([logprob, id, null]);
    let mut chosen: Vec<Value> = made.ids.iter().zip(&made.logprobs).map(pair).collect();
    let top: Vec<Value> = made
        .top
        .iter()
        .map(|place| place.iter().map(|(id, logprob)| json!([logprob, id, null])).collect())
        .collect();
    match made.fault {
        Some(FakeFault::NoLogprob) => chosen[0][0] = Value::Null,
        Some(FakeFault::Fewer) => drop(chosen.pop()),
        Some(FakeFault::Foreign) => chosen[0][1] = json!(999_999),
        _ => {}
    }
    let mut answer = json!({
        "text": shared.text.text(&made.ids),
        "output_ids": made.ids,
        "meta_info": {
            "id": body["rid"],
            "finish_reason": reason,
            "prompt_tokens": call.prompt.len(),
            "completion_tokens": made.ids.len(),
            "cached_tokens": 0,
            "weight_version": made.label,
            "output_token_logprobs": chosen,
        },
    });
    if made.ids.is_empty() {
        answer["meta_info"]["output_token_logprobs"] = Value::Null;
    }
    if call.top > 0 {
        answer["meta_info"]["output_top_logprobs"] = Value::Array(top);
    }
    super::vllm::spoilt(made.fault, answer)
}

fn read(body: &Value) -> Call {
    let params = &body["sampling_params"];
    Call {
        prompt: serde_json::from_value(body["input_ids"].clone()).unwrap(),
        max_new_tokens: params["max_new_tokens"].as_u64().unwrap_or(128) as usize,
        temperature: params["temperature"].as_f64().unwrap_or(1.0) as f32,
        seed: params["sampling_seed"].as_u64(),
        stop_ids: serde_json::from_value(params["stop_token_ids"].clone()).unwrap_or_default(),
        stop: serde_json::from_value(params["stop"].clone()).unwrap_or_default(),
        adapter: body["lora_path"].as_str().map(str::to_owned),
        top: body["top_logprobs_num"].as_u64().unwrap_or(0) as usize,
    }
}

fn problem(shared: &Shared, call: &Call) -> Option<String> {
    let held = shared.held.lock().unwrap();
    let (tokens, most) = (call.prompt.len() + call.max_new_tokens, held.model.shape.max_context);
    if tokens >= most {
        return Some(format!(
            "Requested token count exceeds the model's maximum context length of {most} tokens. You requested a total of {tokens} tokens"
        ));
    }
    let missing = call
        .adapter
        .as_ref()
        .filter(|name| !held.adapters.contains_key(*name))?;
    Some(format!(
        "The following requested LoRA adapters are not loaded: {missing}"
    ))
}

async fn abort(shared: Data<Shared>, body: Json<Value>) -> HttpResponse {
    if body["abort_all"] == true {
        shared.aborts.send_modify(|aborts| *aborts += 1);
    }
    HttpResponse::Ok().finish()
}

fn outcome(done: Result<(), String>) -> HttpResponse {
    let content = json!({ "success": done.is_ok(), "message": done.as_ref().err().cloned().unwrap_or_default() });
    if done.is_ok() {
        HttpResponse::Ok().json(content)
    } else {
        HttpResponse::BadRequest().json(content)
    }
}

async fn update(shared: Data<Shared>, body: Json<Value>) -> HttpResponse {
    if body["abort_all_requests"] == true {
        shared.aborts.send_modify(|aborts| *aborts += 1);
    }
    let loaded = shared.load(Path::new(body["model_path"].as_str().unwrap()));
    let done = match loaded {
        Ok(()) if super::takes_one(&shared.keeps) => Err(
            "Weights were updated, but the cache was not flushed because requests are still running or queued.".into(),
        ),
        loaded => loaded,
    };
    if done.is_ok() {
        shared.held.lock().unwrap().label = body["weight_version"].as_str().unwrap().to_owned();
    }
    outcome(done)
}

async fn load_adapter(shared: Data<Shared>, body: Json<Value>) -> HttpResponse {
    let name = body["lora_name"].as_str().unwrap();
    if shared.held.lock().unwrap().adapters.contains_key(name) {
        return outcome(Err(format!("LoRA adapter {name} is already loaded")));
    }
    outcome(shared.load_adapter(name, Path::new(body["lora_path"].as_str().unwrap())))
}

async fn unload_adapter(shared: Data<Shared>, body: Json<Value>) -> HttpResponse {
    let name = body["lora_name"].as_str().unwrap().to_owned();
    match shared.unload(&name) {
        Some(true) => outcome(Ok(())),
        Some(false) => outcome(Err("not loaded".into())),
        None => HttpResponse::InternalServerError().finish(),
    }
}
