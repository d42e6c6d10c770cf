//! Rules for engines that run as separate processes.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use super::report::Report;
use crate::{EngineConfig, EngineKind, RunConfig};

/// Checks `agents.NAME.engine` of every agent.
pub(super) fn all(config: &RunConfig, report: &mut Report) {
    let mut taken: Vec<(String, String)> = Vec::new();
    for (name, agent) in &config.agents {
        let (engine, path) = (&agent.engine, format!("agents.{name}.engine"));
        if engine.kind != EngineKind::Dyad {
            idle(engine, &path, report);
            continue;
        }
        addresses(engine, &path, report);
        devices(engine, &path, report);
        reach(engine, &path, report);
        for url in &engine.urls {
            if let Some((_, other)) = taken.iter().find(|(known, _)| *known == same(url)) {
                let message = format!(
                    "has {:?}, which {other} has too: an engine serves one agent, so list it once",
                    shown(url)
                );
                report.when(true, format!("{path}.urls"), &[other], message);
            }
            taken.push((same(url), format!("{path}.urls")));
        }
    }
}

/// Returns a form that is equal for URLs that differ only in case and trailing slashes.
pub(super) fn same(url: &str) -> String {
    url.trim_end_matches('/').to_lowercase()
}

fn addresses(engine: &EngineConfig, path: &str, report: &mut Report) {
    let (urls, kind) = (format!("{path}.urls"), format!("{path}.kind"));
    report.when(
        engine.urls.is_empty(),
        &urls,
        &[&kind],
        "is empty: write the URL of `dyad engine`, for example [\"http://127.0.0.1:8101\"]",
    );
    for url in &engine.urls {
        if let Some(problem) = fault(url) {
            report.when(true, &urls, &[], format!("has {:?}, {problem}", shown(url)));
        }
    }
    report.when(
        engine.replicas != 1,
        format!("{path}.replicas"),
        &[&kind],
        format!(
            "is {}: the number of engines of this kind is that of engine.urls; remove it",
            engine.replicas
        ),
    );
    let listen = engine.weights_listen.parse::<SocketAddr>();
    report.when(
        listen.is_err(),
        format!("{path}.weights_listen"),
        &[],
        format!(
            "{:?} is not an address: write an IP address and a port, for example \"127.0.0.1:8100\"",
            engine.weights_listen
        ),
    );
    report.when(
        listen.is_ok_and(|address| address.ip().is_unspecified()) && engine.weights_url.is_none(),
        format!("{path}.weights_listen"),
        &[&format!("{path}.weights_url")],
        format!(
            "is {:?}, an address that engines cannot call: write a reachable URL in \
             weights_url, for example \"http://agent-a:8100\"",
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
            format!("is {:?}, {problem}", shown(url)),
        );
    }
}

fn devices(engine: &EngineConfig, path: &str, report: &mut Report) {
    let (urls, devices) = (engine.urls.len(), engine.devices.len());
    report.when(
        devices > 0 && devices != urls,
        format!("{path}.devices"),
        &[&format!("{path}.urls")],
        format!("names {devices} devices for {urls} engines: name one for each of engine.urls, or remove it"),
    );
}

/// Returns the URL without parts that may be secret.
pub(super) fn shown(url: &str) -> String {
    match url.rsplit_once('@') {
        Some((_, host)) => format!("...@{host}"),
        None => url.to_owned(),
    }
}

/// Checks keys that only affect engines in separate processes.
fn idle(engine: &EngineConfig, path: &str, report: &mut Report) {
    let default = EngineConfig::default();
    for (key, is_set) in [
        ("urls", !engine.urls.is_empty() && !engine.kind.is_foreign()),
        ("devices", !engine.devices.is_empty()),
        ("weights_listen", engine.weights_listen != default.weights_listen),
        ("weights_url", engine.weights_url.is_some()),
    ] {
        report.when(
            is_set,
            format!("{path}.{key}"),
            &[&format!("{path}.kind")],
            "is for engines in separate processes: write kind = \"dyad\" (urls: \"sglang\", \"vllm\" or \"openai\" too), or remove it",
        );
    }
}

/// Checks that engines on other hosts can fetch weights from this one.
fn reach(engine: &EngineConfig, path: &str, report: &mut Report) {
    let near = |address: SocketAddr| address.ip().to_canonical().is_loopback();
    let far = engine.urls.iter().find(|url| fault(url).is_none() && !is_near(url));
    if let Some(url) = far
        && engine.weights_listen.parse().is_ok_and(near)
        && engine.weights_url.is_none()
    {
        let message = format!(
            "is {:?}, which the engine at {url:?} cannot reach: write weights_listen = \"0.0.0.0:8100\" (with DYAD_ENGINE_TOKEN set) and \
             weights_url = \"http://THIS-HOST:8100\"",
            engine.weights_listen
        );
        let others = [format!("{path}.urls"), format!("{path}.weights_url")];
        report.when(
            true,
            format!("{path}.weights_listen"),
            &[&others[0], &others[1]],
            message,
        );
    }
}

/// Returns true if a valid URL names this machine.
fn is_near(url: &str) -> bool {
    let authority = url.split_once("://").map_or(url, |(_, rest)| rest);
    let host = authority.rsplit_once(':').map_or(authority, |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost")
        || host
            .parse::<IpAddr>()
            .is_ok_and(|address| address.to_canonical().is_loopback())
}

/// Returns what is wrong with a URL that must be a host and a port.
fn fault(url: &str) -> Option<&'static str> {
    let Some(rest) = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://")) else {
        return Some("which does not begin with http:// or https://");
    };
    let authority = rest.strip_suffix('/').unwrap_or(rest);
    if authority.contains('@') {
        return Some("which contains a password: put the token into DYAD_ENGINE_TOKEN");
    }
    if authority.contains(['/', '?', '#']) || authority.contains(char::is_whitespace) {
        return Some("which has more than a host and a port: write http://HOST:PORT");
    }
    // An IPv6 address has colons and stands in brackets.
    let bracketed = authority.strip_prefix('[').and_then(|rest| rest.split_once("]:"));
    let is_name = |host: &str| !host.is_empty() && !host.contains([':', '[', ']']);
    let (sound, port) = match bracketed {
        Some((host, port)) => (host.parse::<Ipv6Addr>().is_ok(), port),
        None => authority
            .split_once(':')
            .map_or((false, ""), |(host, port)| (is_name(host), port)),
    };
    let digits = port.bytes().all(|byte| byte.is_ascii_digit());
    if !sound || !digits || port.parse::<u16>().unwrap_or(0) == 0 {
        return Some("which has no valid host and port: write http://HOST:PORT, including port 443");
    }
    None
}
