//! Changes that the user did not ask for: of other sites, without `--write`, by mistake.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};

use serde_json::{Value, json};
use tests::program::wait_until;

use super::chromium::Browser;
use super::{PATIENCE, Pages, serve, stopped_run};
use crate::program;

/// The changes that pages can ask for, each with a good body.
fn changes(run: &str) -> [(&'static str, Value); 5] {
    [
        ("tasks", json!({"lines": "{\"prompt\": \"o1\", \"label\": \"o1\"}"})),
        ("letters/requeue", json!({"ids": ["x"]})),
        ("letters/edit", json!({"id": "x", "task": null, "as_id": "y"})),
        ("letters/drop", json!({"ids": ["x"], "confirm": run})),
        ("orders", json!({"order": "drain", "confirm": run})),
    ]
}

/// Another site's page can send a form, or JSON with its own origin. It has no token.
#[test]
fn other_sites_change_nothing() {
    let program = program();
    let run = stopped_run(&program);
    let running = serve(&program, &run, &["--write"]);
    let pages = Pages::of(&running);
    let status = |kind: &str, more: &str, token: &str| {
        let body = "{\"order\": \"pause\"}";
        let (host, length) = (&pages.address, body.len());
        let request = format!(
            "POST /api/runs/{run}/orders HTTP/1.1\r\nHost: {host}\r\nContent-Type: {kind}\r\n{more}\
             Authorization: Bearer {token}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        );
        pages.send(&request).status
    };
    let own = pages.token.as_str();
    for form in ["application/x-www-form-urlencoded", "multipart/form-data", "text/plain"] {
        assert_eq!(status(form, "", own), 415, "{form}");
    }
    let json = "application/json";
    assert_eq!(status(json, "Origin: https://evil.example\r\n", own), 403);
    assert_eq!(status(json, "Origin: null\r\n", own), 403);
    assert_eq!(status(json, "", "wrong"), 401);
    assert!(
        !running.log().contains("a page asked for a change"),
        "{}",
        running.log()
    );
    let origin = format!("Origin: http://{}\r\n", pages.address);
    assert_eq!(status(json, &origin, own), 409, "the page itself: the run has stopped");
    for method in ["PUT", "DELETE", "OPTIONS"] {
        assert_eq!(pages.request(method, "/api/runs", &pages.address, own).status, 405);
    }
}

/// Serves an empty page of another origin, until the process ends. Returns its URL.
fn other_site() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    // A browser opens more connections than it uses.
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || answer(&stream));
        }
    });
    format!("http://{address}/")
}

/// Answers a request, whatever it asks for.
fn answer(mut stream: &TcpStream) {
    const PAGE: &str = "<!doctype html><title>another site</title>";
    let (mut reader, mut line) = (BufReader::new(stream), String::new());
    // The empty line at the end of a request's head has two bytes.
    while reader.read_line(&mut line).is_ok_and(|bytes| bytes > 2) {}
    let length = PAGE.len();
    let head = format!("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {length}");
    let _ = write!(stream, "{head}\r\nConnection: close\r\n\r\n{PAGE}");
}

/// The other site even knows the token. The browser still lets it neither read nor change.
#[test]
fn browser_keeps_other_sites_from_the_api() {
    let program = program();
    let Some(mut browser) = Browser::start(&program.home().join("browser")) else {
        return;
    };
    let run = stopped_run(&program);
    let running = serve(&program, &run, &["--write"]);
    let pages = Pages::of(&running);
    let (address, token) = (&pages.address, &pages.token);
    let read = format!(
        "fetch('http://{address}/api/runs', {{ headers: {{ Authorization: 'Bearer {token}' }} }})
           .then((answer) => answer.status, () => 'blocked')"
    );
    let order = |mode: &str| {
        format!(
            "fetch('http://{address}/api/runs/{run}/orders', {{ method: 'POST', mode: '{mode}',
               headers: {{ Authorization: 'Bearer {token}', 'Content-Type': 'application/json' }},
               body: '{{\"order\": \"pause\"}}' }}).then((answer) => answer.type + answer.status, () => 'blocked')"
        )
    };
    browser.open(&format!("http://{address}/"));
    browser.wait_for("<main");
    assert_eq!(browser.value(&read), 200, "the page itself reads");
    assert_eq!(
        browser.value(&order("cors")),
        "basic409",
        "the page itself asks for changes"
    );
    wait_until("its change in the log", PATIENCE, || {
        running.log().contains("a page asked for a change")
    });
    let asked = || running.log().matches("a page asked for a change").count();
    assert_eq!(asked(), 1);

    browser.open(&other_site());
    browser.wait_for("another site");
    assert_eq!(browser.value(&read), "blocked");
    assert_eq!(browser.value(&order("cors")), "blocked");
    // The dashboard does not answer OPTIONS, so another site can only send forms, which have no
    // token and another type.
    browser.value(&order("no-cors"));
    let form = format!(
        "document.body.innerHTML = '<form method=post enctype=text/plain action=http://{address}/api/runs/{run}/orders>\
           <input name=a value=b></form>'; document.querySelector('form').submit()"
    );
    browser.value(&form);
    browser.wait_for("send JSON with the type application/json");
    assert_eq!(asked(), 1, "{}", running.log());
}

#[test]
fn change_needs_write_and_an_irreversible_one_the_runs_id() {
    let program = program();
    let run = stopped_run(&program);
    let reads = serve(&program, &run, &[]);
    let pages = Pages::of(&reads);
    let path = |path: &str| format!("/api/runs/{run}/{path}");
    for (change, body) in changes(&run) {
        let (status, answer) = pages.post(&path(change), &body);
        assert_eq!(status, 405, "{change}: {answer}");
        assert!(answer["error"].as_str().unwrap().contains("--write"), "{answer}");
    }
    drop(reads);

    let writes = serve(&program, &run, &["--write"]);
    let pages = Pages::of(&writes);
    for (change, body) in changes(&run) {
        if body["confirm"].is_string() {
            for wrong in [Value::Null, json!(""), json!(format!("{run}0"))] {
                let mut body = body.clone();
                body["confirm"] = wrong;
                let (status, answer) = pages.post(&path(change), &body);
                assert_eq!(status, 409, "{change}: {answer}");
                let says = "confirm it with the run's id";
                assert!(answer["error"].as_str().unwrap().contains(says), "{answer}");
            }
        }
        let (status, answer) = pages.post(&path(change), &body);
        assert_eq!(status, 409, "{change}: {answer}");
        assert!(answer["error"].as_str().unwrap().contains("was stopped at"), "{answer}");
    }
    // Each change that was confirmed has a line, with the caller's address.
    for change in ["publish", "requeue", "edit", "drop", "drain"] {
        wait_until(&format!("the log line of {change}"), PATIENCE, || {
            let log = writes.log();
            let lines = log.lines().filter(|line| line.contains("a page asked for a change"));
            let is_whole = |line: &&str| {
                let parts = [
                    format!("run_id={run} "),
                    format!("change={change} "),
                    "from=127.0.0.1:".to_owned(),
                    "was stopped".to_owned(),
                ];
                parts.iter().all(|part| line.contains(part))
            };
            lines.filter(is_whole).count() == 1
        });
    }
}
