//! Tests of an agent's HTTP front over its servers, used by a client.

use configs::{AgentConfig, HttpConfig, SamplingConfig};
use serde_json::{Value, json};

use super::*;
use crate::engine::process::link;
use crate::http::{self, Plan, ServedFront};
use crate::observe::Observer;

/// Returns the front of an agent with a bench's servers as engines.
fn front(bench: &Bench) -> Arc<ServedFront> {
    let folder = tempfile::tempdir().unwrap();
    let config = crate::run_folder::tests::config_in(folder.path());
    let (agent, settings) = config.agents.first_key_value().unwrap();
    let listen: HttpConfig = serde_json::from_value(json!({"listen": "127.0.0.1:0"})).unwrap();
    let settings = AgentConfig {
        http: Some(listen),
        ..settings.clone()
    };
    let plan = Plan::of(agent, &settings).unwrap().unwrap();
    let (engine, run) = (bench.fleet.clone(), broker::ids::RunId::new("r").unwrap());
    let text = bench.home.text();
    let speech = (text.clone(), text.vocab_size());
    http::serve(
        plan,
        agent,
        &run,
        engine,
        speech,
        SamplingConfig::default(),
        Observer::default(),
    )
    .unwrap()
}

/// Returns status and body of a completion behind the prompt of [`job`], from the first agent.
async fn complete(front: &ServedFront, more: Value) -> (u16, String) {
    let mut body = json!({"model": "a", "prompt": "Hello", "max_tokens": 40, "seed": 5, "return_token_ids": true});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let url = format!("http://{}/v1/completions", front.address);
    let request = link::client(None).unwrap().post(url);
    let request = request
        .header("content-type", "application/json")
        .body(body.to_string());
    let answer = request.send().await.unwrap();
    (answer.status().as_u16(), answer.text().await.unwrap())
}

fn list<T: serde::de::DeserializeOwned>(value: &Value) -> Vec<T> {
    serde_json::from_value(value.clone()).unwrap()
}

/// Compares the most likely tokens of each position, by name, with those of the weights of version
/// 1.
fn check_likely(bench: &Bench, made: &GenerationOutput, top: &[serde_json::Map<String, Value>]) {
    let (model, text) = (Model::open(&bench.home.folder(1)).unwrap(), bench.home.text());
    let number = |logprob: &Value| logprob.as_f64().unwrap() as f32;
    assert_eq!(top.len(), made.output_ids.len());
    for (place, top) in top.iter().enumerate() {
        let context = [&job(1, 40).prompt_ids[..], &made.output_ids[..place]].concat();
        let all = model.logprobs(&context, 1.0);
        let most = (0..all.len()).max_by(|a, b| all[*a].total_cmp(&all[*b])).unwrap();
        let own = text.spelled(&[most as u32]);
        let name = if own.contains('\u{FFFD}') {
            format!("token_id:{most}")
        } else {
            own
        };
        let largest = top.values().map(number).fold(f32::MIN, f32::max);
        // The two requested tokens, and the chosen one if it differs.
        assert!((2..=3).contains(&top.len()), "{top:?}");
        assert!((largest - all[most]).abs() < 1e-4, "{top:?}, {}", all[most]);
        assert_eq!(top.get(&name).map(number), Some(largest), "{name:?}, {top:?}");
        assert!(largest >= made.logprobs[place], "{top:?}, {}", made.logprobs[place]);
    }
}

/// Joins a stream's updates of one choice: pieces, ids and log-probs.
fn streamed(body: &str) -> (usize, Vec<u32>, Vec<f32>) {
    let events: Vec<&str> = body.split_terminator("\n\n").collect();
    let (done, events) = events.split_last().unwrap();
    assert_eq!(*done, "data: [DONE]");
    let (mut pieces, mut ids, mut logprobs) = (0, Vec::new(), Vec::new());
    for event in events {
        let event: Value = serde_json::from_str(event.strip_prefix("data: ").unwrap()).unwrap();
        let choice = &event["choices"][0];
        ids.extend(list::<u32>(&choice["token_ids"]));
        logprobs.extend(list::<f32>(&choice["logprobs"]["token_logprobs"]));
        pieces += 1;
    }
    (pieces, ids, logprobs)
}

/// Covers whole and streamed answers with their weights and log-probs, and the error without
/// servers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_front_answers_over_foreign_servers_while_they_live() {
    for kind in KINDS {
        let bench = Bench::new(kind).await;
        bench.serve(1).await;
        let front = front(&bench);
        let (status, body) = complete(&front, json!({"logprobs": 2})).await;
        assert_eq!(status, 200, "{body}");
        let answer: Value = serde_json::from_str(&body).unwrap();
        let choice = &answer["choices"][0];
        assert_eq!(
            choice["dyad"]["spans"],
            json!([{"weights": "1.1", "start": 0, "end": 40}])
        );
        let made = GenerationOutput {
            output_ids: list(&choice["token_ids"]),
            logprobs: list(&choice["logprobs"]["token_logprobs"]),
            logprobs_of: broker::protocol::turn::LogProbs::Sampled,
            top: Vec::new(),
            spans: vec![broker::protocol::turn::VersionSpan {
                version: version(1),
                start: 0,
                end: 40,
            }],
            oldest_kv: version(1),
            reused: 0,
            finish: broker::protocol::turn::Finish::Length,
            times: None,
        };
        bench.check(&job(1, 40), &made);
        let top: Vec<serde_json::Map<String, Value>> = list(&choice["logprobs"]["top_logprobs"]);
        check_likely(&bench, &made, &top);

        // The same random numbers and weights give the same answer as a stream.
        let (status, body) = complete(&front, json!({"logprobs": 0, "stream": true})).await;
        assert_eq!((status, streamed(&body)), (200, (2, made.output_ids, made.logprobs)));

        let (status, body) = complete(&front, json!({"logprobs": 0, "echo": true})).await;
        let answer: Value = serde_json::from_str(&body).unwrap();
        assert_eq!((status, &answer["error"]["param"]), (400, &"echo".into()), "{body}");

        bench.fake().kill().await;
        let (status, body) = complete(&front, json!({})).await;
        assert_eq!(status, 503, "{body}");
        assert!(body.contains("servers") && body.contains("engine_failed"), "{body}");
    }
}
