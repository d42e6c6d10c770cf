//! Rules for tools and for the roles that call them.

use super::kind_checks::memory;
use super::report::{Report, one_of};
use crate::{PROCESS, RoleName, RunConfig, ToolConfig};

/// The tools that a corpus of documents provides.
const OF_CORPUS: [&str; 2] = ["search", "visit"];
/// Longest answer in bytes. Answers of tools are part of prompts.
const MOST_ANSWER: u64 = 256 << 10;
/// Most calls of one seat.
const MOST_CALLS: u16 = 256;

/// Checks `[tools]`, `[workflow.tools]` and `[workflow.tool_limits]`.
pub(super) fn all(config: &RunConfig, report: &mut Report) {
    for (name, tool) in &config.tools {
        one(name, tool, report);
        let users = config.workflow.tools.values();
        report.when(
            !users.flatten().any(|used| used == name),
            format!("tools.{name}"),
            &["workflow.tools"],
            format!(
                "is called by no role: name it under [workflow.tools], for example solver = [{name:?}], or remove it"
            ),
        );
    }
    let known: Vec<&str> = config.tools.keys().map(String::as_str).collect();
    let roles: Vec<&str> = config.workflow.roles.keys().map(RoleName::as_str).collect();
    for (role, tools) in &config.workflow.tools {
        let path = format!("workflow.tools.{role}");
        report.when(
            !config.workflow.roles.contains_key(role),
            &path,
            &["workflow.roles", &format!("workflow.roles.{role}")],
            format!("{role} is not a role of [workflow.roles]: write {}", one_of(&roles)),
        );
        for tool in tools.iter().filter(|tool| !config.tools.contains_key(*tool)) {
            let message = format!("there is no [tools.{tool}]: write {}", one_of(&known));
            report.when(true, &path, &["tools", &format!("tools.{tool}")], message);
        }
    }
    limits(config, report);
}

fn one(name: &str, tool: &ToolConfig, report: &mut Report) {
    let at = |key: &str| format!("tools.{name}.{key}");
    let legal = RoleName::new(name).is_ok();
    report.when(
        !legal,
        format!("tools.{name}"),
        &[],
        "is not a name of a tool: use 1 to 32 of a-z, 0-9, '-' and '_', beginning with a letter or digit",
    );
    let corpus = tool.kind.strip_prefix("corpus:");
    let places = [corpus, tool.kind.strip_prefix(PROCESS)];
    let server = ["http://", "https://"]
        .iter()
        .any(|scheme| tool.kind.strip_prefix(scheme).is_some_and(|rest| !rest.is_empty()));
    let placed = places.into_iter().flatten().any(|place| !place.trim().is_empty());
    report.when(
        !server && !placed,
        at("kind"),
        &[],
        format!(
            "{:?} is not understood: write \"corpus:FOLDER\", \"process:FILE\" or \
             \"http://HOST:PORT/PATH\"",
            tool.kind
        ),
    );
    let host = tool.kind.split("://").nth(1).and_then(|rest| rest.split('/').next());
    report.when(
        host.is_some_and(|host| host.contains('@')),
        at("kind"),
        &[],
        format!(
            "contains a password: remove it, and put a token into DYAD_TOOL_TOKEN_{}",
            name.to_uppercase().replace('-', "_")
        ),
    );
    report.when(
        corpus.is_some() && !OF_CORPUS.contains(&name),
        format!("tools.{name}"),
        &[&at("kind")],
        format!("is a corpus, so its name must be {}", one_of(&OF_CORPUS)),
    );
    report.when(
        corpus.is_none() && tool.description.trim().is_empty(),
        at("description"),
        &[&at("kind")],
        "is empty: describe the tool, because the model knows nothing else about it",
    );
    report.when(
        corpus.is_some() && !tool.parameters.is_empty(),
        at("parameters"),
        &[&at("kind")],
        "is set, but a corpus brings its own: remove it",
    );
    let object = tool.parameters.get("type").and_then(toml::Value::as_str) == Some("object");
    report.when(
        corpus.is_none() && !object,
        at("parameters"),
        &[&at("kind")],
        "is not a JSON Schema of an object: write { type = \"object\", properties = { query = { type = \"string\" } }, required = [\"query\"] }",
    );
    report.when(
        tool.timeout.0.is_zero(),
        at("timeout"),
        &[],
        "is 0: write for example \"30s\"",
    );
    report.when(
        tool.workers == 0,
        at("workers"),
        &[],
        "is 0, so no call would be answered: write 1 or more",
    );
    report.when(
        tool.retries > 20,
        at("retries"),
        &[],
        format!("is {}: write 0 to 20", tool.retries),
    );
    memory(tool.memory, at("memory"), report);
    report.when(
        !(64..=MOST_ANSWER).contains(&tool.answer.0),
        at("answer"),
        &[],
        format!(
            "is {}: write from \"64 B\" to \"256 KiB\", since it is part of a prompt",
            tool.answer
        ),
    );
}

fn limits(config: &RunConfig, report: &mut Report) {
    let limits = &config.workflow.tool_limits;
    let path = |key: &str| format!("workflow.tool_limits.{key}");
    report.when(
        limits.turns > 1000,
        path("turns"),
        &[],
        format!("is {}: write 0 to 1000", limits.turns),
    );
    report.when(
        limits.calls == 0 || limits.calls > MOST_CALLS,
        path("calls"),
        &[],
        format!("is {}: write 1 to {MOST_CALLS}", limits.calls),
    );
    report.when(
        limits.context > 0 && limits.reserve >= limits.context,
        path("reserve"),
        &[&path("context")],
        format!(
            "is {}, which is all of the context of {} tokens: write less",
            limits.reserve, limits.context
        ),
    );
    report.when(
        limits.hurry.trim().is_empty(),
        path("hurry"),
        &[],
        "is empty: write a text that says no more calls are possible",
    );
}
