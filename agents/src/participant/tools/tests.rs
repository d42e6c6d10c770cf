//! Well-behaved and misbehaving tools, run for real.

use serde_json::Value;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;

use serde_json::json;

use super::super::health::BrokenProgram;
use super::*;

fn toolbox(kind: ToolPlace, settings: Value) -> Toolbox {
    let mut config = json!({"kind": "x", "timeout": "60s", "retries": 0, "workers": 2});
    config
        .as_object_mut()
        .unwrap()
        .extend(settings.as_object().unwrap().clone());
    Toolbox::start(
        vec![ToolProgram {
            name: "look-up".into(),
            place: kind,
            roles: vec![RoleName::new("solver-look-up").unwrap()],
            config: serde_json::from_value(config).unwrap(),
        }],
        &BrokenProgram::default(),
    )
}

async fn call(toolbox: &Toolbox, tool: &str, arguments: Value) -> Result<String, String> {
    let question = ToolQuestion {
        tool: tool.into(),
        arguments,
        metadata: serde_json::Map::new(),
    };
    let line = serde_json::to_string(&question).unwrap();
    match toolbox
        .ask(&RoleName::new("solver-look-up").unwrap(), &[Message::user(line)])
        .await
    {
        TurnOutcome::Done(made) => {
            assert!(made.output_ids.is_empty(), "a tool's text is no token of an agent");
            Ok(made.text)
        }
        TurnOutcome::Failed { failure, retry } => {
            let reason = failure.to_string();
            assert!(!retry, "a tool has its own tries");
            Err(reason)
        }
    }
}

const PYTHON: &str = r#"
import json, os, sys, time
for line in sys.stdin:
    ask = json.loads(line)
    text = ask["arguments"]["query"]
    answer = {"id": ask["id"]}
    if text == "die": sys.exit(3)
    if text == "hang": time.sleep(3600)
    if text == "secret": answer["result"] = str([k for k in os.environ if k.startswith("DYAD_TOOL_TOKEN")])
    elif text == "sorry": answer["error"] = "no such thing"
    elif text == "odd": answer["found"] = 1
    elif text == "list": answer["result"] = [ask["tool"], 2]
    else: answer["result"] = text * 100
    print(json.dumps(answer), flush=True)
"#;

fn program(folder: &Path) -> ToolPlace {
    let file = folder.join("look.py");
    std::fs::write(&file, PYTHON).unwrap();
    ToolPlace::Process(file.display().to_string())
}

#[tokio::test]
async fn a_program_answers_and_its_errors_reach_the_agent() {
    let folder = tempfile::tempdir().unwrap();
    let tools = toolbox(program(folder.path()), json!({"answer": "64"}));
    let look = async |query: &str| call(&tools, "look-up", json!({ "query": query })).await.unwrap();
    assert_eq!(look("list").await, "[\"look-up\",2]");
    assert_eq!(look("sorry").await, "error: look-up: no such thing");
    assert!(look("odd").await.contains("no \"result\""));
    assert!(look("die").await.starts_with("error: look-up: "));
    assert_eq!(look("secret").await, "[]");
    let long = look("é").await;
    assert!(
        long.len() <= 64 && long.ends_with("\n[cut]") && long.starts_with("éé"),
        "{long}"
    );
}

#[tokio::test]
async fn a_hanging_tool_gives_an_error_or_drops_the_conversation() {
    let folder = tempfile::tempdir().unwrap();
    let hang = json!({"query": "hang"});
    let tell = toolbox(program(folder.path()), json!({"timeout": "1s", "retries": 1}));
    let late = call(&tell, "look-up", hang.clone()).await.unwrap();
    assert!(late.contains("no answer within 1s"), "{late}");
    let dropping = toolbox(program(folder.path()), json!({"timeout": "1s", "failure": "drop"}));
    let reason = call(&dropping, "look-up", hang).await.unwrap_err();
    assert!(reason.starts_with("the tool look-up failed: "), "{reason}");
}

#[tokio::test]
async fn documents_are_searched_and_an_unreadable_folder_fails() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.txt"), "amber floats").unwrap();
    let tools = toolbox(ToolPlace::Corpus(folder.path().into()), json!({}));
    let found = call(&tools, "search", json!({"query": "floats"})).await.unwrap();
    assert!(found.starts_with("1. [a.txt]"), "{found}");
    let missing = call(&tools, "visit", json!({"id": "b.txt"})).await.unwrap();
    assert!(missing.starts_with("error: look-up: there is no document"), "{missing}");
    let broken = toolbox(ToolPlace::Corpus("/nowhere".into()), json!({}));
    let reason = call(&broken, "search", json!({"query": "x"})).await.unwrap_err();
    assert!(reason.contains("cannot be used"), "{reason}");
}

