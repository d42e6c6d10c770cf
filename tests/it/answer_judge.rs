//! `configs/programs/answer_judge.py`: a large model behind an OpenAI-compatible server decides
//! whether an answer means the same as the label. The server here is one with fixed words.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

use serde_json::{Value, json};
use tests::kit;
use tests::ports::quiet_port;
use tests::program::Program;

use crate::program;

const KEY: &str = "key-of-the-judge";

/// A received request: the path, the `authorization` header and the body.
type Asked = (String, String, Value);

/// Starts a server that answers one request after another with a status and a body.
fn serve(answers: Vec<(u16, String)>) -> (String, Receiver<Asked>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let (sender, asked) = channel();
    std::thread::spawn(move || {
        for (status, body) in answers {
            let (stream, _) = listener.accept().unwrap();
            let _ = sender.send(answer(stream, status, &body));
        }
    });
    (url, asked)
}

fn answer(mut stream: TcpStream, status: u16, body: &str) -> Asked {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut first = String::new();
    reader.read_line(&mut first).unwrap();
    let (mut length, mut key) = (0, String::new());
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        let Some((name, value)) = line.trim().split_once(": ") else {
            break;
        };
        match name.to_lowercase().as_str() {
            "content-length" => length = value.parse().unwrap(),
            "authorization" => key = value.to_owned(),
            _ => {}
        }
    }
    let mut request = vec![0; length];
    reader.read_exact(&mut request).unwrap();
    let size = body.len();
    let head = format!(
        "HTTP/1.1 {status} Said\r\nContent-Type: application/json\r\nContent-Length: {size}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
    let path = first.split(' ').nth(1).unwrap_or_default().to_owned();
    (path, key, serde_json::from_slice(&request).unwrap())
}

/// Returns a chat completion with these words.
fn says(words: &str) -> (u16, String) {
    let body = json!({"choices": [{"message": {"role": "assistant", "content": words}}]});
    (200, body.to_string())
}

