//! Clients that ask for too much: connections, streams, bytes.

use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::net::TcpStream;
use std::time::Duration;

use tests::program::wait_until;

use super::memory::stays_in_its_budget;
use super::streams::read;
use super::{PATIENCE, Pages, serve, stopped_run};
use crate::program;

/// The most open streams.
const STREAMS: usize = 16;

/// Clients that only connect can take all connections; the next one waits for them.
#[test]
fn connections_are_limited() {
    const MOST: usize = 64;
    let program = program();
    std::fs::create_dir_all(program.runs()).unwrap();
    let running = serve(&program, "", &[]);
    let pages = Pages::of(&running);
    let idle: Vec<TcpStream> = (0..MOST).map(|_| TcpStream::connect(&pages.address).unwrap()).collect();
    let host = &pages.address;
    let mut next = pages.begin(&format!(
        "GET /healthz HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
    ));
    next.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    let mut answer = String::new();
    let late = next.read_to_string(&mut answer);
    let late = late.expect_err("no connection is left for an answer").kind();
    assert!(matches!(late, ErrorKind::WouldBlock | ErrorKind::TimedOut), "{late}");
    drop(idle);
    next.set_read_timeout(Some(PATIENCE)).unwrap();
    next.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

/// Asks for a stream of log a from an offset on. Returns the connection, and the first line of the
/// answer.
fn stream(pages: &Pages, run: &str, from: u64) -> (TcpStream, String) {
    let (host, token) = (&pages.address, &pages.token);
    let stream = pages.begin(&format!(
        "GET /api/runs/{run}/stream?topics=logs:a HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n\
         Last-Event-ID: logs/a@{from}\r\n\r\n"
    ));
    let mut line = String::new();
    BufReader::new(stream.try_clone().unwrap())
        .read_line(&mut line)
        .unwrap();
    (stream, line)
}

#[test]
fn streams_are_limited_and_a_closed_one_makes_room() {
    let program = program();
    let run = stopped_run(&program);
    let running = serve(&program, &run, &[]);
    let pages = Pages::of(&running);
    let mut open: Vec<TcpStream> = Vec::new();
    for _ in 0..STREAMS {
        let (connection, line) = stream(&pages, &run, 0);
        assert!(line.contains(" 200 "), "{line}");
        open.push(connection);
    }
    let (_, line) = stream(&pages, &run, 0);
    assert!(line.contains(" 429 "), "{line}");
    open.pop();
    wait_until("a place for another stream", PATIENCE, || {
        stream(&pages, &run, 0).1.contains(" 200 ")
    });
}

/// The client announces too large a body and sends none of it.
#[test]
fn request_that_is_too_large_is_refused_unread() {
    let program = program();
    let run = stopped_run(&program);
    let running = serve(&program, &run, &["--write"]);
    let pages = Pages::of(&running);
    let (host, token, length) = (&pages.address, &pages.token, (4 << 20) + 1);
    let reply = pages.send(&format!(
        "POST /api/runs/{run}/tasks HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n\
         Content-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    ));
    assert_eq!(reply.status, 400, "{}", reply.body);
    assert!(reply.body.contains("the request cannot be read"), "{}", reply.body);
}

/// Sixteen streams want a long log and read nothing of it, while other clients ask for as much as
/// they can get.
#[test]
fn slow_and_greedy_clients_at_once_are_kept_within_limits() {
    const LINES: usize = 20_000;
    const ANSWER: usize = 4 << 20;
    let program = program();
    let run = stopped_run(&program);
    let line = |n: usize| format!("{{\"level\":\"INFO\",\"message\":\"{n} {}\"}}\n", "x".repeat(400));
    let log = program.runs().join(&run).join("logs/a.jsonl");
    std::fs::write(&log, (0..LINES).map(line).collect::<String>()).unwrap();
    let running = serve(&program, &run, &["--write"]);
    let pages = Pages::of(&running);
    let open: Vec<TcpStream> = (0..STREAMS)
        .map(|_| {
            let (connection, line) = stream(&pages, &run, 0);
            assert!(line.contains(" 200 "), "{line}");
            connection
        })
        .collect();
    let api = |path: &str| format!("/api/runs/{run}/{path}");
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for path in ["logs/a?limit=1000000", "logs/a?limit=1000000&after=0", "logs/a?q=none"] {
                    let reply = pages.get(&api(path));
                    assert!(
                        reply.status == 200 && reply.body.len() <= ANSWER,
                        "{path}: {}",
                        reply.status
                    );
                }
                assert_eq!(pages.get(&api("stream?topics=logs:a")).status, 429);
            });
        }
    });
    stays_in_its_budget(running.pid());
    drop(open);
    wait_until("a place for another stream", PATIENCE, || {
        stream(&pages, &run, 0).1.contains(" 200 ")
    });
    // A client that reads gets every line.
    let events = read(&pages, &api("stream?topics=logs:a"), "logs/a@0", LINES);
    let expected = |n: usize| format!("\"message\":\"{n} x");
    assert!((0..LINES).all(|n| events[n].1.contains(&expected(n))));
}