/// A server that answers the requests in turn, and returns them.
fn server(answers: Vec<&'static str>) -> (String, std::thread::JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/call", listener.local_addr().unwrap());
    let serving = std::thread::spawn(move || {
        let answer = |answer: &str| {
            let (mut stream, _) = listener.accept().unwrap();
            let (mut sent, mut piece) = (Vec::new(), [0; 4096]);
            // The requests end with their JSON.
            while !sent.ends_with(b"\"metadata\":{}}") {
                let count = stream.read(&mut piece).unwrap();
                assert!(count > 0, "{}", String::from_utf8_lossy(&sent));
                sent.extend_from_slice(&piece[..count]);
            }
            let (status, body) = answer.split_once(' ').unwrap();
            write!(
                stream,
                "HTTP/1.1 {status} x\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
                body.len()
            )
            .unwrap();
            String::from_utf8(sent).unwrap()
        };
        answers.into_iter().map(answer).collect()
    });
    (url, serving)
}

#[tokio::test]
async fn a_server_gets_the_call_and_may_answer_in_any_shape() {
    let (url, serving) = server(vec![
        "200 {\"result\": \"amber\"}",
        "200 \"jade\"",
        "200 plain words",
        "200 {\"documents\": []}",
        "200 {\"error\": \"quota\"}",
        "422 no query",
        "503 busy",
        "200 {\"result\": \"at last\"}",
        "500 broken",
        "500 broken",
    ]);
    let tools = toolbox(ToolPlace::Http(url.clone()), json!({"retries": 1}));
    for expected in [
        "amber",
        "jade",
        "plain words",
        "{\"documents\": []}",
        "error: look-up: quota",
        "error: look-up: the server answered 422",
        "at last",
        "error: look-up: the server answered 500",
    ] {
        let said = call(&tools, "look-up", json!({"query": "x"})).await.unwrap();
        assert!(said.starts_with(expected), "{said}");
        assert!(!said.contains("127.0.0.1"), "{said}");
    }
    let sent = serving.join().unwrap();
    assert!(sent[0].starts_with("POST /call "), "{}", sent[0]);
    assert!(
        sent[0].ends_with("{\"kind\":\"call\",\"tool\":\"look-up\",\"arguments\":{\"query\":\"x\"},\"metadata\":{}}"),
        "{}",
        sent[0]
    );
    let gone = call(&tools, "look-up", json!({"query": "x"})).await.unwrap();
    assert!(
        gone.starts_with("error: look-up: ") && !gone.contains("127.0.0.1"),
        "{gone}"
    );
}

#[tokio::test]
async fn a_token_reaches_its_server_and_no_error_text() {
    let (url, serving) = server(vec!["200 {\"result\": \"amber\"}", "401 who are you"]);
    let server =
        ToolServer::with("DYAD_TOOL_TOKEN_X", Some("s3cret-token".into()), &url).unwrap_or_else(|why| panic!("{why}"));
    let question = ToolQuestion {
        tool: "x".into(),
        arguments: json!({}),
        metadata: serde_json::Map::new(),
    };
    assert!(server.call(&question).await.is_ok());
    let Err(ToolFault::Broken(reason)) = server.call(&question).await else {
        panic!("a 401 is a failure of the setup: no agent learns from it")
    };
    assert!(reason.contains("401") && !reason.contains("s3cret"), "{reason}");
    assert!(
        serving.join().unwrap()[0]
            .to_lowercase()
            .contains("authorization: bearer s3cret-token")
    );
    let refused = ToolServer::with("DYAD_TOOL_TOKEN_X", Some("two words".into()), &url)
        .map(|_| ())
        .unwrap_err();
    assert!(
        refused.contains("DYAD_TOOL_TOKEN_X") && !refused.contains("two words"),
        "{refused}"
    );
}

#[tokio::test]
async fn plaintext_to_other_hosts_is_rejected_before_sending() {
    let tools = toolbox(ToolPlace::Http("http://tools.example.org/call".into()), json!({}));
    let reason = call(&tools, "look-up", json!({})).await.unwrap_err();
    assert!(
        reason.contains("cannot be used") && reason.contains("DYAD_ALLOW_PLAINTEXT"),
        "{reason}"
    );
}
