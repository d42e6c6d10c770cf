//! What a configuration of the right shape may still say wrongly about the run, its tasks and its workflow.

use super::advice::nearest;
use super::report::{Report, one_of};
use crate::{
    Advantage, JUDGE, LossKind, Mode, OwnKinds, PROCESS, ParticipantName, REMOTE, RunConfig, Take, TrainConfig,
    ZeroAdvantage,
};

/// Workflows that are shipped.
pub const WORKFLOWS: [&str; 10] = [
    "signal",
    "guess-number",
    "doctor-patient",
    "self-reward",
    "sequential",
    "solo",
    "solve-verify",
    "solve-rewrite-select",
    "adversarial",
    "deep-research",
];
/// Those that tell what a seat should have said.
const TELLING: [&str; 1] = ["sequential"];
/// Less than this is not enough for a program to start.
pub(super) const LEAST_MEMORY: u64 = 16 << 20;
/// Graders that are shipped.
pub(crate) const GRADERS: [&str; 8] = ["exact", "match", "integer", "gsm8k", "math", "choice", "f1", "format"];
/// The one that has `take`.
const TAKING: &str = "integer";
/// The run id is the name, a hyphen and eight characters, 48 in all.
const LONGEST_NAME: usize = 39;

/// All rules.
pub(super) fn all(config: &RunConfig, report: &mut Report) {
    run(config, report);
    super::tasks_rules::all(config, report);
    super::eval_rules::all(config, report);
    workflow(config, report);
    super::reward_rules::all(config, report);
    graders(config, report);
    super::sampling_rules::all(config, report);
    super::tool_rules::all(config, report);
    for (name, agent) in &config.agents {
        super::agent_rules::agent(config, name, agent, report);
    }
    agents(config, report);
    imitators(config, report);
    super::opponent_rules::all(config, report);
    super::past_rules::all(config, report);
    super::engine_rules::all(config, report);
    super::foreign_rules::all(config, report);
    super::http_rules::all(config, report);
    rounds(config, report);
}

