//! Requests as clients send them.

mod fields;
mod limits;
mod prompts;

use serde_json::json;

use super::*;

fn read(kind: Endpoint, body: &Value) -> Result<ClientRequest, RequestError> {
    ClientRequest::read(kind, body.to_string().as_bytes(), &SamplingConfig::default())
}

fn with(kind: Endpoint, changes: Value) -> Result<ClientRequest, RequestError> {
    let mut body = match kind {
        Endpoint::Completion => json!({"model": "a", "prompt": "x"}),
        Endpoint::Chat => json!({"model": "a", "messages": [{"role": "user", "content": "x"}]}),
    };
    for (key, value) in changes.as_object().unwrap() {
        body[key] = value.clone();
    }
    read(kind, &body)
}

/// Returns the rejected field and the code.
fn refused(kind: Endpoint, changes: Value) -> (String, Option<&'static str>) {
    let refusal = with(kind, changes.clone()).expect_err(&changes.to_string());
    assert_eq!(refusal.status, 400);
    let param = refusal.param.clone().unwrap_or_default();
    assert!(refusal.message.starts_with(&param), "{}", refusal.message);
    (param, refusal.code)
}
