//! Streams of a run's files, over connections that break.

use std::io::{BufRead, BufReader, Read};

use tests::program::json_lines;

use super::{Pages, config, id, serve};
use crate::program;

/// An event: its id and its data.
pub(super) type Event = (String, String);

/// Reads `wanted` events after the event `last`, then breaks the connection.
pub(super) fn read(pages: &Pages, path: &str, last: &str, wanted: usize) -> Vec<Event> {
    let (host, token) = (&pages.address, &pages.token);
    let mut reader = BufReader::new(pages.begin(&format!(
        "GET {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\nLast-Event-ID: {last}\r\n\r\n"
    )));
    let mut line = String::new();
    while line != "\r\n" {
        line.clear();
        assert!(reader.read_line(&mut line).unwrap() > 0, "no answer");
    }
    let (mut text, mut events) = (String::new(), Vec::new());
    while events.len() < wanted {
        // A chunk: its size in hexadecimal digits, and its bytes.
        let mut size = String::new();
        reader.read_line(&mut size).unwrap();
        let mut chunk = vec![0; usize::from_str_radix(size.trim(), 16).unwrap() + 2];
        reader.read_exact(&mut chunk).unwrap();
        text += std::str::from_utf8(&chunk[..chunk.len() - 2]).unwrap();
        while let Some((event, rest)) = text.split_once("\n\n") {
            let field = |name: &str| {
                event
                    .lines()
                    .find_map(|line| line.strip_prefix(name))
                    .unwrap()
                    .to_owned()
            };
            if field("event: ") != "begin" {
                events.push((field("id: "), field("data: ")));
            }
            text = rest.to_owned();
        }
    }
    events.truncate(wanted);
    events
}

#[test]
fn broken_stream_goes_on_without_a_gap_and_without_a_repetition() {
    let program = program();
    let folder = program.play("run", &config().save(&program), &[]);
    let running = serve(&program, "latest", &[]);
    let pages = Pages::of(&running);
    let path = format!("/api/runs/{}/stream?topics=logs:a,metrics,ended", id(&folder));
    let lines = |part: &str| -> usize {
        let files = std::fs::read_dir(folder.join(part)).unwrap();
        files.map(|file| json_lines(&file.unwrap().path()).len()).sum()
    };
    let all = json_lines(&folder.join("logs/a.jsonl")).len() + lines("metrics") + lines("transcripts");
    let whole = read(&pages, &path, "", all);
    for topic in ["\"process\":\"a\"", "\"kind\":\"train\"", "\"conversation\":"] {
        assert!(whole.iter().any(|(_, data)| data.contains(topic)), "{topic}");
    }
    let (mut pieces, mut last) = (Vec::new(), String::new());
    while pieces.len() < all {
        let wanted = (all - pieces.len()).min(37);
        pieces.extend(read(&pages, &path, &last, wanted));
        last = pieces.last().map(|(id, _)| id.clone()).unwrap();
    }
    assert_eq!(pieces, whole);
    assert_eq!(pages.get(&path.replace("metrics", "everything")).status, 400);
}
