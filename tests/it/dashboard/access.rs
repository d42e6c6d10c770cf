//! Callers that may not read: other machines, other users, forged hosts. Answers are safe to show.

use std::os::unix::fs::PermissionsExt;

use serde_json::json;
use tests::program::{fail, signal};

use super::{PATIENCE, Pages, config, serve, serve_with, stopped_run};
use crate::program;

const TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// The policy of every answer, in small letters.
const POLICY: &str = "content-security-policy: default-src 'none'; script-src 'self'; style-src 'self'; \
                      connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; \
                      frame-ancestors 'none'; require-trusted-types-for 'script'";

/// The front end and the health of the process. They hold no data.
const OPEN: [&str; 8] = [
    "/",
    "/app.js",
    "/app.css",
    "/uplot.LICENSE",
    "/uplot.iife.min.js",
    "/uplot.min.css",
    "/healthz",
    "/readyz",
];

#[test]
fn network_address_needs_a_strong_token_of_its_own() {
    let program = program();
    for (more, token, problem) in [
        (&["0.0.0.0:0"][..], None, "needs the token of DYAD_DASHBOARD_TOKEN"),
        (&["[::]:0"][..], None, "needs the token of DYAD_DASHBOARD_TOKEN"),
        (
            &["0.0.0.0:0"][..],
            Some("0123456789abcde"),
            "DYAD_DASHBOARD_TOKEN has 15",
        ),
        (
            &["127.0.0.1:0"][..],
            Some("0123456789abcde"),
            "DYAD_DASHBOARD_TOKEN has 15",
        ),
        (
            &["0.0.0.0:0", "--no-token"][..],
            Some(TOKEN),
            "needs the token of DYAD_DASHBOARD_TOKEN",
        ),
    ] {
        let mut command = program.command(&[&["dashboard", "--listen"], more].concat());
        let said = fail(2, command.envs(token.map(|token| ("DYAD_DASHBOARD_TOKEN", token))));
        assert!(said.contains(problem), "{more:?}: {said}");
    }
    let (config, runs) = (config().save(&program), program.runs());
    for command in ["run", "up"] {
        let args = [command, &config, "--folder", runs.to_str().unwrap()];
        let said = program.fail(2, &[&args[..], &["--dashboard=0.0.0.0:0"]].concat());
        assert!(said.contains("DYAD_DASHBOARD_TOKEN"), "{command}: {said}");
    }
    assert!(!runs.exists(), "a run began before its address was checked");
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

/// Another user of the machine reaches the port, and has no token.
#[test]
fn other_users_of_the_machine_have_no_token() {
    let program = program();
    let run = stopped_run(&program);
    let mut running = serve(&program, &run, &[]);
    let pages = Pages::of(&running);
    assert_eq!(pages.token.len(), 64);
    let port = pages.address.rsplit(':').next().unwrap();
    let token_file = program.runs().join(&run).join(format!("dashboard-{port}.token"));
    assert_eq!(std::fs::read_to_string(&token_file).unwrap().trim(), pages.token);
    let mode = std::fs::metadata(&token_file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "for its owner alone");

    let status = |path: &str, token: &str| pages.request("GET", path, &pages.address, token).status;
    let api = format!("/api/runs/{run}/logs/a");
    assert_eq!(status(&api, &pages.token), 200);
    let host = &pages.address;
    let nothing = pages.send(&format!(
        "GET {api} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
    ));
    assert_eq!(nothing.status, 401);
    assert!(nothing.head.contains("www-authenticate: bearer"), "{}", nothing.head);
    assert_eq!(status(&api, "wrong"), 401);
    assert_eq!(status(&format!("{api}?token={}", pages.token), ""), 401);
    // The same paths in another spelling lead to the same handlers.
    for path in [
        "/%61pi/runs",
        "/ap%69/runs",
        "/%6detrics",
        "/metrics",
        "//api/runs",
        "/./api/runs",
    ] {
        assert_eq!(status(path, "wrong"), 401, "{path}");
    }
    for path in OPEN {
        assert_eq!(status(path, ""), 200, "{path}");
    }
    signal("TERM", running.pid());
    running.finish(PATIENCE);
    assert!(!token_file.exists(), "the token's file stays after the dashboard");
}

#[test]
fn dashboard_without_a_token_only_reads() {
    let program = program();
    let run = stopped_run(&program);
    let said = program.fail(2, &["dashboard", "--no-token", "--write", "--listen", "127.0.0.1:0"]);
    assert!(said.contains("cannot be used with"), "{said}");
    let running = serve(&program, &run, &["--no-token"]);
    let pages = Pages::of(&running);
    assert_eq!(pages.token, "");
    assert_eq!(pages.get("/api/runs").status, 200);
    let forged = pages.request("GET", "/api/runs", "evil.example", "");
    assert_eq!(forged.status, 403);
    let names = std::fs::read_dir(program.runs().join(run)).unwrap().flatten();
    let mut names = names.map(|entry| entry.file_name().into_string().unwrap());
    assert!(names.all(|name| !name.starts_with("dashboard-")), "there is no token");
}

/// A foreign name can point at this machine, so that the pages of its site reach the dashboard.
#[test]
fn forged_host_is_refused() {
    let program = program();
    let run = stopped_run(&program);
    let running = serve(&program, &run, &["--host-name", "box.example"]);
    let pages = Pages::of(&running);
    let port = pages.address.rsplit(':').next().unwrap();
    let status = |path: &str, host: &str| pages.request("GET", path, host, &pages.token).status;
    let paths = ["/api/runs", "/metrics"].into_iter().chain(OPEN);
    for path in paths {
        for forged in ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example", ""] {
            for host in [forged.to_owned(), format!("{forged}:{port}")] {
                assert_eq!(status(path, &host), 403, "{path} as {host:?}");
            }
        }
        for own in ["127.0.0.1", "localhost", "[::1]", "box.example", "BOX.example"] {
            let host = format!("{own}:{port}");
            assert_eq!(status(path, &host), 200, "{path} as {host}");
        }
    }
}

