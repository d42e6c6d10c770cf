//! The dashboard over a finished and a live run: what it answers, refuses and shows in a browser.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use tests::program::{Program, Running, json_folder, wait_for};
use tests::small::Small;

use crate::program;

const PATIENCE: Duration = Duration::from_secs(120);
const SECRET: &str = "hunter2-of-the-broker";

/// A dashboard's address and token.
struct Pages {
    address: String,
    token: String,
}

/// The status, the head and the body of an answer.
struct Reply {
    status: u16,
    head: String,
    body: String,
}

impl Pages {
    /// Waits for the URL, which is the first line that the program prints.
    fn of(running: &Running) -> Self {
        let url = wait_for("the dashboard's URL", PATIENCE, || {
            let log = running.log();
            let (first, _) = log.split_once('\n')?;
            Some(first.to_owned())
        });
        let rest = url.strip_prefix("http://").unwrap_or_else(|| panic!("{url}"));
        let (address, token) = rest.split_once('/').unwrap();
        Self {
            address: address.to_owned(),
            token: token.strip_prefix("#token=").unwrap_or_default().to_owned(),
        }
    }

    fn send(&self, request: &str) -> Reply {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
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

    fn json(&self, path: &str) -> Value {
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

fn serve(program: &Program, run: &str, more: &[&str]) -> Running {
    let runs = program.runs();
    let args = [
        "dashboard",
        run,
        "--listen",
        "127.0.0.1:0",
        "--runs",
        runs.to_str().unwrap(),
    ];
    program.start(&[&args, more].concat())
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

#[test]
fn finished_run_is_shown_as_its_commands_print_it() {
    let program = program();
    let folder = program.play("run", &config().save(&program), &[]);
    let run = id(&folder);
    let running = serve(&program, "latest", &[]);
    let pages = Pages::of(&running);
    let api = |path: &str| pages.json(&format!("/api/runs/{run}/{path}"));

    assert_eq!(api("status"), printed(&program, &["status"])[0]);
    assert_eq!(api("audit")["audit"], printed(&program, &["audit"])[0]);
    assert_eq!(api("audit")["violations"], serde_json::json!([]));
    let listed = api("conversations?limit=200");
    let listed = listed["conversations"].as_array().unwrap();
    assert!(listed.len() > 60, "{} conversations", listed.len());
    let trained = listed.iter().find(|one| one["eval"] == false).unwrap();
    let conversation = trained["conversation"].as_str().unwrap();
    let shown = api(&format!("conversations/{conversation}"));
    assert_eq!(
        shown["transcript"],
        printed(&program, &["conversation", conversation])[0]
    );
    let verdicts = shown["custody"]["agents"]["a"]["verdicts"].as_array().unwrap();
    assert_eq!(verdicts.len(), 8, "one for each member: {verdicts:?}");
    assert!(
        verdicts
            .iter()
            .all(|verdict| verdict["reason"].is_null() && verdict["step"].as_u64() > Some(0))
    );
    let group = api(&format!("groups/{}", conversation.split('/').next().unwrap()));
    assert_eq!(group["members"].as_array().unwrap().len(), 8);
    let rest = api("conversations?limit=3");
    let next = api(&format!(
        "conversations?limit=3&cursor={}",
        rest["next"].as_str().unwrap()
    ));
    assert_ne!(rest["conversations"][2], next["conversations"][0]);

    let curve = &api("series?name=train:reward/mean")["series"];
    let lines = tests::program::metrics(&folder, "train");
    for one in curve.as_array().unwrap() {
        let of_agent = lines.iter().filter(|line| line["agent"] == one["of"]);
        let values: Vec<&Value> = of_agent.map(|line| &line["reward/mean"]).collect();
        assert_eq!(one["mean"].as_array().unwrap().iter().collect::<Vec<_>>(), values);
    }
    assert_eq!(curve.as_array().unwrap().len(), 2);
    assert!(api("series/names")["names"].as_array().unwrap().len() > 20);

    let evaluations = api("evaluations");
    let last = evaluations["evaluations"].as_array().unwrap().last().unwrap();
    let status = api("status");
    assert_eq!(last["figures"]["success"]["mean"], status["metrics"]["eval"]["success"]);
    let logs = api("logs");
    for log in logs["logs"].as_array().unwrap() {
        let name = log["process"].as_str().unwrap();
        let lines = api(&format!("logs/{name}?level=trace"));
        let lines: Vec<Value> = lines["lines"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one["line"].clone())
            .collect();
        assert_eq!(lines, printed(&program, &["logs", name]), "{name}");
    }
    assert!(api("config")["toml"].as_str().unwrap().contains("group_size = 8"));
    assert!(api("letters")["offline"].as_str().is_some());
    let runs = pages.json("/api/runs");
    assert_eq!(runs["runs"][0]["run"], run.as_str());
    assert_eq!(runs["runs"][0]["step"], 4);
    let stream = pages.get(&format!("/api/runs/{run}/stream?topics=turns"));
    assert_eq!(stream.status, 503, "an ended run has no turns: {}", stream.body);
}

#[test]
fn foreign_requests_are_refused_and_secrets_stay() {
    let program = program();
    let folder = program.play("run", &config().save(&program), &[]);
    let run = id(&folder);
    let urls =
        format!("{{\"broker\":\"amqp://u:{SECRET}@127.0.0.1:1/%2f\",\"state\":\"redis://:{SECRET}@127.0.0.1:2\"}}");
    std::fs::write(folder.join("connection.json"), urls).unwrap();
    let text = std::fs::read_to_string(folder.join("config.toml")).unwrap();
    let broker = format!("broker = \"amqp://u:{SECRET}@127.0.0.1:1/%2f\"");
    std::fs::write(
        folder.join("config.toml"),
        text.replace("broker = \"memory:\"", &broker),
    )
    .unwrap();
    let running = serve(&program, &run, &[]);
    let pages = Pages::of(&running);
    assert_eq!(pages.token.len(), 64);

    let status = |method: &str, path: &str, host: &str, token: &str| pages.request(method, path, host, token).status;
    let (api, own) = ("/api/runs", pages.address.as_str());
    assert_eq!(status("GET", api, own, &pages.token), 200);
    assert_eq!(status("GET", api, own, "wrong"), 401);
    assert_eq!(status("GET", &format!("{api}?token={}", pages.token), own, ""), 401);
    for path in [api, "/", "/app.js", "/healthz"] {
        assert_eq!(status("GET", path, "evil.example", &pages.token), 403, "{path}");
    }
    for method in ["POST", "PUT", "DELETE", "OPTIONS"] {
        assert_eq!(status(method, api, own, &pages.token), 405, "{method}");
    }
    for path in [
        "/",
        "/app.js",
        "/app.css",
        "/uplot.iife.min.js",
        "/uplot.min.css",
        "/healthz",
    ] {
        let reply = pages.request("GET", path, own, "");
        assert_eq!(reply.status, 200, "{path}");
        for header in [
            "content-security-policy: default-src 'none'",
            "nosniff",
            "x-frame-options: deny",
        ] {
            assert!(reply.head.contains(header), "{path}: {}", reply.head);
        }
    }

    let mut paths: Vec<String> = [
        "facts",
        "status",
        "series?name=*",
        "series/names",
        "conversations",
        "evaluations",
        "logs",
    ]
    .iter()
    .chain(&[
        "audit",
        "letters",
        "config",
        "logs/a",
        "logs/b",
        "logs/run",
        "stream?topics=turns",
    ])
    .map(|part| format!("/api/runs/{run}/{part}"))
    .collect();
    paths.push(api.to_owned());
    for part in [
        "..",
        "%2e%2e",
        "..%2f..",
        "%2e%2e%2fetc%2fpasswd",
        "connection.json",
        ".",
        "%00",
        "a%2f..%2fb",
    ] {
        for made in [
            format!("/{part}"),
            format!("/api/runs/{part}/facts"),
            format!("/api/runs/{run}/{part}"),
            format!("/api/runs/{run}/logs/{part}"),
            format!("/api/runs/{run}/logs/..%2f{part}"),
            format!("/api/runs/{run}/groups/{part}"),
            format!("/api/runs/{run}/conversations/{part}/0"),
        ] {
            let reply = pages.get(&made);
            assert!([400, 404].contains(&reply.status), "{made}: {}", reply.status);
            paths.push(made);
        }
    }
    for path in paths {
        let reply = pages.get(&path);
        assert!(!reply.body.contains(SECRET), "{path} shows a password");
        assert!(!reply.body.contains(&pages.token), "{path} shows the token");
    }
}

#[test]
fn live_run_prints_its_pages_first_and_streams_turns() {
    let program = program();
    let endless = config()
        .set("run.train_steps", 1_000_000)
        .without("eval")
        .save(&program);
    let runs = program.runs();
    let mut running = program.start(&[
        "run",
        &endless,
        "--folder",
        runs.to_str().unwrap(),
        "--dashboard=127.0.0.1:0",
    ]);
    let pages = Pages::of(&running);
    let run = id(&program.run_folder());
    let mut stream = TcpStream::connect(&pages.address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let request = format!(
        "GET /api/runs/{run}/stream?topics=turns HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\n\r\n",
        pages.address, pages.token
    );
    stream.write_all(request.as_bytes()).unwrap();
    let (mut text, mut part) = (String::new(), [0; 4096]);
    while !(text.contains("event: turn\n") && text.contains("event: rate\n")) {
        let read = stream.read(&mut part).unwrap();
        assert!(read > 0 && running.running(), "{text}{}", running.log());
        text += &String::from_utf8_lossy(&part[..read]);
    }
    assert!(
        text.contains("\"role\":\"speaker\"") || text.contains("\"role\":\"listener\""),
        "{text}"
    );
    let status = wait_for("both agents", PATIENCE, || {
        let status = pages.json(&format!("/api/runs/{run}/status"));
        let agents = status["live"]["agents"].as_object()?.len();
        (agents == 2).then_some(status)
    });
    assert!(status["live"]["queues"].as_object().unwrap().len() > 2, "{status}");
    assert_eq!(pages.json(&format!("/api/runs/{run}/facts"))["state"], "live");
    assert_eq!(
        pages.json(&format!("/api/runs/{run}/letters"))["letters"],
        serde_json::json!([])
    );
}

/// Texts that would do harm as markup, code, control sequences or reordered text.
fn hostile() -> Vec<String> {
    let marks = [
        "<img src=x onerror=\"document.title='owned'\">",
        "<script>document.title='owned'</script>",
        "\"><svg onload=document.title='owned'>",
        "'><iframe srcdoc=\"<script>parent.document.title='owned'</script>\">",
        "javascript:document.title='owned'",
        "</title><script>document.title='owned'</script>",
        "{{constructor.constructor('document.title=1')()}}",
        "\u{202e}desrever\u{202c} \u{200b}hidden\u{7}\u{1b}[31m",
    ];
    marks.iter().map(|mark| (*mark).to_owned()).collect()
}

/// Returns the browser, where one is installed.
fn chromium() -> Option<PathBuf> {
    let folders = std::env::var_os("PATH")?;
    let names = ["chromium", "chromium-browser", "google-chrome"];
    std::env::split_paths(&folders)
        .find_map(|folder| names.iter().map(|name| folder.join(name)).find(|path| path.is_file()))
}

#[test]
fn pages_are_drawn_in_a_browser_and_hostile_text_stays_text() {
    let Some(chromium) = chromium() else {
        eprintln!("no Chromium on this machine: the pages were not drawn");
        return;
    };
    let program = program();
    let folder = program.play("run", &config().save(&program), &[]);
    let run = id(&folder);
    let group = "ab010000000000000000000000000000";
    let mut first = json_folder(&folder.join("transcripts")).remove(0);
    let text = hostile().join(" | ");
    for name in ["task", "status", "prompt", "label"] {
        first[name] = text.as_str().into();
    }
    first["conversation"] = format!("{group}/0").into();
    first["turns"][0]["text"] = text.as_str().into();
    first["turns"][0]["finish"] = text.as_str().into();
    first["step"] = 1_000_000.into();
    first["rewards"] = serde_json::json!({text.as_str(): {text.as_str(): 1.0, "total": 1.0}});
    std::fs::write(folder.join("transcripts/z.jsonl"), format!("{first}\n")).unwrap();
    let line = serde_json::json!({"time": text, "level": text, "message": text, text.as_str(): text});
    std::fs::write(folder.join("logs/z.jsonl"), format!("{line}\n")).unwrap();

    let running = serve(&program, &run, &["--no-token"]);
    let pages = Pages::of(&running);
    let profile = program.home().join("browser");
    let draw = |path: &str, width: u32, dark: bool| -> String {
        let mut command = Command::new(&chromium);
        command
            .args([
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--virtual-time-budget=6000",
                "--dump-dom",
            ])
            .arg(format!("--user-data-dir={}", profile.display()))
            .arg(format!("--window-size={width},900"))
            .arg(format!("--blink-settings=preferredColorScheme={}", u8::from(!dark)))
            .arg(format!("http://{}/#/r/{run}/{path}", pages.address));
        let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let conversation = format!("c/{group}/0");
    let groups = format!("g/{group}");
    for (path, expected) in [
        ("", "entropy, nats per token"),
        (conversation.as_str(), "&lt;script&gt;"),
        (groups.as_str(), "&lt;img src=x onerror="),
        ("conversations", "&lt;svg onload="),
        ("charts/learning", "Reward in training"),
        ("evaluations", "95% interval"),
        ("logs/z", "\\u202e"),
        ("audit", "Nothing lost, nothing counted twice."),
        ("letters", "The queue cannot be read"),
        ("config", "train_steps"),
        ("live", "No live turns"),
    ] {
        for (width, dark) in [(1280, false), (400, true)] {
            let page = draw(path, width, dark);
            let body = page.split("<body>").nth(1).unwrap_or_default();
            assert!(body.contains(expected), "{path} at {width} lacks {expected:?}:\n{body}");
            let theme = if dark { "dark" } else { "light" };
            assert!(page.contains(&format!("data-theme=\"{theme}\"")), "{path}: {theme}");
            assert!(!page.contains("<title>owned"), "{path}: a script ran");
            for made in ["<img", "<script>", "<iframe", "onload=\"", "\u{202e}", "\u{1b}"] {
                assert!(!body.contains(made), "{path}: foreign text became {made:?}");
            }
        }
    }
}
