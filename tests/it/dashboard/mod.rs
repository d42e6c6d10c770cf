//! The dashboard over a finished and a live run: what it answers, refuses and shows in a browser.

mod access;
mod answers;
mod browser;
mod changes;
mod chromium;
mod controls;
mod drawn;
mod escapes;
mod hostile;
mod limits;
mod looks;
mod memory;
mod numbers;
mod openapi;
mod origins;
mod paths;
mod report;
mod rewards;
mod secrets;
mod streams;
mod tokens;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use tests::program::{Program, Running, wait_for, wait_until};
use tests::small::Small;

const PATIENCE: Duration = Duration::from_secs(120);

/// A dashboard's address and token.
pub(crate) struct Pages {
    address: String,
    token: String,
}

/// The status, the head and the body of an answer.
struct Reply {
    status: u16,
    head: String,
    body: String,
}

/// An open stream, and all that came so far.
pub(crate) struct LiveEvents {
    stream: TcpStream,
    text: String,
}

impl LiveEvents {
    /// Reads until events of these names came. Returns all that came.
    pub(crate) fn until(mut self, events: &[&str]) -> String {
        self.read_until(|text| events.iter().all(|name| text.contains(&format!("event: {name}\n"))));
        self.text
    }

    /// Reads the first `count` events of this name.
    fn first(mut self, name: &str, count: usize) -> Vec<Value> {
        let begin = format!("event: {name}\ndata: ");
        let whole = |text: &str| -> Vec<Value> {
            let found = text.split(&begin).skip(1).filter_map(|rest| rest.split_once("\n\n"));
            found.map(|(data, _)| serde_json::from_str(data).unwrap()).collect()
        };
        self.read_until(|text| whole(text).len() >= count);
        whole(&self.text)
    }

    fn read_until(&mut self, is_enough: impl Fn(&str) -> bool) {
        let mut part = [0; 4096];
        while !is_enough(&self.text) {
            let read = self.stream.read(&mut part).unwrap();
            assert!(read > 0, "{}", self.text);
            self.text += &String::from_utf8_lossy(&part[..read]);
        }
    }
}

impl Pages {
    /// Waits for the URL, which is the first line that the program prints. On standard error it
    /// may say before that a busy server is slow.
    pub(crate) fn of(running: &Running) -> Self {
        const NOTE: &str = "waiting for the message broker and the state store to answer\n";
        let url = wait_for("the dashboard's URL", PATIENCE, || {
            let log = running.log();
            let (first, _) = log.strip_prefix(NOTE).unwrap_or(&log).split_once('\n')?;
            Some(first.to_owned())
        });
        let rest = url.strip_prefix("http://").unwrap_or_else(|| panic!("{url}"));
        let (address, token) = rest.split_once('/').unwrap();
        Self {
            address: address.to_owned(),
            token: token.strip_prefix("#token=").unwrap_or_default().to_owned(),
        }
    }

    /// Connects and sends a request. Returns the connection.
    fn begin(&self, request: &str) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        stream
    }

    /// Opens a stream of a run: later events of the topic will come.
    pub(crate) fn stream(&self, run: &str, topic: &str) -> LiveEvents {
        let (address, token) = (&self.address, &self.token);
        let stream = self.begin(&format!(
            "GET /api/runs/{run}/stream?topics={topic} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\n\r\n"
        ));
        let mut events = LiveEvents {
            stream,
            text: String::new(),
        };
        events.read_until(|text| text.contains("\r\n\r\n"));
        assert!(events.text.starts_with("HTTP/1.1 200"), "{}", events.text);
        events
    }

    fn send(&self, request: &str) -> Reply {
        let mut bytes = Vec::new();
        self.begin(request).read_to_end(&mut bytes).unwrap();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{text}"));
        Reply {
            status: head.split(' ').nth(1).unwrap().parse().unwrap(),
            head: head.to_lowercase(),
            body: body.to_owned(),
        }
    }

    fn request(&self, method: &str, path: &str, host: &str, token: &str) -> Reply {
        self.send(&format!(
            "{method} {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n"
        ))
    }

    fn get(&self, path: &str) -> Reply {
        self.request("GET", path, &self.address, &self.token)
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        let (host, token, body) = (&self.address, &self.token, body.to_string());
        let reply = self.send(&format!(
            "POST {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        ));
        (reply.status, serde_json::from_str(&reply.body).unwrap())
    }

    /// Pauses and resumes a run, and waits for each phase of agent a.
    pub(crate) fn pause_and_resume(&self, run: &str) {
        let api = |path: &str| format!("/api/runs/{run}/{path}");
        for (order, phase) in [("pause", "paused"), ("resume", "running")] {
            let (status, answer) = self.post(&api("orders"), &json!({"order": order}));
            assert_eq!(status, 200, "{answer}");
            wait_until(phase, PATIENCE, || {
                self.json(&api("status"))["live"]["agents"]["a"]["run"]["phase"] == phase
            });
        }
    }

    pub(crate) fn json(&self, path: &str) -> Value {
        let reply = self.get(path);
        assert_eq!(reply.status, 200, "{path}: {}", reply.body);
        assert!(reply.head.contains("content-type: application/json"), "{}", reply.head);
        serde_json::from_str(&reply.body).unwrap()
    }
}

/// A signal game that writes every conversation and evaluates twice.
fn config() -> Small {
    Small::new()
        .set("run.transcripts", "all")
        .set("run.train_steps", 4)
        .set("workflow.group_size", 8)
        .set("eval.every", 2)
        .set("eval.source", "generator:signal")
        .set("eval.tasks", 4)
        .set("eval.params.objects", 16)
}

/// Makes the folder of a run that was stopped, without playing it. Returns the id.
fn stopped_run(program: &Program) -> String {
    let run = "stopped-00000000";
    let folder = program.runs().join(run);
    std::fs::create_dir_all(folder.join("logs")).unwrap();
    let _ = config().write(&folder.join("config.toml"));
    let line = json!({"level": "INFO", "message": "a line of agent a"});
    let info = json!({"run": run, "name": "stopped", "seed": 1, "version": "1", "created_ms": 1});
    let end = json!({"stopped": {"reason": "for a test", "at_ms": 1}});
    for (file, content) in [("logs/a.jsonl", line), ("run.json", info), ("ended.json", end)] {
        std::fs::write(folder.join(file), format!("{content}\n")).unwrap();
    }
    run.to_owned()
}

/// Shows a run, or all runs if it is empty, with the program that users start.
pub(crate) fn serve(program: &Program, run: &str, more: &[&str]) -> Running {
    serve_with(program, run, more, &[])
}

/// Shows runs like [`serve`], with more environment.
fn serve_with(program: &Program, run: &str, more: &[&str], environment: &[(&str, &str)]) -> Running {
    let runs = program.runs();
    let args = ["--listen", "127.0.0.1:0", "--runs", runs.to_str().unwrap()];
    let which: &[&str] = if run.is_empty() { &[] } else { &[run] };
    let args = [&["dashboard"], which, &args, more].concat();
    program.with_binary(crate::LIGHT).start_with(&args, environment)
}

/// Returns what a command prints with `--json`.
fn printed(program: &Program, args: &[&str]) -> Vec<Value> {
    let runs = program.runs();
    let output = program.output(&[args, &["--json", "--runs", runs.to_str().unwrap()]].concat());
    let text = String::from_utf8(output.stdout).unwrap();
    let values = serde_json::Deserializer::from_str(&text).into_iter::<Value>();
    values.map(Result::unwrap).collect()
}

fn id(run: &Path) -> String {
    run.file_name().unwrap().to_str().unwrap().to_owned()
}
