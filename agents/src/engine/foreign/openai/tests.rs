//! A server with scripted answers, byte for byte: good, bad, or none.

use std::sync::Mutex;

use broker::ids::{Attempt, GroupId, TurnKey};
use broker::protocol::failure::FailureCode;
use broker::protocol::turn::Sampling;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::mpsc::unbounded_channel;

use super::*;
use crate::testing::sampling;

/// The server's answer to one request.
#[derive(Debug, Clone, Copy)]
enum Says {
    Text(&'static str),
    /// A status and a body.
    Status(u16, &'static str),
    Nothing,
    /// The connection breaks.
    Gone,
}

const PACE: Pace = Pace {
    look: Duration::from_millis(10),
    patience: Duration::from_millis(100),
    pause: Duration::from_millis(1),
};

/// Answers requests in turn, repeats the last answer, and records the requests.
async fn server(says: Vec<Says>) -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let received = Arc::new(Mutex::new(Vec::new()));
    let noted = received.clone();
    tokio::spawn(async move {
        for at in 0.. {
            let (mut stream, _) = listener.accept().await.unwrap();
            let says = says[at.min(says.len() - 1)];
            let noted = noted.clone();
            tokio::spawn(async move {
                let mut request = Vec::new();
                while !request.ends_with(b"}") {
                    let mut piece = [0; 4096];
                    let read = stream.read(&mut piece).await.unwrap();
                    if read == 0 {
                        // The client left before the whole answer was sent.
                        return;
                    }
                    request.extend_from_slice(&piece[..read]);
                }
                noted.lock().unwrap().push(String::from_utf8(request).unwrap());
                let (status, body) = match says {
                    Says::Text(text) => (200, text),
                    Says::Status(status, body) => (status, body),
                    Says::Nothing => std::future::pending().await,
                    Says::Gone => return,
                };
                let head = format!(
                    "HTTP/1.1 {status} X\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
                    body.len()
                );
                stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
            });
        }
    });
    (url, received)
}

fn job() -> GenerationJob {
    let key = TurnKey {
        member: 0,
        role: broker::RoleName::new("eye").unwrap(),
        seat: 0,
        turn: 0,
    };
    let group = GroupId([1; 16]);
    let chat = [Message::user("which?").showing(["https://x.org/a.png".to_owned()])];
    GenerationJob {
        request: RequestId::new(group, Attempt([2; 16]), &key),
        group,
        member: 0,
        prompt_ids: ChatLog::ids(&chat).into(),
        sampling: Arc::new(Sampling {
            temperature: 0.5,
            stop: vec!["!".into()],
            ..sampling(7)
        }),
        seed: u64::MAX,
        keep: false,
    }
}

fn engine(urls: Vec<String>, patience: u64) -> Arc<Openai> {
    let config = EngineConfig {
        urls,
        stuck_after: configs::HumanDuration(Duration::from_millis(patience)),
        ..EngineConfig::default()
    };
    Openai::with_pace(&config, "m", WeightVersion::default(), PACE).unwrap()
}

async fn made(urls: Vec<String>, patience: u64) -> Result<GenerationOutput, EngineFailure> {
    made_by(&engine(urls, patience)).await
}

async fn made_by(engine: &Openai) -> Result<GenerationOutput, EngineFailure> {
    let (done, mut finished) = unbounded_channel();
    engine.submit(vec![job()], false, done);
    finished.recv().await.unwrap().remove(0).result
}

const GOOD: &str = r#"{"choices": [{"message": {"content": "<think>hm</think>red"}, "finish_reason": "stop"}]}"#;
const CUT: &str = r#"{"choices": [{"message": {"content": null}, "finish_reason": "length"}]}"#;

#[tokio::test]
async fn the_chat_is_sent_with_images_and_the_answer_follows_it() {
    let (url, received) = server(vec![Says::Text(GOOD)]).await;
    let made = made(vec![url], 0).await.unwrap();
    assert_eq!(
        (ChatLog::text(&made.output_ids).as_str(), made.finish),
        ("red", Finish::Stop)
    );
    let request = received.lock().unwrap().remove(0);
    assert!(request.starts_with("POST /v1/chat/completions "), "{request}");
    let body: Value = serde_json::from_str(&request[request.find("\r\n\r\n").unwrap()..]).unwrap();
    let image = json!({"type": "image_url", "image_url": {"url": "https://x.org/a.png"}});
    let content = json!([image, {"type": "text", "text": "which?"}]);
    assert_eq!(body["messages"], json!([{"role": "user", "content": content}]));
    assert_eq!(
        (&body["model"], &body["max_tokens"], &body["stop"]),
        (&json!("m"), &json!(7), &json!(["!"]))
    );
    assert!(body["seed"].as_i64().is_some() && body.get("top_p").is_none(), "{body}");
}

#[tokio::test]
async fn a_failing_server_is_asked_five_times_and_absence_is_free() {
    let busy = Says::Status(503, "");
    let (url, received) = server(vec![busy, Says::Status(200, "no JSON"), Says::Text(CUT)]).await;
    let made_at_last = made(vec![url], 0).await.unwrap();
    assert_eq!(
        (ChatLog::text(&made_at_last.output_ids).as_str(), made_at_last.finish),
        ("", Finish::Length)
    );
    assert_eq!(received.lock().unwrap().len(), 3);
    let (away, _) = server(vec![Says::Gone]).await;
    let (url, received) = server(vec![busy]).await;
    let failure = made(vec![away, url], 0).await.unwrap_err();
    assert!(failure.retry && failure.cause.code == FailureCode::Engine, "{failure}");
    assert_eq!(received.lock().unwrap().len(), TRIES as usize);
}

#[tokio::test]
async fn a_server_that_a_call_did_not_reach_does_not_answer() {
    let (away, _) = server(vec![Says::Gone]).await;
    let (url, _) = server(vec![Says::Text(GOOD)]).await;
    let engine = engine(vec![away, url], 0);
    let presences = engine.presences();
    let answers = || presences.iter().map(|one| (one.answers)()).collect::<Vec<_>>();
    assert_eq!(answers(), [true, true], "no call was made yet");
    made_by(&engine).await.unwrap();
    assert_eq!(answers(), [false, true]);
}

#[tokio::test]
async fn silence_is_a_failure_and_a_rejection_is_final() {
    let (url, received) = server(vec![Says::Nothing]).await;
    let failure = made(vec![url], 400).await.unwrap_err();
    assert!(
        failure.retry && failure.cause.reason.contains("engine.stuck_after"),
        "{failure}"
    );
    assert_eq!(received.lock().unwrap().len(), TRIES as usize);
    let (url, received) = server(vec![Says::Status(400, r#"{"error": {"message": "no images here"}}"#)]).await;
    let failure = made(vec![url], 0).await.unwrap_err();
    assert!(
        !failure.retry && failure.cause.reason.contains("no images here"),
        "{failure}"
    );
    assert_eq!(received.lock().unwrap().len(), 1);
}

const NO_LIMIT: &str =
    r#"{"error": {"message": "use max_completion_tokens", "param": "max_tokens", "code": "unsupported_parameter"}}"#;
const NO_HEAT: &str = r#"{"error": {"message": "Unsupported value: 'temperature' does not support 0.5", "param": "temperature", "code": "unsupported_value"}}"#;
const NO_STOP: &str = r#"{"error": {"message": "Unsupported parameter: 'stop' is not supported with this model."}}"#;
const HALF: &str =
    r#"{"choices": [{"message": {"content": "red \ud83d"}, "finish_reason": "stop"}], "usage": {"cost": NaN}}"#;

#[tokio::test]
async fn half_a_surrogate_pair_costs_one_call() {
    let (url, received) = server(vec![Says::Text(HALF)]).await;
    let made = made(vec![url], 0).await.unwrap();
    assert_eq!(ChatLog::text(&made.output_ids), "red \u{FFFD}");
    assert_eq!(received.lock().unwrap().len(), 1);
}

const LONG: &str = r#"{"choices": [{"message": {"content": "red! and more"}, "finish_reason": "stop"}]}"#;

#[tokio::test]
async fn a_rejected_field_is_changed_once_and_for_later_calls() {
    let says = [NO_LIMIT, NO_HEAT, NO_STOP].map(|body| Says::Status(400, body));
    let (url, received) = server([&says[..], &[Says::Text(LONG)]].concat()).await;
    for _ in 0..2 {
        let made = made(vec![url.clone()], 0).await.unwrap();
        assert_eq!(
            (ChatLog::text(&made.output_ids).as_str(), made.finish),
            ("red", Finish::Stop)
        );
    }
    let requests = received.lock().unwrap().clone();
    assert_eq!(requests.len(), 5, "three rejections, then two answers");
    for request in &requests[3..] {
        let body: Value = serde_json::from_str(&request[request.find("\r\n\r\n").unwrap()..]).unwrap();
        assert_eq!(body["max_completion_tokens"], 7);
        for field in ["max_tokens", "temperature", "stop"] {
            assert!(body.get(field).is_none(), "{body}");
        }
    }
}

#[tokio::test]
async fn server_that_fails_is_named_by_url_and_key() {
    for (status, named) in [(401, true), (403, true), (500, false), (400, false)] {
        let (url, _) = server(vec![Says::Status(status, r#"{"error": "no"}"#)]).await;
        let known = url.replace("http://", "http://me:s3cret@");
        let said = made(vec![known], 0).await.unwrap_err().cause.to_string();
        assert!(
            said.contains(&url) && said.contains(&format!("HTTP {status}: no")),
            "{said}"
        );
        assert_eq!(
            said.contains("DYAD_OPENAI_KEY is not set in this process"),
            named,
            "{said}"
        );
        assert_eq!(said.contains("set it to the server's key"), status == 401, "{said}");
        assert!(
            !said.contains("s3cret") && !said.contains("DYAD_ENGINE_TOKEN"),
            "{said}"
        );
    }
}
