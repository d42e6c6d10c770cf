//! Requests that clients send to an agent's HTTP front.

use agents::http::client_request::{ClientRequest, Endpoint};
use configs::SamplingConfig;

use super::fuzz;

fn bodies(name: &str, kind: Endpoint, seeds: &[&str]) {
    let usual = SamplingConfig::default();
    fuzz(
        name,
        &seeds.iter().map(|text| text.as_bytes().to_vec()).collect::<Vec<_>>(),
        |bytes| {
            let asked = ClientRequest::read(kind, bytes, &usual);
            match &asked {
                Ok(ask) => {
                    let sampling = &ask.sampling;
                    let bearable = sampling.temperature == 0.0 || (0.01..=10.0).contains(&sampling.temperature);
                    assert!(
                        bearable && sampling.top_p > 0.0 && sampling.max_new_tokens > 0 && ask.n > 0,
                        "{ask:?}"
                    );
                    assert!(ask.top <= 20 && (ask.logprobs || ask.top == 0), "{ask:?}");
                    assert!(!ask.inputs.is_empty() && ask.stop.texts.iter().all(|stop| !stop.is_empty()));
                    assert!(!(ask.echo && ask.logprobs), "{ask:?}");
                }
                Err(refusal) => {
                    assert!(refusal.status == 400 && !refusal.message.is_empty());
                    assert!(refusal.json().to_string().len() < 2000, "a refusal is short");
                }
            }
            asked.is_ok()
        },
    );
}

#[test]
fn completions() {
    bodies(
        "completions, HTTP",
        Endpoint::Completion,
        &[
            r#"{"model": "a", "prompt": "x", "max_tokens": 7, "temperature": 0.5, "top_p": 0.5, "n": 2, "stop": ["a", "b"]}"#,
            r#"{"model": "a", "prompt": [[1, 2], [3]], "seed": -1, "logprobs": 3, "echo": false, "logit_bias": {}}"#,
            r#"{"model": "a", "prompt": "x", "echo": true, "stop_token_ids": [3, 7], "include_stop_str_in_output": true}"#,
            r#"{"model": "a", "prompt": ["x", "y"], "stream": true, "stream_options": {"include_usage": true}, "user": "me"}"#,
        ],
    );
}

#[test]
fn chats() {
    bodies(
        "chats, HTTP",
        Endpoint::Chat,
        &[
            r#"{"model": "a", "messages": [{"role": "user", "content": "x"}], "max_completion_tokens": 5, "top_k": -1}"#,
            r#"{"model": "a", "messages": [{"role": "developer", "content": [{"type": "text", "text": "x"}]},
                {"role": "assistant", "content": "y", "tool_calls": null}], "logprobs": true, "top_logprobs": 20}"#,
        ],
    );
}
