//! Well-behaved and misbehaving programs, run for real.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use broker::protocol::turn::TurnOutcome;
use broker::{AgentName, RoleName};
use configs::{ByteSize, GraderConfig, HumanDuration, WorkflowConfig};
use rollout::workflow::{Ask, Event, Step, Workflow};
use rollout::workflows::build;

use super::Host;

/// The `solo` workflow with a program as its grader.
fn solo(file: &Path, timeout: Duration, memory: u64) -> Arc<dyn Workflow> {
    let config: WorkflowConfig = serde_json::from_value(serde_json::json!({
        "kind": "solo", "group_size": 2, "roles": {"solver": "a"}, "params": {"prompts": "short"},
    }))
    .unwrap();
    let grader = GraderConfig {
        kind: format!("process:{}", file.display()),
        timeout: HumanDuration(timeout),
        workers: 1,
        memory: ByteSize(memory),
        ..GraderConfig::default()
    };
    let _ = AgentName::new("a").unwrap();
    build(
        &config,
        &BTreeMap::from([("correct".to_owned(), grader)]),
        &BTreeMap::new(),
    )
    .unwrap_or_else(|problems| panic!("{problems:?}"))
}

fn question(workflow: &dyn Workflow, text: &str) -> Ask {
    let task = serde_json::from_value(serde_json::json!({"prompt": "2+3=", "label": 5})).unwrap();
    let said = Event {
        role: RoleName::new("solver").unwrap(),
        seat: 0,
        turn: 0,
        text: text.into(),
        finish: broker::protocol::turn::Finish::Stop,
        tokens: 1,
        prompt: 1,
    };
    match workflow.step(&task, 0, &[said]) {
        Step::Ask(mut asks) => asks.remove(0),
        other => panic!("{other:?}"),
    }
}

struct Played {
    folder: tempfile::TempDir,
    workflow: Arc<dyn Workflow>,
    host: Host,
}

impl Played {
    fn new(python: &str, timeout: Duration) -> Self {
        Self::within(python, timeout, 1 << 30)
    }

    fn within(python: &str, timeout: Duration, memory: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("reward.py");
        std::fs::write(&file, python).unwrap();
        let workflow = solo(&file, timeout, memory);
        Self {
            folder,
            host: Host::start(workflow.clone(), None),
            workflow,
        }
    }

    async fn ask(&self, text: &str) -> Result<String, (String, bool)> {
        let ask = question(&*self.workflow, text);
        match self.host.ask(&ask.role, &ask.messages).await {
            TurnOutcome::Done(said) => Ok(said.text),
            TurnOutcome::Failed { failure, retry } => Err((failure.to_string(), retry)),
        }
    }
}

/// Long enough for Python to start on a busy machine.
const PATIENT: Duration = Duration::from_secs(60);

const GOOD: &str = r#"
import json, sys
for line in sys.stdin:
    ask = json.loads(line)
    right = ask["text"].strip() == str(ask["task"]["label"])
    print(json.dumps({"id": ask["id"], "reward": 1.0 if right else 0.0}), flush=True)
"#;