fn run(config: &RunConfig, report: &mut Report) {
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
            "{:?} is no run's name: use 1 to {LONGEST_NAME} of a-z, 0-9, '-' and '_', beginning with a letter or digit",
            run.name
        ),
    );
    report.when(
        run.train_steps == 0,
        "run.train_steps",
        &[],
        "is 0, so nothing would be trained: write 1 or more",
    );
    report.when(
        !is_url(&run.broker, &["amqp", "amqps"]),
        "run.broker",
        &[],
        "is not understood: write \"memory:\" (one process), \"local:\" (a private RabbitMQ) or \"amqp[s]://user:password@host:port/vhost\"",
    );
    report.when(
        !is_url(&run.state, &["redis", "rediss"]),
        "run.state",
        &[],
        "is not understood: write \"memory:\" (one process), \"local:\" (a private Redis) or \"redis[s]://user:password@host:port/db\"",
    );
    report.when(
        run.lease.0.is_zero(),
        "run.lease",
        &[],
        "is 0, so everyone would always count as away: write for example \"15s\"",
    );
    report.when(
        !((16 << 10)..=(12 << 20)).contains(&run.message_cap.0),
        "run.message_cap",
        &[],
        format!(
            "is {}: write from \"16 KiB\" to \"12 MiB\": RabbitMQ takes 16 MiB with the envelope",
            run.message_cap
        ),
    );
    let Some(lead) = &run.lead else { return };
    let of_lead = format!("agents.{lead}");
    match config.agents.get(lead) {
        None => {
            let names: Vec<&str> = config.agents.keys().map(|n| n.as_str()).collect();
            let message = format!("{lead:?} is no agent: write {}", one_of(&names));
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

/// `memory:`, `local:`, or one of the schemes with something behind it.
fn is_url(url: &str, schemes: &[&str]) -> bool {
    let has_host = |rest: &str| {
        !rest
            .rsplit('@')
            .next()
            .unwrap_or_default()
            .trim_start_matches('/')
            .is_empty()
    };
    matches!(url, "memory:" | "local:")
        || url
            .split_once("://")
            .is_some_and(|(scheme, rest)| schemes.contains(&scheme) && has_host(rest))
}

fn workflow(config: &RunConfig, report: &mut Report) {
    let workflow = &config.workflow;
    let kind = &workflow.kind;
    let known = OwnKinds::installed().known_workflows();
    report.when(
        !known.contains(&kind.as_str()) && !is_theirs(kind),
        "workflow.kind",
        &[],
        unknown(kind, &known),
    );
    remote(kind, "workflow.kind", report);
    report.when(
        workflow.group_size == 0,
        "workflow.group_size",
        &[],
        "is 0, so no task would be played: write 1 or more",
    );
    // What a cross-entropy imitates is the same whatever the others of its group earned.
    let compares = |train: &TrainConfig| {
        train.advantage != Advantage::ReinforcePlusPlus && train.loss.kind != LossKind::CrossEntropy
    };
    let mut trained = config.agents.values().filter(|agent| agent.train.enabled);
    report.when(
        workflow.group_size == 1 && trained.any(|agent| compares(&agent.train)),
        "workflow.group_size",
        &[],
        "is 1: an advantage compares conversations of the same task, so with one alone nothing is learned; write 2 or more, such as 8 (or advantage = \"reinforce_plus_plus\", which compares with the batch)",
    );
    report.when(
        !(0.0..=1.0).contains(&workflow.min_group),
        "workflow.min_group",
        &[],
        format!(
            "is {}: write the part of a group that must be valid, from 0.0 to 1.0",
            workflow.min_group
        ),
    );
    report.when(
        !(0.0..=1.0).contains(&workflow.dominance),
        "workflow.dominance",
        &[],
        format!(
            "is {}: write the part of the trained tokens that one role may have, from 0.0 to 1.0 (1.0: no warning)",
            workflow.dominance
        ),
    );
    report.when(
        workflow.retries == 0,
        "workflow.retries",
        &[],
        "is 0, so no generation would be tried: write 1 or more",
    );
    let agents: Vec<&str> = config.agents.keys().map(|n| n.as_str()).collect();
    report.when(
        workflow.roles.is_empty(),
        "workflow.roles",
        &[],
        "is empty: say which agent plays each role, such as solver = \"a\"",
    );
    for (role, agent) in &workflow.roles {
        report.when(
            !config.agents.contains_key(agent),
            format!("workflow.roles.{role}"),
            &["agents", &format!("agents.{agent}")],
            format!("{:?} is no agent: write {}", agent.as_str(), one_of(&agents)),
        );
    }
    let roles: Vec<&str> = workflow.roles.keys().map(|n| n.as_str()).collect();
    for (role, parts) in &workflow.reward {
        report.when(
            !workflow.roles.contains_key(role),
            format!("workflow.reward.{role}"),
            &["workflow.roles", &format!("workflow.roles.{role}")],
            format!(
                "{:?} is no role of [workflow.roles]: write {}",
                role.as_str(),
                one_of(&roles)
            ),
        );
        for (part, weight) in parts {
            report.when(
                !weight.is_finite(),
                format!("workflow.reward.{role}.{part}"),
                &[],
                "is no finite number: write a weight such as 1.0",
            );
        }
    }
    let process = &workflow.process;
    report.when(
        process.workers == 0,
        "workflow.process.workers",
        &[],
        "is 0, so nobody would play: write 1 or more",
    );
    report.when(
        process.timeout.0.is_zero(),
        "workflow.process.timeout",
        &[],
        "is 0: write for example \"10s\"",
    );
    report.when(
        process.memory.0 < LEAST_MEMORY,
        "workflow.process.memory",
        &[],
        format!("is {}: a program needs \"16 MiB\" or more", process.memory),
    );
}

/// Whether the user's own program or participant is named.
fn is_theirs(kind: &str) -> bool {
    kind.starts_with(PROCESS) || kind.starts_with(REMOTE)
}

/// The name of a remote participant is part of a queue's.
fn remote(kind: &str, path: &str, report: &mut Report) {
    let Some(name) = kind.strip_prefix(REMOTE) else { return };
    let refused = ParticipantName::new(name).err();
    let why = refused.map_or_else(String::new, |error| error.to_string());
    report.when(
        !why.is_empty(),
        path,
        &[],
        format!("{why}; for example \"{REMOTE}judge\""),
    );
}

fn graders(config: &RunConfig, report: &mut Report) {
    let known = OwnKinds::installed().known_graders();
    for (name, grader) in &config.graders {
        let kind = &grader.kind;
        report.when(
            !known.contains(&kind.as_str()) && !is_theirs(kind) && kind != JUDGE,
            format!("graders.{name}.kind"),
            &[],
            unknown(kind, &known),
        );
        remote(kind, &format!("graders.{name}.kind"), report);
        super::judge_rules::judge(config, name, grader, report);
        report.when(
            grader.take != Take::Last && kind != TAKING,
            format!("graders.{name}.take"),
            &[&format!("graders.{name}.kind")],
            format!(
                "is for kind = {TAKING:?}, which alone takes a number by its place: leave it out, or write that kind"
            ),
        );
        report.when(
            grader.timeout.0.is_zero(),
            format!("graders.{name}.timeout"),
            &[],
            "is 0: write for example \"2s\"",
        );
        report.when(
            grader.workers == 0,
            format!("graders.{name}.workers"),
            &[],
            "is 0, so nobody would grade: write 1 or more",
        );
        report.when(
            grader.memory.0 < LEAST_MEMORY,
            format!("graders.{name}.memory"),
            &[],
            format!("is {}: a program needs \"16 MiB\" or more", grader.memory),
        );
    }
}

fn agents(config: &RunConfig, report: &mut Report) {
    report.when(
        config.agents.is_empty(),
        "agents",
        &[],
        "is empty: write at least one [agents.NAME]",
    );
    let trains = config.agents.values().any(|agent| agent.train.enabled);
    report.when(
        !config.agents.is_empty() && !trains,
        "agents",
        &[],
        "none trains, so the run would never end: leave out train.enabled = false for one at least",
    );
    for name in config.agents.keys() {
        report.when(
            !config.plays(name),
            format!("agents.{name}"),
            &["workflow.roles"],
            "plays no role: name it under [workflow.roles], or remove it",
        );
        let only_judges = config.judges(name) && !config.workflow.roles.values().any(|agent| agent == name);
        report.when(
            only_judges && config.agents.get(name).is_some_and(|agent| agent.train.enabled),
            format!("agents.{name}.train.enabled"),
            &["workflow.roles", "graders"],
            "is true, and the agent judges alone, which is trained on by nobody: write train.enabled = false",
        );
    }
}

/// Known answers come from workflows that tell them.
fn imitators(config: &RunConfig, report: &mut Report) {
    let kind = &config.workflow.kind;
    let tells = TELLING.contains(&kind.as_str()) || is_theirs(kind) || OwnKinds::installed().has_workflow(kind);
    for (name, agent) in config.agents.iter().filter(|(_, agent)| agent.train.enabled) {
        report.when(
            agent.train.loss.kind == LossKind::CrossEntropy && !tells,
            format!("agents.{name}.train.loss.kind"),
            &["workflow.kind"],
            format!(
                "is \"cross_entropy\", while workflow.kind = {kind:?} tells no known answers: use {} or a program, or another loss",
                one_of(&TELLING)
            ),
        );
    }
}

/// Synchronous rounds: R is the least batch, and every batch must be a whole number of rounds.
fn rounds(config: &RunConfig, report: &mut Report) {
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
            "is \"refill\": a synchronous round has no groups to draw again and would wait for ever; write \"keep\", or mode \"async\"",
        );
        let groups = agent.train.batch_groups;
        report.when(
            round > 0 && !groups.is_multiple_of(round),
            format!("agents.{name}.train.batch_groups"),
            &["run.mode", &format!("agents.{least}.train.batch_groups")],
            format!("is {groups}: in mode \"sync\" it must be a multiple of the least one, {round} of {least}"),
        );
    }
}

fn unknown(kind: &str, known: &[&str]) -> String {
    let meant = nearest(kind, known.iter().copied()).map_or(String::new(), |near| format!(" (did you mean {near:?}?)"));
    format!("{kind:?} is not known: write {}{meant}", one_of(known))
}
