//! Tests of engines in separate processes.

use super::{expect, problems};

const AGENT: &str = "[agents.a]";

#[track_caller]
fn engine(keys: &str, expected: &[(&str, &str)]) {
    expect(
        &[(AGENT, &format!("[agents.a]\nengine = {{ kind = \"dyad\", {keys} }}"))],
        expected,
    );
}

#[test]
fn an_engine_is_asked_at_its_url() {
    let far = r#"weights_listen = "0.0.0.0:8100", weights_url = "http://agent-a:8100""#;
    let others = [
        "http://engine-a:8101/",
        "https://gpu.example.org:443",
        "http://[fd00::1]:8101",
    ];
    for keys in [
        r#"urls = ["http://127.0.0.1:8101"]"#.to_owned(),
        r#"urls = ["http://localhost:8101", "http://[::1]:8101/"]"#.to_owned(),
        format!("urls = {others:?}, {far}"),
    ] {
        engine(&keys, &[]);
    }
    let urls = "agents.a.engine.urls";
    engine("swap = \"drain\"", &[(urls, "is empty")]);
    for (url, said) in [
        ("127.0.0.1:8101", "http://"),
        ("http://", "no valid host"),
        ("http://:8101", "no valid host"),
        ("http://h:0", "no valid host"),
        ("http://h:x", "no valid host"),
        ("http://h", "including port 443"),
        ("https://gpu.example.org", "including port 443"),
        ("http://h:+1", "no valid host"),
        ("http://[::1]", "no valid host"),
        ("http://[::1]8101", "no valid host"),
        ("http://[::1:8101", "no valid host"),
        ("http://[h]:8101", "no valid host"),
        ("http://::1:8101", "no valid host"),
        ("http://me:secret@h:8101", "DYAD_ENGINE_TOKEN"),
        ("http://h:8101/v1", "more than a host"),
        ("http://h:8101?x", "more than a host"),
    ] {
        engine(&format!("urls = [{url:?}]"), &[(urls, said)]);
        let keys = format!("[agents.a]\nengine = {{ kind = \"dyad\", urls = [{url:?}], weights_url = {url:?} }}");
        let all = problems(&[("[agents.a]", &keys)]);
        assert!(!all.concat().contains("secret"), "{all:?}");
    }
    engine(
        r#"urls = ["http://127.0.0.1:1", "http://127.0.0.1:1/"]"#,
        &[(urls, "list it once")],
    );
}

#[test]
fn two_agents_do_not_share_an_engine_process() {
    let keys = r#"engine = { kind = "dyad", urls = ["http://127.0.0.1:1"] }"#;
    let found = problems(&[
        (AGENT, &format!("{AGENT}\n{keys}")),
        ("[agents.b]", &format!("[agents.b]\n{keys}")),
    ]);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].starts_with("agents.b.engine.urls") && found[0].contains("agents.a.engine.urls"));
}

#[test]
fn weights_are_fetched_at_an_address_that_can_be_asked() {
    let urls = r#"urls = ["http://127.0.0.1:1"]"#;
    let listen = "agents.a.engine.weights_listen";
    engine(
        &format!("{urls}, weights_listen = \"0.0.0.0:8100\""),
        &[(listen, "weights_url")],
    );
    engine(
        &format!("{urls}, weights_listen = \"here\""),
        &[(listen, "not an address")],
    );
    engine(
        &format!(
            "{urls}, weights_listen = \"0.0.0.0:8100\", weights_url = \
         \"http://agent-a:8100\""
        ),
        &[],
    );
    engine(
        &format!("{urls}, weights_url = \"agent-a\""),
        &[("agents.a.engine.weights_url", "http://")],
    );
    engine(&format!("{urls}, devices = [\"cuda:2\"]"), &[]);
    engine(
        &format!("{urls}, devices = [\"cuda:2\", \"cuda:3\"]"),
        &[("agents.a.engine.devices", "2 devices for 1 engines")],
    );
    engine(
        &format!("{urls}, replicas = 2"),
        &[("agents.a.engine.replicas", "engine.urls")],
    );
}

#[test]
fn an_engine_on_another_host_can_reach_the_weights() {
    let listen = "agents.a.engine.weights_listen";
    for url in [
        "http://engine-a:8101",
        "http://10.0.0.4:8101",
        "https://gpu.example.org:443",
    ] {
        let urls = format!("urls = [\"http://127.0.0.1:1\", {url:?}]");
        engine(&urls, &[(listen, "weights_url = ")]);
        engine(&format!("{urls}, weights_url = \"http://agent-a:8100\""), &[]);
        engine(&format!("{urls}, weights_listen = \"10.0.0.3:8100\""), &[]);
    }
}

#[test]
fn keys_of_engine_processes_are_not_taken_for_others() {
    for kind in ["embedded", "scripted"] {
        for (key, value) in [
            ("urls", r#"["http://127.0.0.1:1"]"#),
            ("devices", r#"["cpu"]"#),
            ("weights_listen", r#""127.0.0.1:8100""#),
            ("weights_url", r#""http://127.0.0.1:8100""#),
        ] {
            let keys = format!("{AGENT}\nengine = {{ kind = {kind:?}, {key} = {value} }}");
            let path = format!("agents.a.engine.{key}");
            expect(&[(AGENT, &keys)], &[(&path, "kind = \"dyad\"")]);
        }
    }
}

#[test]
fn a_bounded_cache_holds_a_row_of_a_random_model() {
    let with = |keys: &str| {
        let model = "model.random = { layers = 8, hidden = 512, heads = 8, tokenizer = \"bytes\" }";
        format!("[agents.a]\n{model}\n{keys}")
    };
    // 32 KiB a token, and 512 tokens.
    let small = [(
        "agents.a.engine.cache_mib",
        "a row of 512 tokens needs 16: write that or more",
    )];
    expect(&[(AGENT, &with("engine.cache_mib = 15"))], &small);
    for keys in [
        "engine.cache_mib = 16",
        "engine.cache_mib = 0",
        "engine.cache_mib = 8\ndtype = \"bf16\"",
        "engine.cache_mib = 10\nsampling.max_context = 300",
    ] {
        expect(&[(AGENT, &with(keys))], &[]);
    }
}