#[tokio::test]
async fn a_program_grades() {
    let played = Played::new(GOOD, PATIENT);
    assert_eq!(played.ask("5").await, Ok(r#"{"reward":1.0}"#.into()));
    assert_eq!(played.ask("6").await, Ok(r#"{"reward":0.0}"#.into()));
}

#[tokio::test]
async fn a_misbehaving_program_restarts_and_answers_again() {
    let python = r#"
import json, os, sys, time
for line in sys.stdin:
    ask = json.loads(line)
    text = ask["text"]
    if text == "die": sys.exit(3)
    if text == "hang": time.sleep(3600)
    if text == "babble": print("hm", flush=True); continue
    if text == "flood": print("x" * (2 << 20), flush=True); continue
    if text == "stale": print(json.dumps({"id": 999999, "reward": 1}), flush=True); continue
    if text == "none": print(json.dumps({"id": ask["id"], "reward": None}), flush=True); continue
    if text == "word": print(json.dumps({"id": ask["id"], "reward": "yes"}), flush=True); continue
    if text == "sorry": print(json.dumps({"id": ask["id"], "error": "no model"}), flush=True); continue
    print(json.dumps({"id": ask["id"], "reward": 0.5}), flush=True)
"#;
    let played = Played::new(python, Duration::from_secs(10));
    for (text, reason, retry) in [
        ("die", "ended", true),
        ("babble", "not JSON", true),
        ("flood", "longer", true),
        ("stale", "id of the question", true),
        ("none", "gave no reward", false),
        ("word", "expected a number; write {\"reward\": NUMBER}", true),
        ("sorry", ".py: it says: no model", true),
        ("hang", "no answer within", true),
    ] {
        let (said, again) = played.ask(text).await.unwrap_err();
        assert!(said.contains(reason), "{text}: {said}");
        assert_eq!(again, retry, "{text}");
        assert_eq!(played.ask("good").await, Ok(r#"{"reward":0.5}"#.into()), "after {text}");
    }
}

/// The program ends by itself, or is ended because it hangs.
#[tokio::test]
async fn children_of_a_program_end_with_it() {
    let python = r#"
import json, os, subprocess, sys, time
for line in sys.stdin:
    ask = json.loads(line)
    child = subprocess.Popen(["sleep", "3600"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    with open(os.path.join(os.path.dirname(__file__), "children"), "a") as out: print(child.pid, file=out)
    if ask["text"] == "hang": time.sleep(3600)
    os._exit(1)
"#;
    let played = Played::new(python, Duration::from_secs(10));
    for text in ["die", "hang"] {
        played.ask(text).await.unwrap_err();
    }
    let children = std::fs::read_to_string(played.folder.path().join("children")).unwrap();
    let runs = |pid: &str| {
        let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // An ended process may wait for its parent as a zombie.
        state.contains("(sleep)") && !state.contains(") Z ")
    };
    assert_eq!(children.lines().count(), 2, "{children}");
    for pid in children.lines() {
        let mut left = 100;
        while runs(pid) && left > 0 {
            tokio::time::sleep(Duration::from_millis(50)).await;
            left -= 1;
        }
        assert!(!runs(pid), "{pid} still runs");
    }
}

#[tokio::test]
async fn a_program_above_its_memory_limit_ends() {
    let python = r#"
import json, sys
for line in sys.stdin:
    ask = json.loads(line)
    hoard = bytearray(1 << 30)
    print(json.dumps({"id": ask["id"], "reward": len(hoard)}), flush=True)
"#;
    let played = Played::within(python, PATIENT, 256 << 20);
    let (said, _) = played.ask("5").await.unwrap_err();
    assert!(said.contains("ended"), "{said}");
}

#[tokio::test]
async fn a_program_that_cannot_start_gives_a_failure_not_a_grade() {
    let played = Played::new("raise SystemExit('no such model')", PATIENT);
    for _ in 0..2 {
        let (said, retry) = played.ask("5").await.unwrap_err();
        assert!(said.contains("ended") && retry, "{said}");
    }
}

/// A server that answers each call with the next status and body, and repeats the last.
async fn server(answers: Vec<(&'static str, String)>) -> (String, Arc<std::sync::Mutex<Vec<String>>>) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let requests = Arc::new(std::sync::Mutex::new(Vec::new()));
    let sink = requests.clone();
    tokio::spawn(async move {
        for call in 0.. {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = Vec::new();
            // The requests end with their JSON body.
            while !request.ends_with(b"}") {
                if stream.read_buf(&mut request).await.unwrap_or(0) == 0 {
                    break;
                }
            }
            sink.lock().unwrap().push(String::from_utf8(request).unwrap());
            let (status, body) = &answers[call.min(answers.len() - 1)];
            if *status == "hang" {
                tokio::spawn(async move {
                    tokio::time::sleep(Duration::from_secs(3600)).await;
                    drop(stream);
                });
                continue;
            }
            let length = body.len();
            let head = format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}");
            let _ = stream.write_all(head.as_bytes()).await;
        }
    });
    (url, requests)
}

/// An OpenAI answer with this text.
fn says(text: &str) -> String {
    serde_json::json!({"choices": [{"message": {"role": "assistant", "content": text}}]}).to_string()
}

async fn judged(url: &str, more: serde_json::Value) -> TurnOutcome {
    let mut grader = serde_json::json!({
        "kind": "judge", "timeout": "60s",
        "judge": {"url": url, "model": "m", "scale": [0, 10], "key": "DYAD_JUDGE_KEY_THAT_IS_NOT_SET"},
    });
    for (key, value) in more.as_object().unwrap() {
        match key.as_str() {
            "tries" => grader["judge"]["tries"] = value.clone(),
            _ => grader[key] = value.clone(),
        }
    }
    let config: WorkflowConfig = serde_json::from_value(serde_json::json!({
        "kind": "solo", "group_size": 2, "roles": {"solver": "a"}, "params": {"prompts": "short"},
    }))
    .unwrap();
    let grader: GraderConfig = serde_json::from_value(grader).unwrap();
    let workflow = build(
        &config,
        &BTreeMap::from([("correct".to_owned(), grader)]),
        &BTreeMap::new(),
    )
    .unwrap();
    let host = Host::start(workflow.clone(), None);
    let ask = question(&*workflow, "it is 5");
    host.ask(&ask.role, &ask.messages).await
}

fn reward(outcome: TurnOutcome) -> Option<String> {
    match outcome {
        TurnOutcome::Done(said) => Some(said.text),
        TurnOutcome::Failed { .. } => None,
    }
}

/// The key is in no process of the tests.
#[tokio::test]
async fn failing_judge_is_named_by_its_url_and_its_key() {
    for (status, advice) in [
        ("401 Unauthorized", true),
        ("403 Forbidden", true),
        ("400 Bad Request", false),
    ] {
        let (url, _) = server(vec![(status, "no".to_owned())]).await;
        let known = url.replace("http://", "http://me:s3cret@");
        let TurnOutcome::Failed { failure, .. } = judged(&known, serde_json::json!({"tries": 1})).await else {
            panic!("{status} is a grade");
        };
        let said = failure.reason;
        assert!(
            said.contains(&format!("the judge m at {url}: answered {status}")),
            "{said}"
        );
        let named = "DYAD_JUDGE_KEY_THAT_IS_NOT_SET is not set in this process";
        assert_eq!(said.contains(named), advice, "{said}");
        let correct = "set it to the server's key";
        assert_eq!(said.contains(correct), status.starts_with("401"), "{said}");
        assert!(!said.contains("s3cret"), "{said}");
    }
}

#[tokio::test]
async fn a_judge_s_score_is_read_from_its_text() {
    let (url, requests) = server(vec![("200 OK", says("Sure:\n```json\n{'score': '7',}\n```"))]).await;
    let outcome = judged(&url, serde_json::json!({})).await;
    assert_eq!(reward(outcome).as_deref(), Some(r#"{"reward":0.7}"#));
    let requests = requests.lock().unwrap();
    assert!(
        requests[0].starts_with("POST /v1/chat/completions") && requests[0].contains("it is 5"),
        "{requests:?}"
    );
}

#[tokio::test]
async fn a_failing_judge_is_retried_and_finally_gives_no_grade() {
    let good = ("200 OK", says(r#"{"score": 10}"#));
    for bad in [
        ("500 Internal Server Error", "oops".to_owned()),
        ("429 Too Many Requests", "busy".to_owned()),
        ("200 OK", "no JSON".to_owned()),
        ("200 OK", r#"{"choices": []}"#.to_owned()),
        ("200 OK", says("I would not know")),
        ("200 OK", says(r#"{"score": 11}"#)),
        ("200 OK", "x".repeat(2 << 20)),
    ] {
        let (url, requests) = server(vec![bad.clone(), good.clone()]).await;
        let outcome = judged(&url, serde_json::json!({})).await;
        assert_eq!(reward(outcome).as_deref(), Some(r#"{"reward":1.0}"#), "{}", bad.0);
        assert_eq!(requests.lock().unwrap().len(), 2, "{}", bad.0);
        let (url, _) = server(vec![bad.clone()]).await;
        let outcome = judged(&url, serde_json::json!({"tries": 2})).await;
        assert!(
            matches!(&outcome, TurnOutcome::Failed { retry: true, failure } if failure.reason.contains("after 2 of 2 tries")),
            "{}: {outcome:?}",
            bad.0
        );
    }
    // A failure that would repeat is not retried.
    let (url, requests) = server(vec![("401 Unauthorized", "who are you".to_owned())]).await;
    let outcome = judged(&url, serde_json::json!({})).await;
    assert!(
        matches!(&outcome, TurnOutcome::Failed { failure, .. } if failure.reason.contains("401")),
        "{outcome:?}"
    );
    assert_eq!(requests.lock().unwrap().len(), 1);
    // A server that never answers, and one that does not exist.
    let (url, _) = server(vec![("hang", String::new())]).await;
    let outcome = judged(&url, serde_json::json!({"tries": 1, "timeout": "200ms"})).await;
    assert!(
        matches!(&outcome, TurnOutcome::Failed { failure, .. } if failure.reason.contains("no answer within")),
        "{outcome:?}"
    );
    let outcome = judged("http://127.0.0.1:1/v1", serde_json::json!({"tries": 1})).await;
    assert!(reward(outcome).is_none());
}

#[tokio::test]
async fn a_missing_grade_is_retried_dropped_or_null_by_policy() {
    let (url, _) = server(vec![("200 OK", says("hm"))]).await;
    let outcome = async |missing: &str| judged(&url, serde_json::json!({"tries": 1, "missing": missing})).await;
    assert!(matches!(
        outcome("retry").await,
        TurnOutcome::Failed { retry: true, .. }
    ));
    assert!(matches!(
        outcome("drop").await,
        TurnOutcome::Failed { retry: false, .. }
    ));
    assert_eq!(
        reward(outcome("tombstone").await).as_deref(),
        Some(r#"{"reward":null}"#)
    );
}
