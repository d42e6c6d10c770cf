//! What may be said wrongly about engines that are processes of their own.

use std::net::SocketAddr;

use super::rules::Report;
use crate::{EngineConfig, EngineKind, RunConfig};

pub(super) fn all(config: &RunConfig, report: &mut Report) {
    let mut taken: Vec<(String, String)> = Vec::new();
    for (name, agent) in &config.agents {
        let (engine, path) = (&agent.engine, format!("agents.{name}.engine"));
        if engine.kind != EngineKind::Dyad {
            continue;
        }
        addresses(engine, &path, report);
        for url in &engine.urls {
            if let Some((_, other)) = taken.iter().find(|(known, _)| *known == same(url)) {
                let message =
                    format!("has {url:?}, which is in {other} too: an engine serves one agent, and is named once");
                report.when(true, format!("{path}.urls"), &[other], message);
            }
            taken.push((same(url), format!("{path}.urls")));
        }
    }
}

/// Equal for URLs that differ in their writing alone.
pub(super) fn same(url: &str) -> String {
    url.trim_end_matches('/').to_lowercase()
}

fn addresses(engine: &EngineConfig, path: &str, report: &mut Report) {
    let (urls, kind) = (format!("{path}.urls"), format!("{path}.kind"));
    report.when(
        engine.urls.is_empty(),
        &urls,
        &[&kind],
        "is empty: write where `dyad engine` answers, such as [\"http://127.0.0.1:8101\"]",
    );
    for url in &engine.urls {
        if let Some(problem) = fault(url) {
            report.when(true, &urls, &[], format!("has {url:?}, {problem}"));
        }
    }
    report.when(
        engine.replicas != 1,
        format!("{path}.replicas"),
        &[&kind],
        format!(
            "is {}: engines of this kind are as many as engine.urls; leave it out",
            engine.replicas
        ),
    );
    let listen = engine.weights_listen.parse::<SocketAddr>();
    report.when(
        listen.is_err(),
        format!("{path}.weights_listen"),
        &[],
        format!(
            "{:?} is no address: write an IP address and a port, such as \"127.0.0.1:8100\"",
            engine.weights_listen
        ),
    );
    report.when(
        listen.is_ok_and(|address| address.ip().is_unspecified()) && engine.weights_url.is_none(),
        format!("{path}.weights_listen"),
        &[&format!("{path}.weights_url")],
        format!(
            "is {:?}, which is no address to ask at: write in weights_url how engines reach it, such as \"http://agent-a:8100\"",
            engine.weights_listen
        ),
    );
    if let Some(url) = &engine.weights_url
        && let Some(problem) = fault(url)
    {
        report.when(
            true,
            format!("{path}.weights_url"),
            &[],
            format!("is {url:?}, {problem}"),
        );
    }
}

/// What is wrong with the URL of a server that is asked by host and port alone.
fn fault(url: &str) -> Option<&'static str> {
    let Some(rest) = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://")) else {
        return Some("which does not begin with http:// or https://");
    };
    let authority = rest.strip_suffix('/').unwrap_or(rest);
    if authority.contains('@') {
        return Some("which holds a password: give the token in DYAD_ENGINE_TOKEN");
    }
    if authority.contains(['/', '?', '#']) || authority.contains(char::is_whitespace) {
        return Some("which has more than a host and a port: write http://HOST:PORT");
    }
    // An IPv6 address has colons of its own, in brackets.
    let (host, port) = match authority.rfind(']') {
        Some(end) => authority.split_at(end + 1),
        None => authority.split_at(authority.find(':').unwrap_or(authority.len())),
    };
    let port = port.strip_prefix(':').map_or(Some(80), |port| port.parse::<u16>().ok());
    if host.is_empty() || port.is_none_or(|port| port == 0) {
        return Some("which names no host and port: write http://HOST:PORT");
    }
    None
}