/// Returns the program's answers to these questions.
fn judge(url: Option<&str>, questions: &[Value]) -> Vec<Value> {
    let mut command = Command::new("python3");
    command
        .arg(Program::root().join("configs/programs/answer_judge.py"))
        .env_remove("JUDGE_URL")
        .env("NO_PROXY", "127.0.0.1")
        .env("no_proxy", "127.0.0.1")
        .env("JUDGE_MODEL", "large")
        .env("JUDGE_KEY", KEY)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    if let Some(url) = url {
        command.env("JUDGE_URL", url);
    }
    let mut child = command.spawn().unwrap();
    let lines: String = questions.iter().map(|question| format!("{question}\n")).collect();
    child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8(output.stdout).unwrap();
    said.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn question(id: u64, text: &str, prompt: &Value) -> Value {
    json!({"id": id, "kind": "grade", "role": "solver", "text": text,
           "task": {"prompt": prompt, "label": ["the blue whale", "blauwal"], "metadata": {}}})
}

#[test]
fn the_last_verdict_counts_and_a_missing_one_is_an_error() {
    let answers = vec![
        says("{\"same\": true}"),
        says("They differ: {\"same\": false}"),
        says("At first {\"same\": false}, but no: {\"same\" : true}."),
        says("{\"same\": true} was wrong. {\"same\":false}"),
        says("yes"),
        says("{\"same\": \"true\"}"),
        (200, "no JSON".to_owned()),
        (200, "{\"choices\": []}".to_owned()),
        (500, "{}".to_owned()),
        says("{\"same\": true}"),
    ];
    let count = answers.len() as u64;
    let (url, _asked) = serve(answers);
    let questions: Vec<Value> = (0..count)
        .map(|id| question(id, "whales", &json!("Largest?")))
        .collect();
    let said = judge(Some(&url), &questions);
    let ids: Vec<u64> = said.iter().map(|one| one["id"].as_u64().unwrap()).collect();
    assert_eq!(ids, (0..count).collect::<Vec<_>>());
    let rewards: Vec<Option<f64>> = said.iter().map(|one| one["reward"].as_f64()).collect();
    let (yes, no) = (Some(1.0), Some(0.0));
    assert_eq!(rewards, [yes, no, yes, no, None, None, None, None, None, yes]);
    for (at, reason) in [
        (4, "same"),
        (5, "same"),
        (6, "JSONDecodeError"),
        (7, "IndexError"),
        (8, "500"),
    ] {
        let error = said[at]["error"].as_str().unwrap();
        assert!(error.contains(reason), "{error}");
    }
}

#[test]
fn the_judge_is_shown_question_labels_and_the_answer_alone() {
    let (url, asked) = serve(vec![says("{\"same\": true}"); 3]);
    let tagged = "<think>a {shark}?</think><answer>no</answer> but <answer>the\n{whale}</answer>";
    let messages = json!([{"role": "system", "content": "rules"}, {"role": "user", "content": "Largest {animal}?"}]);
    let talk = json!([{"role": "system", "content": "rules"}, {"role": "user", "content": "Animals!"},
                      {"role": "assistant", "content": "Yes?"}, {"role": "user", "content": "Which is largest?"}]);
    let questions = [
        question(1, tagged, &messages),
        question(2, "a whale, I think", &json!("Largest?")),
        question(3, "whales", &talk),
    ];
    let said = judge(Some(&url), &questions);
    assert_eq!(said, [1, 2, 3].map(|id| json!({"id": id, "reward": 1.0})));
    let asked: Vec<Asked> = asked.iter().collect();
    assert_eq!(asked.len(), 3);
    for (path, key, body) in &asked {
        assert_eq!(
            (path.as_str(), key.clone()),
            ("/v1/chat/completions", format!("Bearer {KEY}"))
        );
        assert_eq!((&body["model"], &body["temperature"]), (&json!("large"), &json!(0)));
        assert_eq!(body["messages"].as_array().unwrap().len(), 1);
    }
    let prompt = |at: usize| asked[at].2["messages"][0]["content"].as_str().unwrap();
    assert!(prompt(0).starts_with(
        "QUESTION: Largest {animal}?\nRIGHT ANSWER (of several, each is right): [\"the blue whale\", \"blauwal\"]\n\
         GIVEN ANSWER: the\n{whale}\n\n"
    ));
    assert!(prompt(0).ends_with("{\"same\": true} or {\"same\": false}.") && !prompt(0).contains("rules"));
    assert!(prompt(1).contains("GIVEN ANSWER: a whale, I think\n"));
    // Earlier messages are a part of the question.
    let all = "QUESTION: user: Animals!\n\nassistant: Yes?\n\nuser: Which is largest?\nRIGHT ANSWER";
    assert!(prompt(2).starts_with(all), "{}", prompt(2));
}

#[test]
fn a_judge_that_is_not_there_is_an_error_and_no_zero() {
    let url = format!("http://127.0.0.1:{}/v1", quiet_port());
    let whales = question(3, "whales", &json!("Largest?"));
    for (url, reason) in [(Some(url.as_str()), "URLError"), (None, "JUDGE_URL")] {
        let said = judge(url, std::slice::from_ref(&whales));
        assert_eq!((said.len(), &said[0]["id"]), (1, &json!(3)));
        assert!(
            said[0]["reward"].is_null() && said[0]["error"].as_str().unwrap().contains(reason),
            "{said:?}"
        );
    }
}

#[test]
fn a_coordinator_rewards_as_the_judge_decides() {
    let (yes, no) = (says("{\"same\": true}"), says("{\"same\": false}"));
    let (url, asked) = serve(vec![yes.clone(), no.clone(), yes, no]);
    let program = program();
    let config = kit::solo()
        .without("agents.verifier")
        .set("graders.correct.kind", "process:configs/programs/answer_judge.py")
        .set("graders.correct.timeout", "120s")
        .save(&program);
    let task = ["--task", "configs/programs/task.json", "--members", "4"];
    let args = [
        &["workflow", "test", &config][..],
        &task,
        &["--say", "solver=5", "--json"],
    ]
    .concat();
    let output = program
        .command(&args)
        .envs([
            ("JUDGE_URL", url.as_str()),
            ("JUDGE_MODEL", "large"),
            ("JUDGE_KEY", KEY),
        ])
        .envs([("NO_PROXY", "127.0.0.1"), ("no_proxy", "127.0.0.1")])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let printed = String::from_utf8_lossy(&output.stdout);
    let transcripts = printed.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let mut rewards: Vec<f64> = transcripts
        .map(|one| {
            one["rewards"]["solver"]["correct"]
                .as_f64()
                .unwrap_or_else(|| panic!("no reward: {one}"))
        })
        .collect();
    rewards.sort_by(f64::total_cmp);
    assert_eq!(rewards, [0.0, 0.0, 1.0, 1.0]);
    assert_eq!(asked.iter().count(), 4);
}

#[test]
fn a_judge_that_rejects_a_temperature_is_asked_without_it() {
    let refused = (
        400,
        json!({"error": {"message": "Unsupported value: temperature"}}).to_string(),
    );
    let (url, asked) = serve(vec![refused, says("{\"same\": true}")]);
    let said = judge(Some(&url), &[question(1, "whales", &json!("Largest?"))]);
    assert_eq!(said, [json!({"id": 1, "reward": 1.0})]);
    let bodies: Vec<Value> = asked.iter().map(|(_, _, body)| body).collect();
    assert!(
        bodies[0]["temperature"].is_number() && bodies[1]["temperature"].is_null(),
        "{bodies:?}"
    );
}

/// Plays one conversation with dyad's own judge at `url`, and returns what was printed.
fn judged_at(url: &str, environment: &[(&str, &str)]) -> String {
    let program = program();
    let config = kit::solo()
        .without("agents.verifier")
        .set("workflow.retries", 1)
        .set("graders.correct.kind", "judge")
        .set("graders.correct.timeout", "20s")
        .set("graders.correct.judge.url", url)
        .set("graders.correct.judge.model", "large")
        .set("graders.correct.judge.tries", 1)
        .save(&program);
    let args = [
        "workflow",
        "test",
        &config,
        "--task",
        "configs/programs/task.json",
        "--members",
        "2",
    ];
    let mut command = program.command(&[&args[..], &["--say", "solver=5", "--json"]].concat());
    let output = command.envs(environment.iter().copied()).output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[test]
fn a_judge_is_asked_through_the_proxy_of_the_environment() {
    let (proxy, asked) = serve(vec![says("{\"score\": 1}"); 2]);
    let proxy = proxy.trim_end_matches("/v1").to_owned();
    let plain = [
        ("HTTP_PROXY", proxy.as_str()),
        ("http_proxy", &proxy),
        ("DYAD_ALLOW_PLAINTEXT", "1"),
        ("NO_PROXY", "other.example"),
        ("no_proxy", "other.example"),
    ];
    let printed = judged_at("http://judge.example/v1", &plain);
    assert!(printed.contains("\"correct\":1"), "{printed}");
    let paths: Vec<String> = asked.iter().map(|(path, _, _)| path).collect();
    assert_eq!(paths, ["http://judge.example/v1/chat/completions"; 2]);
    // A judge of this machine is reached directly, whatever the environment says.
    let (near, asked) = serve(vec![says("{\"score\": 1}"); 2]);
    let gone = format!("http://127.0.0.1:{}", quiet_port());
    let printed = judged_at(
        &near,
        &[
            ("HTTP_PROXY", &gone),
            ("http_proxy", &gone),
            ("NO_PROXY", ""),
            ("no_proxy", ""),
        ],
    );
    assert!(printed.contains("\"correct\":1"), "{printed}");
    assert_eq!(asked.iter().count(), 2);
}

/// Starts a server that refuses every request. Returns the first line of each; the line of a
/// connection with TLS is not readable.
fn refuse() -> (SocketAddr, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut bytes = [0; 1024];
            let length = stream.read(&mut bytes).unwrap_or(0);
            let text = String::from_utf8_lossy(&bytes[..length]);
            let _ = sender.send(text.lines().next().unwrap_or_default().to_owned());
            let _ = stream.write_all(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n");
        }
    });
    (address, lines)
}

