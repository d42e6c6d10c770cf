//! Clients that ask for too much: connections, streams, bytes.

use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::net::TcpStream;
use std::time::Duration;

use tests::program::wait_until;

use super::{PATIENCE, Pages, serve, stopped_run};
use crate::program;

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

/// Asks for a stream. Returns the connection, and the first line of the answer.
fn stream(pages: &Pages, run: &str) -> (TcpStream, String) {
    let (host, token) = (&pages.address, &pages.token);
    let stream = pages.begin(&format!(
        "GET /api/runs/{run}/stream?topics=metrics HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n\r\n"
    ));
    let mut line = String::new();
    BufReader::new(stream.try_clone().unwrap())
        .read_line(&mut line)
        .unwrap();
    (stream, line)
}

#[test]
fn streams_are_limited_and_a_closed_one_makes_room() {
    const MOST: usize = 16;
    let program = program();
    let run = stopped_run(&program);
    let running = serve(&program, &run, &[]);
    let pages = Pages::of(&running);
    let mut open: Vec<TcpStream> = Vec::new();
    for _ in 0..MOST {
        let (connection, line) = stream(&pages, &run);
        assert!(line.contains(" 200 "), "{line}");
        open.push(connection);
    }
    let (_, line) = stream(&pages, &run);
    assert!(line.contains(" 429 "), "{line}");
    open.pop();
    wait_until("a place for another stream", PATIENCE, || {
        stream(&pages, &run).1.contains(" 200 ")
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
