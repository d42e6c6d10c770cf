//! Tests of engines that are servers of other projects.

use super::{expect, problems};

const ASYNC: (&str, &str) = ("mode = \"sync\"", "mode = \"async\"");

/// Expects these problems for two agents with these engines, in mode `async`.
fn engines(a: &str, b: &str, expected: &[(&str, &str)]) {
    let (a, b) = (format!("[agents.a]\n{a}"), format!("[agents.b]\n{b}"));
    expect(&[ASYNC, ("[agents.a]", &a), ("[agents.b]", &b)], expected);
}

#[test]
fn servers_have_urls_and_our_own_engines_have_none() {
    let good = "engine = { kind = \"sglang\", urls = [\"http://127.0.0.1:30000\", \
         \"https://gpu.example.org/engine/\"] }";
    let other = "engine = { kind = \"vllm\", urls = [\"http://[::1]:8000\"], \
        weights_folder = \"/data/weights\" }";
    engines(good, other, &[]);
    engines(
        "engine = { kind = \"sglang\" }",
        "engine = { kind = \"vllm\", urls = [], replicas = 2 }",
        &[
            ("agents.a.engine.urls", "the URL of SGLang"),
            ("agents.b.engine.urls", "the URL of vLLM"),
            ("agents.b.engine.replicas", "each URL"),
        ],
    );
    engines(
        "engine = { urls = [\"http://127.0.0.1:1\"] }",
        "engine = { kind = \"scripted\", weights_folder = \"w\" }",
        &[
            ("agents.a.engine.urls", "\"vllm\""),
            ("agents.b.engine.weights_folder", "remove it"),
        ],
    );
}

#[test]
fn urls_are_judged_and_their_secrets_not_shown() {
    for (url, wrong) in [
        ("127.0.0.1:30000", "not an http://"),
        ("ftp://host:1", "not an http://"),
        ("http://", "no host"),
        ("http://:80", "no host"),
        ("http://host:0", "1 to 65535"),
        ("http://host:99999", "1 to 65535"),
        ("http://host:1?x=y", "query"),
        ("http://ho st:1", "white space"),
        ("http://me:secret@host:1", "DYAD_ENGINE_TOKEN"),
    ] {
        let engine = format!("engine = {{ kind = \"vllm\", urls = [{url:?}] }}");
        engines(&engine, "", &[("agents.a.engine.urls", wrong)]);
        let all = problems(&[ASYNC, ("[agents.a]", &format!("[agents.a]\n{engine}"))]);
        assert!(!all.concat().contains("secret"), "{all:?}");
    }
    engines(
        "engine = { kind = \"vllm\", urls = [\"http://host:1\", \"http://HOST:1/\"] }",
        "",
        &[("agents.a.engine.urls", "twice")],
    );
}

#[test]
fn whole_weights_share_no_server_and_adapters_do() {
    let engine = "engine = { kind = \"vllm\", urls = [\"http://host:1\"] }";
    let same = "engine = { kind = \"vllm\", urls = [\"http://Host:1/\"] }";
    engines(
        engine,
        same,
        &[("agents.b.engine.urls", "agent a loads its whole weights")],
    );
    let adapter = |engine: &str| format!("{engine}\nlora = {{ rank = 4 }}");
    engines(&adapter(engine), &adapter(same), &[]);
    engines(&adapter(engine), same, &[("agents.a.engine.urls", "agent b loads")]);
}

#[test]
fn sync_mode_with_a_foreign_server_is_rejected() {
    let engine = "[agents.a]\nengine = { kind = \"sglang\", urls = [\"http://host:1\"] }\n\
        http = { listen = \"127.0.0.1:1\" }";
    expect(
        &[("[agents.a]", engine)],
        &[("agents.a.engine.kind", "promises the same bits")],
    );
    let few = engine.replace("\"] }", "\"], slots = 8 }");
    let few = few.replace("listen", "generations = 8, listen");
    expect(
        &[("[agents.a]", &few), ("mode = \"sync\"", "mode = \"async\"")],
        &[("agents.a.http.generations", "training finds a free one")],
    );
}

#[test]
fn deterministic_needs_our_engine_on_a_cpu() {
    let deterministic = "agents.a.engine.deterministic";
    let agent = |keys: &str, expected: &[(&str, &str)]| {
        expect(&[("[agents.a]", &format!("[agents.a]\n{keys}"))], expected);
    };
    agent("engine.deterministic = true", &[]);
    agent(
        "device = \"cuda:0\"\nengine.deterministic = true",
        &[(deterministic, "is for CPUs")],
    );
    let served = "engine = { kind = \"vllm\", urls = [\"http://host:1\"], deterministic = true }";
    expect(
        &[
            ("[agents.a]", &format!("[agents.a]\n{served}")),
            ("mode = \"sync\"", "mode = \"async\""),
        ],
        &[(deterministic, "dyad's engines")],
    );
}

#[test]
fn server_of_messages_needs_a_served_model_and_no_training() {
    let engine = "engine = { kind = \"openai\", urls = [\"http://127.0.0.1:8200\"] }";
    let served = format!("model.served = \"m\"\n{engine}");
    engines("", &format!("{served}\ntrain.enabled = false"), &[]);
    engines("", &served, &[("agents.b.train.enabled", "must be false")]);
    engines(
        "model.served = \"m\"",
        &format!(
            "{engine}\ntrain.enabled = false\nlora = {{}}\nhistory = \"strip_reasoning\"\ntemplate_args = {{ mood = 1 }}\ntemplate_date = \"2026-11-23\"\nsampling = {{ top_k = 5 }}"
        ),
        &[
            ("agents.a.model.served", "engine.kind = \"openai\""),
            ("agents.b.engine.kind", "model.served"),
            ("agents.b.lora", "remove it"),
            ("agents.b.history", "\"keep\""),
            ("agents.b.template_args", "remove it"),
            ("agents.b.template_date", "remove it"),
            ("agents.b.sampling", "top_k"),
        ],
    );
}
