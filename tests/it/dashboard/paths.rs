//! Paths that would lead out of a run.

use serde_json::json;

use super::{Pages, serve, stopped_run};
use crate::program;

/// The content of files that no path may reach.
const OUTSIDE: &str = "content-outside-of-the-run";

#[test]
fn path_traversal_reaches_no_file() {
    let program = program();
    let run = stopped_run(&program);
    let folder = program.runs().join(&run);
    let line = json!({"level": "INFO", "message": OUTSIDE}).to_string();
    for file in ["connection.json", "notes.jsonl", "logs/notes.txt", "../outside.jsonl"] {
        std::fs::write(folder.join(file), &line).unwrap();
    }
    let running = serve(&program, "", &["--write"]);
    let pages = Pages::of(&running);
    let log = pages.json(&format!("/api/runs/{run}/logs/a"));
    assert_eq!(log["lines"][0]["line"]["message"], "a line of agent a");
    for part in [
        "..",
        "%2e%2e",
        "..%2f..",
        "%2e%2e%2fetc%2fpasswd",
        "..%2foutside",
        "..%2foutside.jsonl",
        "..%2fnotes",
        "notes",
        "notes.txt",
        "connection.json",
        ".",
        "%00",
        "a%00",
        "a%2f..%2fb",
        "..%5coutside",
        "%252e%252e%252foutside",
        "a.jsonl",
    ] {
        for path in [
            format!("/{part}"),
            format!("/assets/{part}"),
            format!("/api/runs/{part}/facts"),
            format!("/api/runs/{part}/logs/a"),
            format!("/api/runs/{run}/{part}"),
            format!("/api/runs/{run}/logs/{part}"),
            format!("/api/runs/{run}/logs/..%2f{part}"),
            format!("/api/runs/{run}/logs/../{part}"),
            format!("/api/runs/{run}/groups/{part}"),
            format!("/api/runs/{run}/tasks/{part}"),
            format!("/api/runs/{run}/conversations/{part}/0"),
            format!("/api/runs/{run}/conversations/{part}/0/tokens"),
            format!("/api/compare?a={part}&b={run}"),
        ] {
            let reply = pages.get(&path);
            assert!([400, 404].contains(&reply.status), "{path}: {}", reply.status);
            assert!(!reply.body.contains(OUTSIDE), "{path}: {}", reply.body);
        }
    }
}
