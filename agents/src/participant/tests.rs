//! Programs that behave and programs that do not, run for real.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use broker::protocol::turn::TurnOutcome;
use broker::{AgentName, RoleName};
use configs::{ByteSize, GraderConfig, HumanDuration, WorkflowConfig};
use rollout::workflow::{Ask, Event, Step, Workflow, build};

use super::Host;

/// `solo` with a program for its grader.
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
    };
    let _ = AgentName::new("a").unwrap();
    build(&config, &BTreeMap::from([("correct".to_owned(), grader)])).unwrap_or_else(|problems| panic!("{problems:?}"))
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
    };
    match workflow.step(&task, 0, &[said]) {
        Step::Ask(mut asks) => asks.remove(0),
        Step::Done(outcome) => panic!("{outcome:?}"),
    }
}

struct Played {
    _folder: tempfile::TempDir,
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
            _folder: folder,
            host: Host::start(workflow.clone()),
            workflow,
        }
    }

    async fn ask(&self, text: &str) -> Result<String, (String, bool)> {
        let ask = question(&*self.workflow, text);
        match self.host.ask(&ask.role, &ask.messages).await {
            TurnOutcome::Done(said) => Ok(said.text),
            TurnOutcome::Failed { reason, retry } => Err((reason, retry)),
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
async fn a_program_that_dies_hangs_or_babbles_is_started_again_and_answers_the_next() {
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
        ("sorry", "no model", true),
        ("hang", "no answer within", true),
    ] {
        let (said, again) = played.ask(text).await.unwrap_err();
        assert!(said.contains(reason), "{text}: {said}");
        assert_eq!(again, retry, "{text}");
        assert_eq!(played.ask("good").await, Ok(r#"{"reward":0.5}"#.into()), "after {text}");
    }
}

#[tokio::test]
async fn a_program_gets_no_more_memory_than_it_may_have() {
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
async fn a_program_that_cannot_start_is_a_failure_and_no_grade() {
    let played = Played::new("raise SystemExit('no such model')", PATIENT);
    for _ in 0..2 {
        let (said, retry) = played.ask("5").await.unwrap_err();
        assert!(said.contains("ended") && retry, "{said}");
    }
}
