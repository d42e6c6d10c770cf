//! Rules for the HTTP fronts of agents.

use std::net::SocketAddr;

use super::report::Report;
use crate::{EngineKind, HttpConfig, RunConfig};

/// Least size of a request's body, in bytes.
const LEAST_BODY: u64 = 1 << 10;
/// Largest size of a request's body, in bytes. Several parallel requests need it at once.
const MOST_BODY: u64 = 64 << 20;

/// Checks `agents.NAME.http` of every agent.
pub(super) fn all(config: &RunConfig, report: &mut Report) {
    let mut taken: Vec<(String, SocketAddr)> = Vec::new();
    for (name, agent) in &config.agents {
        let Some(http) = &agent.http else { continue };
        let path = format!("agents.{name}.http");
        front(http, &path, report);
        rates(http, agent.sampling.max_new_tokens, &path, report);
        // All choices of a request go to one engine.
        let slots = agent.engine.slots;
        report.when(
            agent.engine.kind != EngineKind::Scripted && http.generations >= slots,
            format!("{path}.generations"),
            &[&format!("agents.{name}.engine")],
            format!(
                "is {}, but an engine has {slots} slots: write less, so that training finds a free one",
                http.generations
            ),
        );
        let Some(address) = http.address() else { continue };
        let listen = format!("{path}.listen");
        if let Some((other, _)) = taken.iter().find(|(_, known)| meet(*known, address)) {
            report.when(
                true,
                &listen,
                &[other],
                format!("{address} is used by {other}: give each agent its own port"),
            );
        }
        taken.push((listen, address));
    }
}

fn front(http: &HttpConfig, path: &str, report: &mut Report) {
    report.when(
        http.address().is_none(),
        format!("{path}.listen"),
        &[],
        format!(
            "{:?} is not an address: write an IP address and a port, for example \"127.0.0.1:8001\" (this machine) or \"0.0.0.0:8001\" (any network)",
            http.listen
        ),
    );
    report.when(
        !(LEAST_BODY..=MOST_BODY).contains(&http.body.0),
        format!("{path}.body"),
        &[],
        format!("is {}: write from \"1 KiB\" to \"64 MiB\"", http.body),
    );
    for (key, value) in [
        ("requests", http.requests),
        ("generations", http.generations),
        ("context", http.context),
    ] {
        report.when(
            value == 0,
            format!("{path}.{key}"),
            &[],
            "is 0, so no client would get an answer: write 1 or more, or remove [agents.NAME.http]",
        );
    }
}

fn rates(http: &HttpConfig, answer: u32, path: &str, report: &mut Report) {
    let most = usize::try_from(answer).unwrap_or(usize::MAX).min(http.context) as u64;
    report.when(
        http.tokens_per_minute.is_some_and(|limit| limit != 0 && limit <= most),
        format!("{path}.tokens_per_minute"),
        &[],
        format!("is at most the {most} tokens that one answer may have (sampling.max_new_tokens): write more, or no client ever gets an answer"),
    );
    for (key, value) in [
        ("requests_per_minute", http.requests_per_minute),
        ("tokens_per_minute", http.tokens_per_minute),
    ] {
        report.when(
            value == Some(0),
            format!("{path}.{key}"),
            &[],
            "is 0, so no client would get an answer: write 1 or more, or remove it for no limit",
        );
    }
}

/// Returns true if two listeners need the same port. With port 0 each gets another port.
fn meet(a: SocketAddr, b: SocketAddr) -> bool {
    let any = a.ip().is_unspecified() || b.ip().is_unspecified();
    a.port() != 0 && a.port() == b.port() && (any || a.ip() == b.ip())
}
