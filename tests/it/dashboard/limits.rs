//! Clients that ask for too much: connections, streams, bytes.

use std::io::{BufRead, BufReader, Read, Write};
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
    let mut next = TcpStream::connect(&pages.address).unwrap();
    let request = format!(
        "GET /healthz HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n",
        pages.address
    );
    next.write_all(request.as_bytes()).unwrap();
    next.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    let mut answer = String::new();
    next.read_to_string(&mut answer)
        .expect_err("no connection is left for an answer");
    drop(idle);
    next.set_read_timeout(Some(PATIENCE)).unwrap();
    next.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

/// Asks for a stream. Returns the connection, and the first line of the answer.
fn stream(pages: &Pages, run: &str) -> (TcpStream, String) {
    let mut stream = TcpStream::connect(&pages.address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let (host, token) = (&pages.address, &pages.token);
    let request = format!(
        "GET /api/runs/{run}/stream?topics=metrics HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).unwrap();
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

/// The answer comes before the body: a client that announces too much sends nothing of it.
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
