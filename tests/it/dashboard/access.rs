//! Refused requests, and secrets that no answer shows.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use tests::program::{signal, wait_until};

use super::{PATIENCE, Pages, config, id, serve};
use crate::program;

const SECRET: &str = "hunter2-of-the-broker";

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
    let mut running = serve(&program, &run, &[]);
    let pages = Pages::of(&running);
    assert_eq!(pages.token.len(), 64);
    let port = pages.address.rsplit(':').next().unwrap();
    let token_file = folder.join(format!("dashboard-{port}.token"));
    assert_eq!(std::fs::read_to_string(&token_file).unwrap().trim(), pages.token);
    let mode = std::fs::metadata(&token_file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "for its owner alone");

    let status = |method: &str, path: &str, host: &str, token: &str| pages.request(method, path, host, token).status;
    let (api, own) = ("/api/runs", pages.address.as_str());
    assert_eq!(status("GET", api, own, &pages.token), 200);
    assert_eq!(status("GET", api, own, "wrong"), 401);
    assert_eq!(status("GET", &format!("{api}?token={}", pages.token), own, ""), 401);
    for path in [api, "/", "/app.js", "/healthz", "/readyz"] {
        assert_eq!(status("GET", path, "evil.example", &pages.token), 403, "{path}");
    }
    // The same paths in another spelling lead to the same handlers.
    for path in [
        "/%61pi/runs",
        "/ap%69/runs",
        "/%6detrics",
        "/metrics",
        "//api/runs",
        "/./api/runs",
    ] {
        assert_eq!(status("GET", path, own, "wrong"), 401, "{path}");
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
        "/readyz",
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
    signal("TERM", running.pid());
    running.finish(PATIENCE);
    assert!(!token_file.exists(), "the token's file stays after the dashboard");
}

#[test]
fn address_that_others_reach_needs_a_token_of_its_own() {
    let program = program();
    let said = program.fail(2, &["dashboard", "--listen", "0.0.0.0:0"]);
    assert!(said.contains("DYAD_DASHBOARD_TOKEN"), "{said}");
}

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

#[test]
fn taken_port_ends_with_2_and_the_address() {
    let program = program();
    let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = other.local_addr().unwrap().to_string();
    let said = program.fail(2, &["dashboard", "--listen", &address]);
    assert!(said.contains(&format!("cannot listen on {address}")), "{said}");
    assert!(said.contains("127.0.0.1:0 for a free one"), "{said}");
}

/// Another site's page can send a form, or JSON with its own origin. It has no token.
#[test]
fn other_sites_change_nothing() {
    let program = program();
    let folder = program.play("run", &config().save(&program), &[]);
    let run = id(&folder);
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
    assert_eq!(status(json, "", "wrong"), 401);
    let origin = format!("Origin: http://{}\r\n", pages.address);
    assert_eq!(status(json, &origin, own), 409, "the page itself: the run has ended");
    wait_until("a log line of the page's change", PATIENCE, || {
        let log = running.log();
        let line = log.lines().find(|line| line.contains("a page asked for a change"));
        line.is_some_and(|line| {
            [&run, "pause", "127.0.0.1:", "ended"]
                .iter()
                .all(|part| line.contains(part))
        })
    });
    assert_eq!(pages.request("OPTIONS", "/api/runs", &pages.address, own).status, 405);
}
