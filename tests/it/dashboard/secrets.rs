//! Secrets of runs and of the dashboard: no answer and no log line shows them.

use std::path::Path;

use serde_json::json;

use super::{Pages, config, id, serve_with, stopped_run};
use crate::program;

const SECRET: &str = "hunter2-of-the-broker";
/// The host of the servers. Errors name it. No connection begins, because plaintext may not leave
/// this machine.
const HOST: &str = "192.0.2.1";

/// Makes a run's servers those at `HOST`, with a password.
fn give_password(folder: &Path) {
    let broker = format!("amqp://u:{SECRET}@{HOST}:1/%2f");
    let state = format!("redis://:{SECRET}@{HOST}:2");
    let file = folder.join("config.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    for server in ["broker", "state"] {
        assert!(text.contains(&format!("{server} = \"memory:\"")), "{text}");
    }
    let text = text.replace("broker = \"memory:\"", &format!("broker = \"{broker}\""));
    let text = text.replace("state = \"memory:\"", &format!("state = \"{state}\""));
    std::fs::write(&file, text).unwrap();
    let connection = json!({"broker": broker, "state": state});
    std::fs::write(folder.join("connection.json"), connection.to_string()).unwrap();
}

#[test]
fn no_answer_shows_a_password_or_the_token() {
    let program = program();
    let config = config().set("run.token_records", "all").save(&program);
    let folder = program.play("run", &config, &[]);
    give_password(&folder);
    // A run that may be live: its pages try to connect.
    let silent = stopped_run(&program);
    let silent_folder = program.runs().join(&silent);
    std::fs::remove_file(silent_folder.join("ended.json")).unwrap();
    give_password(&silent_folder);
    let played = id(&folder);
    let running = serve_with(&program, "", &["--write"], &[("DYAD_ALLOW_PLAINTEXT", "0")]);
    let pages = Pages::of(&running);
    let keeps_secrets = |place: &str, text: &str| {
        assert!(!text.contains(SECRET), "{place} shows a password: {text}");
        assert!(!text.contains(&pages.token), "{place} shows the token");
    };

    let listed = pages.json(&format!("/api/runs/{played}/conversations?limit=1&kind=train"));
    let one = &listed["conversations"][0];
    let (group, member) = one["conversation"].as_str().unwrap().split_once('/').unwrap();
    let task = one["task"].as_str().unwrap().replace('/', "%2F");
    let document = pages.json("/api/openapi.json");
    let paths = document["paths"].as_object().unwrap().iter();
    let read: Vec<&String> = paths
        .filter(|(_, has)| has["get"].is_object())
        .map(|(path, _)| path)
        .collect();
    assert!(read.len() > 15, "{read:?}");
    for path in read {
        let queries: &[&str] = match path.rsplit('/').next() {
            Some("series") => &["?name=*", "?name=*&format=csv"],
            Some("stream") => &["?topics=turns"],
            Some("compare") => &["?a={run}&b={run}"],
            _ => &[""],
        };
        for (run, query) in [&played, &silent]
            .into_iter()
            .flat_map(|run| queries.iter().map(move |one| (run, one)))
        {
            let names = [
                ("run", run.as_str()),
                ("group", group),
                ("member", member),
                ("task", task.as_str()),
                ("process", "a"),
            ];
            let path = names.iter().fold(format!("{path}{query}"), |path, (name, value)| {
                path.replace(&format!("{{{name}}}"), value)
            });
            let reply = pages.get(&path);
            let expected = if path.contains("/stream") { 503 } else { 200 };
            assert!(run == &silent || reply.status == expected, "{path}: {}", reply.body);
            keeps_secrets(&path, &reply.body);
        }
    }
    let logs = pages.json(&format!("/api/runs/{played}/logs"));
    let logs = logs["logs"].as_array().unwrap().iter();
    let logs = logs.map(|one| format!("/api/runs/{played}/logs/{}", one["process"].as_str().unwrap()));
    let others = [
        "/",
        "/app.js",
        "/metrics",
        "/readyz",
        "/healthz",
        "/connection.json",
        "/config.toml",
    ];
    for path in logs.chain(others.map(str::to_owned)) {
        keeps_secrets(&path, &pages.get(&path).body);
    }
    let status = pages.json(&format!("/api/runs/{silent}/status"));
    let reason = status["offline"].as_str().unwrap();
    assert!(reason.contains(HOST), "the pages did not try to connect: {reason}");
    for (path, body) in [
        ("orders", json!({"order": "pause"})),
        ("tasks", json!({"lines": "{\"prompt\": \"o1\", \"label\": \"o1\"}"})),
        ("letters/requeue", json!({"ids": ["x"]})),
    ] {
        let (status, answer) = pages.post(&format!("/api/runs/{silent}/{path}"), &body);
        assert!(status >= 400, "{path}: {answer}");
        keeps_secrets(path, &answer.to_string());
    }
    let log = running.log();
    assert!(log.contains("a page asked for a change"), "{log}");
    assert!(!log.contains(SECRET), "{log}");
}
