//! Rules for engines that are servers of other projects.

use std::collections::BTreeMap;

use super::engine_rules::{same, shown};
use super::report::Report;
use crate::{AgentConfig, EngineKind, Mode, RunConfig};

/// Checks foreign servers of every agent.
pub(super) fn all(config: &RunConfig, report: &mut Report) {
    for (name, agent) in &config.agents {
        let path = format!("agents.{name}");
        if agent.engine.kind.is_foreign() {
            foreign(config, agent, &path, report);
        } else {
            own(agent, &path, report);
        }
    }
    shared(config, report);
}

/// Checks keys that only work with a foreign server.
fn own(agent: &AgentConfig, path: &str, report: &mut Report) {
    let kind = format!("{path}.engine.kind");
    report.when(
        agent.engine.weights_folder.is_some(),
        format!("{path}.engine.weights_folder"),
        &[&kind],
        "is for engine.kind = \"sglang\" or \"vllm\", which read weights from a folder: remove it",
    );
}

fn foreign(config: &RunConfig, agent: &AgentConfig, path: &str, report: &mut Report) {
    let engine = &agent.engine;
    let name = name(engine.kind);
    let kind = format!("{path}.engine.kind");
    let urls = format!("{path}.engine.urls");
    report.when(
        engine.urls.is_empty(),
        &urls,
        &[&kind],
        format!("is missing: write the URL of {name}, for example [\"http://127.0.0.1:30000\"]"),
    );
    for (place, url) in engine.urls.iter().enumerate() {
        if let Err(wrong) = judge(url) {
            report.when(
                true,
                &urls,
                &[],
                format!("{:?} {wrong}: write http[s]://HOST:PORT", shown(url)),
            );
        }
        report.when(
            engine.urls[..place].iter().any(|other| same(other) == same(url)),
            &urls,
            &[],
            format!("has {:?} twice: one URL is one engine", shown(url)),
        );
    }
    report.when(
        engine.replicas != 1,
        format!("{path}.engine.replicas"),
        &[&kind],
        format!("is for engines in the agent's process: each URL of engine.urls is one {name}; remove it"),
    );
    report.when(
        engine.kind == EngineKind::Openai && engine.weights_folder.is_some(),
        format!("{path}.engine.weights_folder"),
        &[&kind],
        "is for servers that accept weights: remove it",
    );
    report.when(
        config.run.mode == Mode::Sync,
        &kind,
        &["run.mode"],
        format!("is {name}; its bits depend on its other requests, but mode \"sync\" promises the same bits: write mode = \"async\", or engine.kind = \"embedded\""),
    );
    report.when(
        agent.http.is_some() && engine.kind == EngineKind::Openai,
        format!("{path}.http"),
        &[&kind],
        format!("is for engines that accept tokens: {name} accepts messages and has its own HTTP front, so use that and remove [{path}.http]"),
    );
}

/// Checks servers that several agents share. A server with whole weights serves one agent; adapters
/// can share one.
fn shared(config: &RunConfig, report: &mut Report) {
    let mut users: BTreeMap<String, Vec<(String, bool)>> = BTreeMap::new();
    for (name, agent) in &config.agents {
        let alone = agent.train.enabled && agent.lora.is_none();
        for url in agent.engine.urls.iter().filter(|_| agent.engine.kind.is_foreign()) {
            let users = users.entry(same(url)).or_default();
            users.push((name.to_string(), alone));
        }
    }
    for (url, users) in users {
        let Some((alone, _)) = users.iter().find(|(_, alone)| *alone) else {
            continue;
        };
        for (other, _) in users.iter().filter(|(other, _)| other != alone) {
            report.when(
                true,
                format!("agents.{other}.engine.urls"),
                &[&format!("agents.{alone}.engine.urls")],
                format!(
                    "has {:?}, where agent {alone} loads its whole weights: give each agent its own engine, or train adapters ([agents.NAME.lora])",
                    shown(&url)
                ),
            );
        }
    }
}

fn name(kind: EngineKind) -> &'static str {
    match kind {
        EngineKind::Vllm => "vLLM",
        EngineKind::Openai => "the server",
        _ => "SGLang",
    }
}

/// Returns why a text is not a URL of an engine. The client decides whether plaintext is allowed.
fn judge(url: &str) -> Result<(), &'static str> {
    let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
    let rest = rest.ok_or("is not an http:// or https:// URL")?;
    if url.contains(|c: char| c.is_whitespace() || c.is_control()) {
        return Err("contains white space");
    }
    if url.contains(['?', '#']) {
        return Err("has a query or a fragment");
    }
    let authority = rest.split('/').next().unwrap_or_default();
    if authority.contains('@') {
        return Err("contains a name or a key, which belongs into DYAD_ENGINE_TOKEN");
    }
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (authority, None),
    };
    if host.is_empty() {
        return Err("has no host");
    }
    let wrong = |port: &str| port.parse::<u16>().map_or(true, |port| port == 0);
    if port.is_some_and(wrong) {
        return Err("has a port that is not a number from 1 to 65535");
    }
    Ok(())
}
