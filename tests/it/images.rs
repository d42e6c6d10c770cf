//! Messages with images, from tasks over queues and prompts to a server with vision.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use tests::ports::quiet_port;
use tests::program::{Program, json_folder, metrics};
use tests::trace::{nothing_lost, successes, transcripts};

use crate::program;

/// The server of the recipe, ended with the test.
struct Server(Child);

impl Server {
    fn start() -> (Self, String) {
        let program = Program::root().join("configs/programs/vision_server.py");
        let mut child = Command::new("python3")
            .arg(program)
            .arg("0")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut url = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut url)
            .unwrap();
        (Self(child), url.trim().to_owned())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Writes the recipe with another server and returns its path.
fn config(folder: &Path, url: &str) -> String {
    std::fs::create_dir_all(folder).unwrap();
    let text = std::fs::read_to_string(Program::root().join("configs/image-turns.toml")).unwrap();
    let changed = text.replace("http://127.0.0.1:8200", url);
    assert_ne!(text, changed);
    let file = folder.join("image-turns.toml");
    std::fs::write(&file, changed).unwrap();
    file.to_str().unwrap().to_owned()
}

#[test]
fn the_seeing_agent_gets_pictures_and_the_other_learns_from_it() {
    let (_server, url) = Server::start();
    let program = program();
    let runs = program.runs();
    let config = config(&runs, &url);
    let folder = program.play("up", &config, &[]);
    let named: Vec<f64> = metrics(&folder, "eval")
        .iter()
        .map(|line| line["first"].as_f64().unwrap())
        .collect();
    assert!(named.len() >= 2 && named.iter().all(|part| *part == 1.0), "{named:?}");
    let found = successes(&folder);
    let (first, last) = (found.first().unwrap().1, found.last().unwrap().1);
    assert!(last > 0.9 && last > first + 0.3, "{found:?}");
    nothing_lost(&folder, "a");
}

/// Returns `count` tasks with a picture in the prompt and a second one in the metadata. The label
/// names the colours of both.
fn pairs_of_pictures(count: usize) -> String {
    let text = std::fs::read_to_string(Program::root().join("configs/data/colours.jsonl")).unwrap();
    let pictures: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let colour = |task: &Value| task["label"].as_str().unwrap().to_owned();
    let pair = |at: usize| {
        let first = &pictures[at];
        let second = pictures
            .iter()
            .rev()
            .find(|other| colour(other) != colour(first))
            .unwrap();
        let url = &second["prompt"][0]["content"][0]["image_url"]["url"];
        assert!(url.is_string());
        let label = format!("{} {}", colour(first), colour(second));
        format!(
            "{}\n",
            json!({"prompt": first["prompt"], "label": label, "metadata": {"second": url}})
        )
    };
    (0..count).map(pair).collect()
}

#[test]
fn a_second_picture_in_a_later_turn_is_seen_with_the_first() {
    let (_server, url) = Server::start();
    let program = program();
    let runs = program.runs();
    std::fs::create_dir_all(&runs).unwrap();
    let tasks = runs.join("pairs.jsonl");
    std::fs::write(&tasks, pairs_of_pictures(4)).unwrap();
    let config = runs.join("pairs.toml");
    let text = format!(
        r#"
        [run]
        name = "pairs"
        mode = "async"
        train_steps = 2
        lead = "a"
        transcripts = "all"
        [tasks]
        source = "jsonl:{}"
        [workflow]
        kind = "process:configs/programs/image_turns.py"
        group_size = 2
        process = {{ timeout = "120s" }}
        roles = {{ eye = "eye", reader = "a" }}
        [agents.eye]
        model.served = "colours"
        engine = {{ kind = "openai", urls = ["{url}"] }}
        train.enabled = false
        sampling = {{ temperature = 0.0, max_new_tokens = 16 }}
        [agents.a]
        sampling = {{ temperature = 1.0, max_new_tokens = 2 }}
        train.batch_groups = 2
        [agents.a.model.random]
        layers = 1
        hidden = 32
        heads = 2
        max_context = 64
        tokenizer = "bytes"
        "#,
        tasks.display()
    );
    std::fs::write(&config, text).unwrap();
    let folder = program.play("run", config.to_str().unwrap(), &[]);
    let mut transcripts = transcripts(&folder);
    transcripts.retain(|one| one["status"] != "failed");
    assert!(
        transcripts.len() >= 8,
        "two steps of two groups of two: {}",
        transcripts.len()
    );
    for transcript in transcripts {
        let turns = transcript["turns"].as_array().unwrap();
        let said = |turn: u64| {
            let own = |one: &&Value| one["role"] == "eye" && one["turn"] == turn;
            turns.iter().find(own).unwrap_or_else(|| panic!("{transcript}"))["text"]
                .as_str()
                .unwrap()
        };
        let label = transcript["label"].as_str().unwrap();
        // In its second turn the server has the whole chat, and so both pictures.
        assert_eq!(
            (said(0), said(1)),
            (label.split(' ').next().unwrap(), label),
            "{transcript}"
        );
    }
    nothing_lost(&folder, "a");
}

/// A program that shows a picture to an agent without vision: now, or in a part of the chat that
/// was answered.
const SHOWING: &str = r#"
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    said = [event["text"] for event in asked["events"] if event["role"] == "reader"]
    picture = {"type": "image_url", "image_url": {"url": "https://x.org/a.png"}}
    chat = [{"role": "user", "content": [picture, {"type": "text", "text": "look"}]}]
    if asked["task"]["label"] == "past":
        chat += [{"role": "assistant", "content": "red"}, {"role": "user", "content": "so?"}]
    if said:
        earned = [{"role": "reader", "parts": {"reward": len(said[0]) % 2}}]
        out = {"done": {"rewards": earned, "metrics": {"success": 1}}}
    else:
        out = {"ask": [{"role": "reader", "messages": chat}]}
    print(json.dumps({"id": asked["id"], **out}), flush=True)
"#;

/// Writes its run and its tasks; the first task shows the picture now.
fn showing(folder: &Path) -> (String, String) {
    std::fs::create_dir_all(folder).unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let program = file("showing.py", SHOWING);
    let task = |label: &str| format!("{}\n", json!({"prompt": "x", "label": label}));
    let tasks = file("showing.jsonl", &["now", "past", "past", "past"].map(task).concat());
    let text = format!(
        r#"
        [run]
        name = "showing"
        mode = "async"
        transcripts = "all"
        train_steps = 2
        lead = "a"
        [tasks]
        source = "jsonl:{tasks}"
        [workflow]
        kind = "process:{program}"
        group_size = 2
        process = {{ timeout = "120s" }}
        roles = {{ reader = "a" }}
        [agents.a]
        sampling = {{ temperature = 1.0, max_new_tokens = 2 }}
        train.batch_groups = 2
        [agents.a.model.random]
        layers = 1
        hidden = 32
        heads = 2
        max_context = 256
        tokenizer = "bytes"
        "#
    );
    (file("showing.toml", &text), tasks)
}

/// Returns true if the transcript reports a turn that no engine can play.
fn is_refused(transcript: &Value) -> bool {
    let status = transcript["status"].as_str().unwrap();
    [
        "failed: ",
        "agent a as reader",
        "https://x.org/a.png",
        "takes no images",
        "openai",
    ]
    .iter()
    .all(|part| status.contains(part))
}

#[test]
fn a_picture_for_an_agent_without_vision_fails_the_turn_by_name() {
    let program = program();
    let (config, tasks) = showing(&program.runs());
    let test = ["workflow", "test", config.as_str(), "--task", tasks.as_str(), "--json"];
    for more in [None, Some("--engine")] {
        let args: Vec<&str> = test.into_iter().chain(more).collect();
        let output = program.output(&args);
        let said = String::from_utf8(output.stdout).unwrap();
        let played: Vec<Value> = said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(played.len(), 4, "{said}{}", String::from_utf8_lossy(&output.stderr));
        assert!(is_refused(&played[0]), "{more:?}: {}", played[0]);
        let weights = more.map_or("", |_| "as the configuration begins");
        for past in &played[1..] {
            assert!(past["rewards"]["reader"].is_object(), "{more:?}: {past}");
            assert_eq!(past["turns"][0]["version"], weights, "{more:?}: {past}");
        }
    }
}

#[test]
fn unseen_pictures_train_no_agent_and_are_logged_once() {
    let program = program();
    let runs = program.runs();
    let (config, _) = showing(&runs);
    let folder = runs.join("made");
    program.succeed(&["run", &config, "--folder", folder.to_str().unwrap()]);
    let mut made = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
    let run = made.find(|path| path.join("config.toml").exists()).unwrap();
    let transcripts = transcripts(&run);
    let of = |label: &'static str| transcripts.iter().filter(move |one| one["label"] == label);
    let failed = |one: &&Value| one["status"].as_str().unwrap().starts_with("failed: ");
    assert!(of("now").all(|one| failed(&one)), "{transcripts:?}");
    assert!(of("now").any(is_refused), "{transcripts:?}");
    let played = of("past").filter(|one| !failed(one)).count();
    assert!(played >= 8, "two steps of two groups of two: {transcripts:?}");
    let logged = json_folder(&run.join("logs"));
    let warned = logged
        .iter()
        .filter(|line| line.to_string().contains("of messages with images"));
    assert_eq!(warned.count(), 1, "{logged:?}");
}

/// Plays as `make recipes` does: the server runs next to the run and ends after it.
#[test]
#[ignore = "slow: `make test-long`; its neighbours show the same promise"]
fn the_table_of_recipes_brings_the_server() {
    let program = program();
    let runs = program.runs();
    let port = quiet_port();
    let file = config(&runs, &format!("http://127.0.0.1:{port}"));
    std::os::unix::fs::symlink(Program::root().join("configs/programs"), runs.join("programs")).unwrap();
    let base = runs.join("base");
    let printed = program.succeed(&["recipes", &file, "--steps", "2", "--folder", base.to_str().unwrap()]);
    assert!(printed.contains("image-turns: ok"), "{printed}");
    let asked = std::net::TcpStream::connect(("127.0.0.1", port));
    assert!(asked.is_err(), "the server is still there");
}