#[test]
fn every_answer_has_the_policy_and_keeps_its_type() {
    let program = program();
    let run = stopped_run(&program);
    let running = serve(&program, &run, &[]);
    let pages = Pages::of(&running);
    let (own, token) = (pages.address.as_str(), pages.token.as_str());
    let logs = format!("/api/runs/{run}/logs/a");
    let api = [
        ("GET", logs.as_str(), own, token, 200),
        ("GET", "/api/runs?wrong=1", own, token, 400),
        ("GET", "/api/runs", own, "wrong", 401),
        ("GET", "/api/runs", "evil.example", token, 403),
        ("GET", "/api/nothing", own, token, 404),
        ("POST", "/api/runs", own, token, 405),
    ];
    let open = OPEN.map(|path| ("GET", path, own, "", 200));
    for (method, path, host, token, status) in api.into_iter().chain(open) {
        let reply = pages.request(method, path, host, token);
        assert_eq!(reply.status, status, "{method} {path}: {}", reply.body);
        for header in [
            POLICY,
            "x-content-type-options: nosniff",
            "x-frame-options: deny",
            "cache-control: no-store",
        ] {
            let is_there = reply.head.lines().any(|line| line.trim_end() == header);
            assert!(is_there, "{method} {path}, {header}: {}", reply.head);
        }
        assert!(!reply.head.contains("set-cookie"), "{path}: {}", reply.head);
        let is_json = reply.head.contains("content-type: application/json");
        assert_eq!(is_json, !path.contains('.') && path != "/", "{path}: {}", reply.head);
    }
}

#[test]
fn token_for_metrics_opens_the_metrics_alone() {
    const SCRAPER: &str = "fedcba9876543210fedcba9876543210";
    let program = program();
    let run = stopped_run(&program);
    let weak = &mut program.command(&["dashboard", "--listen", "127.0.0.1:0"]);
    let said = fail(2, weak.env("DYAD_METRICS_TOKEN", "short"));
    assert!(said.contains("DYAD_METRICS_TOKEN has 5"), "{said}");
    let running = serve_with(&program, &run, &["--write"], &[("DYAD_METRICS_TOKEN", SCRAPER)]);
    let pages = Pages::of(&running);
    let status = |path: &str, host: &str, token: &str| pages.request("GET", path, host, token).status;
    let own = pages.address.as_str();
    assert_eq!(status("/metrics", own, SCRAPER), 200);
    assert_eq!(
        status("/metrics", "dashboard:7070", SCRAPER),
        200,
        "a scraper's name of it"
    );
    assert_eq!(status("/metrics", own, &pages.token), 200);
    for token in ["", "wrong"] {
        assert_eq!(status("/metrics", own, token), 401, "{token:?}");
    }
    assert_eq!(status("/api/runs", own, SCRAPER), 401);
    let scraper = Pages {
        address: pages.address.clone(),
        token: SCRAPER.to_owned(),
    };
    let (status, answer) = scraper.post(&format!("/api/runs/{run}/orders"), &json!({"order": "pause"}));
    assert_eq!(status, 401, "{answer}");
}