#[test]
fn a_judge_with_tls_is_asked_through_a_tunnel_of_the_proxy() {
    let ((proxy, tunnels), (judge, direct)) = (refuse(), refuse());
    let proxy = format!("http://{proxy}");
    // This address leads to this machine, but is no loopback address: a proxy may serve it.
    let here = format!("0.0.0.0:{}", judge.port());
    for (server, excepted, asked) in [
        ("judge.example", "other.example", Some("judge.example:443")),
        (&here, "other.example", Some(&*here)),
        (&here, "other.example,0.0.0.0", None),
    ] {
        let environment = [
            ("HTTPS_PROXY", proxy.as_str()),
            ("https_proxy", &proxy),
            ("NO_PROXY", excepted),
            ("no_proxy", excepted),
        ];
        let printed = judged_at(&format!("https://{server}/v1"), &environment);
        let made: BTreeSet<String> = tunnels.try_iter().collect();
        let wanted = asked.map(|asked| format!("CONNECT {asked} HTTP/1.1"));
        let wanted: BTreeSet<String> = wanted.into_iter().collect();
        assert_eq!(made, wanted, "NO_PROXY={excepted}: {printed}");
        let is_direct = direct.try_iter().count() > 0;
        assert_eq!(is_direct, asked.is_none(), "NO_PROXY={excepted}: {printed}");
    }
}
