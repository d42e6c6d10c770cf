//! Tests of HTTP fronts: addresses and bounds.

use super::expect;

#[test]
fn fronts_need_distinct_addresses_and_legal_bounds() {
    let fronts = |a: &str, b: &str, expected: &[(&str, &str)]| {
        let (a, b) = (format!("[agents.a]\nhttp = {a}"), format!("[agents.b]\nhttp = {b}"));
        expect(&[("[agents.a]", &a), ("[agents.b]", &b)], expected);
    };
    let taken = [("agents.b.http.listen", "agents.a.http.listen")];
    fronts("{ listen = \"127.0.0.1:1\" }", "{ listen = \"127.0.0.1:2\" }", &[]);
    fronts("{ listen = \"127.0.0.1:0\" }", "{ listen = \"127.0.0.1:0\" }", &[]);
    fronts("{ listen = \"127.0.0.1:1\" }", "{ listen = \"127.0.0.2:1\" }", &[]);
    fronts("{ listen = \"127.0.0.1:1\" }", "{ listen = \"127.0.0.1:1\" }", &taken);
    fronts("{ listen = \"127.0.0.1:1\" }", "{ listen = \"0.0.0.0:1\" }", &taken);
    fronts(
        "{ listen = \"localhost:1\", body = \"1\" }",
        "{ listen = \"[::1]:1\", requests = 0, context = 0, generations = 256, requests_per_minute = 0, tokens_per_minute = 9 }",
        &[
            ("agents.a.http.listen", "127.0.0.1:8001"),
            ("agents.a.http.body", "1 KiB"),
            ("agents.b.http.context", "no client would get an answer"),
            ("agents.b.http.requests", "1 or more"),
            ("agents.b.http.requests_per_minute", "for no limit"),
            ("agents.b.http.generations", "256 slots"),
        ],
    );
    fronts(
        "{}",
        "{ listen = 8001 }",
        &[("agents.a.http.listen", "listen ="), ("agents.b.http.listen", "text")],
    );
}
