//! Rules for `[run]`, and for synchronous rounds.

use super::report::{Report, one_of};
use crate::{Mode, RunConfig, ZeroAdvantage};

/// Longest name of a run. The run id adds a hyphen and eight characters, 48 in all.
const LONGEST_NAME: usize = 39;

/// Checks `[run]`.
pub(super) fn all(config: &RunConfig, report: &mut Report) {
    let run = &config.run;
    let legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_';
    let named = run
        .name
        .starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
        && run.name.len() <= LONGEST_NAME
        && run.name.chars().all(legal);
    report.when(
        !named,
        "run.name",
        &[],
        format!(
            "{:?} is not a name of a run: use 1 to {LONGEST_NAME} of a-z, 0-9, '-' and '_', beginning with a letter or digit",
            run.name
        ),
    );
    report.when(
        run.train_steps == 0,
        "run.train_steps",
        &[],
        "is 0, so nothing would be trained: write 1 or more",
    );
    for (key, problem) in [
        ("run.broker", broker_url(&run.broker)),
        ("run.state", state_url(&run.state)),
    ] {
        report.when(problem.is_some(), key, &[], problem.unwrap_or_default());
    }
    report.when(
        run.lease.0.is_zero(),
        "run.lease",
        &[],
        "is 0, so every agent would always count as gone: write for example \"15s\"",
    );
    report.when(
        !((16 << 10)..=(12 << 20)).contains(&run.message_cap.0),
        "run.message_cap",
        &[],
        format!(
            "is {}: write from \"16 KiB\" to \"12 MiB\": RabbitMQ accepts 16 MiB with the envelope",
            run.message_cap
        ),
    );
    if let Some(metrics) = &run.metrics {
        report.when(
            metrics.address().is_none(),
            "run.metrics.listen",
            &[],
            format!(
                "{:?} is not an address: write an IP address and a port, for example \"127.0.0.1:0\"",
                metrics.listen
            ),
        );
    }
    lead(config, report);
}

/// Checks that the lead agent exists and trains.
fn lead(config: &RunConfig, report: &mut Report) {
    let Some(lead) = &config.run.lead else { return };
    let of_lead = format!("agents.{lead}");
    match config.agents.get(lead) {
        None => {
            let names: Vec<&str> = config.agents.keys().map(|n| n.as_str()).collect();
            let message = format!("{lead:?} is not an agent: write {}", one_of(&names));
            report.when(true, "run.lead", &["agents", &of_lead], message);
        }
        Some(agent) => report.when(
            !agent.train.enabled,
            "run.lead",
            &[&format!("{of_lead}.train.enabled")],
            format!("{lead} does not train (train.enabled = false), so its steps never end the run: name an agent that trains"),
        ),
    }
}

/// Returns the problem of a broker's URL.
#[must_use]
pub fn broker_url(url: &str) -> Option<&'static str> {
    // A vhost has no slash; %2F stands for one.
    let is_vhost = |path: &str| !path.contains('/');
    (!is_url(url, &["amqp", "amqps"], is_vhost)).then_some(
        "is not understood: write \"memory:\" (one process), \"local:\" (a private RabbitMQ) or \
         \"amqp[s]://user:password@host:port/vhost\"",
    )
}

/// Returns the problem of the URL of a state store.
#[must_use]
pub fn state_url(url: &str) -> Option<&'static str> {
    let is_db = |path: &str| path.is_empty() || path.parse::<u16>().is_ok();
    (!is_url(url, &["redis", "rediss"], is_db)).then_some(
        "is not understood: write \"memory:\" (one process), \"local:\" (a private Redis) or \
         \"redis[s]://user:password@host:port/db\"",
    )
}

/// Returns true for `memory:`, `local:`, and a URL with a host, a port that exists, and a path that
/// `is_path` accepts. What follows a question mark is not checked.
fn is_url(url: &str, schemes: &[&str], is_path: impl Fn(&str) -> bool) -> bool {
    if matches!(url, "memory:" | "local:") {
        return true;
    }
    let Some((scheme, rest)) = url.split_once("://") else {
        return false;
    };
    let place = rest.rsplit('@').next().unwrap_or_default();
    let place = place.split(['?', '#']).next().unwrap_or_default();
    let (host, path) = place.split_once('/').unwrap_or((place, ""));
    // The address of IPv6 stands in brackets.
    let (name, port) = match host.rsplit_once(':') {
        Some((name, port)) if !port.contains(']') => (name, Some(port)),
        _ => (host, None),
    };
    let is_port = |port: &str| port.parse::<u16>().is_ok_and(|port| port > 0);
    schemes.contains(&scheme) && !name.is_empty() && port.is_none_or(is_port) && is_path(path)
}

/// Checks synchronous rounds: the smallest batch is a round, and every batch is a multiple of it.
pub(super) fn rounds(config: &RunConfig, report: &mut Report) {
    if config.run.mode != Mode::Sync {
        return;
    }
    let batches = || config.agents.iter().filter(|(_, agent)| agent.train.enabled);
    let Some((least, round)) = batches()
        .map(|(name, agent)| (name, agent.train.batch_groups))
        .min_by_key(|(_, groups)| *groups)
    else {
        return;
    };
    for (name, agent) in batches() {
        report.when(
            agent.train.zero_advantage == ZeroAdvantage::Refill,
            format!("agents.{name}.train.zero_advantage"),
            &["run.mode"],
            "is \"refill\": a synchronous round cannot draw more groups and would wait for ever; write \"keep\", or mode \"async\"",
        );
        let groups = agent.train.batch_groups;
        report.when(
            round > 0 && !groups.is_multiple_of(round),
            format!("agents.{name}.train.batch_groups"),
            &["run.mode", &format!("agents.{least}.train.batch_groups")],
            format!(
                "is {groups}: in mode \"sync\" it must be a multiple of the smallest batch, {round} of agent {least}"
            ),
        );
    }
}
