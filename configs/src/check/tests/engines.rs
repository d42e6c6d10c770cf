//! Engines that are processes of their own.

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
    for urls in [
        r#"["http://127.0.0.1:8101"]"#,
        r#"["http://engine-a:8101/", "https://gpu.example.org", "http://[::1]:8101"]"#,
    ] {
        engine(&format!("urls = {urls}"), &[]);
    }
    let urls = "agents.a.engine.urls";
    engine("swap = \"drain\"", &[(urls, "is empty")]);
    for (url, said) in [
        ("127.0.0.1:8101", "http://"),
        ("http://", "no host"),
        ("http://:8101", "no host"),
        ("http://h:0", "no host"),
        ("http://h:x", "no host"),
        ("http://me:secret@h:8101", "DYAD_ENGINE_TOKEN"),
        ("http://h:8101/v1", "more than a host"),
        ("http://h:8101?x", "more than a host"),
    ] {
        engine(&format!("urls = [{url:?}]"), &[(urls, said)]);
    }
    engine(r#"urls = ["http://h:1", "http://H:1/"]"#, &[(urls, "named once")]);
}

#[test]
fn two_agents_do_not_share_an_engine_process() {
    let keys = r#"engine = { kind = "dyad", urls = ["http://h:1"] }"#;
    let found = problems(&[
        (AGENT, &format!("{AGENT}\n{keys}")),
        ("[agents.b]", &format!("[agents.b]\n{keys}")),
    ]);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].starts_with("agents.b.engine.urls") && found[0].contains("agents.a.engine.urls"));
}

#[test]
fn weights_are_fetched_at_an_address_that_can_be_asked() {
    let urls = r#"urls = ["http://h:1"]"#;
    let listen = "agents.a.engine.weights_listen";
    engine(
        &format!("{urls}, weights_listen = \"0.0.0.0:8100\""),
        &[(listen, "weights_url")],
    );
    engine(&format!("{urls}, weights_listen = \"here\""), &[(listen, "no address")]);
    engine(
        &format!("{urls}, weights_listen = \"0.0.0.0:8100\", weights_url = \"http://agent-a:8100\""),
        &[],
    );
    engine(
        &format!("{urls}, weights_url = \"agent-a\""),
        &[("agents.a.engine.weights_url", "http://")],
    );
    engine(
        &format!("{urls}, replicas = 2"),
        &[("agents.a.engine.replicas", "engine.urls")],
    );
}
