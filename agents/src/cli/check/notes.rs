//! Notes on a valid configuration: what is present, what has no effect, how many tasks.

use configs::{LastBatch, RunConfig};
use rollout::hub_cache::Cache;
use rollout::tasks::TaskSource;

use super::finding::Finding;
use crate::cli::devices::DeviceReport;
use crate::policy::memory as needed;

/// Bytes of a trained token in a message: its id and its behaviour log-prob.
const TOKEN: u64 = 8;
/// Bytes of a message apart from its tokens: names, rewards, stretches.
const FRAME: u64 = 1 << 10;

/// Returns each named data set, model and device that this machine does not have.
pub(super) fn not_here(config: &RunConfig, cache: &Cache, devices: &[DeviceReport]) -> Vec<Finding> {
    let (_, data_sets) = without_absent(config, cache);
    let models = models(config, cache).into_iter().filter(Finding::is_absent);
    models.chain(data_sets).chain(absent_devices(devices)).collect()
}

/// Returns a finding for each device that this machine does not have. The configuration may be
/// valid on another machine.
pub(super) fn absent_devices(devices: &[DeviceReport]) -> Vec<Finding> {
    devices.iter().filter_map(Finding::device).collect()
}

/// Returns comments with the memory that the run's agents need on each device.
pub(super) fn memory(devices: &[DeviceReport]) -> String {
    let text: Vec<String> = devices.iter().map(DeviceReport::memory).collect();
    text.iter()
        .flat_map(|text| text.lines())
        .map(|line| format!("# {line}\n"))
        .collect()
}

/// Returns where each model is. A missing model is no mistake of the configuration: it may exist on
/// another machine.
pub(super) fn models(config: &RunConfig, cache: &Cache) -> Vec<Finding> {
    let found = crate::run_folder::models::found(config, cache).into_iter();
    found.map(Finding::model).collect()
}

/// Formats findings as comments of the printed configuration.
pub(super) fn comments(findings: &[Finding]) -> String {
    findings.iter().map(|finding| format!("# {finding}\n")).collect()
}

/// Returns comments on settings that have no effect.
pub(super) fn ignored(config: &RunConfig) -> String {
    let warmed = config
        .agents
        .iter()
        .filter(|(_, agent)| agent.train.warm_start.is_some());
    let lines = warmed.filter_map(|(name, agent)| {
        let of = &agent.past.as_ref()?.of;
        Some(format!(
            "# agents.{name}.train.warm_start: has no effect, because {name} plays with the past of {of}; the warm start of {of} counts\n"
        ))
    });
    lines.collect()
}

/// Returns comments on agents that train rows longer than a message may be. Tasks decide whether
/// such rows occur.
pub(super) fn long_rows(config: &RunConfig) -> String {
    let cap = config.run.message_cap;
    let trained = config.agents.iter().filter(|(_, agent)| agent.train.enabled);
    let lines = trained.filter_map(|(name, agent)| {
        let tokens = needed::context(agent, &needed::shape(&agent.model)?) as u64;
        let bytes = tokens * TOKEN + FRAME;
        (bytes > cap.0).then(|| {
            format!(
                "# agents.{name}: a row of {tokens} tokens, its longest, takes up to {}, and a message has room for {cap} \
                 (run.message_cap): a group with such a row is discarded; raise run.message_cap, or lower \
                 agents.{name}.sampling.max_context\n",
                needed::amount(bytes)
            )
        })
    });
    lines.collect()
}

/// Returns comments on evaluation rows that may call every tool, although the training rows name
/// theirs.
pub(super) fn all_tools(config: &RunConfig) -> String {
    let (tasks, eval) = (&config.tasks, &config.eval);
    if tasks.tools.is_none() && tasks.mix.iter().all(|one| one.tools.is_none()) {
        return String::new();
    }
    let has_rows = |source: &str| !source.starts_with("generator:");
    let own = eval
        .source
        .iter()
        .filter(|source| has_rows(source) && eval.tools_key(tasks).is_none());
    let suites = eval.suites.iter();
    let suites = suites.filter(|(_, suite)| has_rows(&suite.source) && suite.tools_key(tasks).is_none());
    let paths = own.map(|_| "eval".to_owned());
    let paths = paths.chain(suites.map(|(name, _)| format!("eval.suites.{name}")));
    let line = |path: String| {
        format!(
            "# {path}.tools: not set, so each of its rows has all tools of the run; the rows of [tasks] name theirs\n"
        )
    };
    paths.map(line).collect()
}

/// Returns the configuration without the Hub data sets that the cache does not have, and a finding
/// for each of them.
pub(super) fn without_absent(config: &RunConfig, cache: &Cache) -> (RunConfig, Vec<Finding>) {
    let (mut here, mut absent) = (config.clone(), Vec::new());
    let mut is_absent = |path: &str, source: &str| {
        let why = rollout::tasks::absent(source, cache);
        let lacks = why.is_some();
        let key = path.to_owned();
        absent.extend(why.map(|why| Finding::NotHere { key, why }));
        lacks
    };
    here.eval
        .suites
        .retain(|name, suite| !is_absent(&format!("eval.suites.{name}.source"), &suite.source));
    here.eval.source = here.eval.source.filter(|source| !is_absent("eval.source", source));
    let mut lacks = is_absent("tasks.source", &here.tasks.source);
    for (index, one) in here.tasks.mix.iter().enumerate() {
        lacks |= is_absent(&format!("tasks.mix.{index}.source"), &one.source);
    }
    if lacks {
        here.tasks = here.tasks.on("queue".into());
    }
    (here, absent)
}

/// Returns a comment if all tasks of training are fewer than the groups of one batch.
fn too_few(config: &RunConfig, (section, tasks): (&str, u64)) -> Option<String> {
    let lead = config.lead()?;
    let batch = config.agents.get(lead)?.train.batch_groups as u64;
    let all = tasks * u64::from(config.tasks.epochs);
    let never = section == "tasks" && all > 0 && all < batch && config.run.last_batch == LastBatch::Discard;
    never.then(|| {
        format!(
            "# tasks: all passes together have {all} tasks, fewer than a batch of {lead} (train.batch_groups = {batch}): \
             without published tasks nothing is trained, unless run.last_batch is \"train\"\n"
        )
    })
}

/// Returns a comment with the number of tasks of each source.
pub(super) fn stock(config: &RunConfig) -> anyhow::Result<String> {
    let seed = config.run.seed;
    let sources = [
        ("tasks", TaskSource::open(&config.tasks, seed)?),
        ("eval", TaskSource::open_eval(&config.eval, &config.tasks, seed)?),
    ];
    let mut text = String::new();
    for (section, source) in sources {
        let Some(source) = source else { continue };
        let tasks: u64 = source.stock().iter().map(|one| one.tasks).sum();
        text += &too_few(config, (section, tasks)).unwrap_or_default();
        let mixed = section == "tasks" && config.tasks.source == "mix";
        for one in source.stock() {
            let rows = one.rows.filter(|rows| *rows != one.tasks);
            let rows = rows.map_or_else(String::new, |rows| format!(" of {rows} rows"));
            let pass = if mixed {
                format!("; {} in a pass", one.in_pass)
            } else {
                String::new()
            };
            text += &format!("# {section}: {} has {} tasks{rows}{pass}\n", one.name, one.tasks);
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::cli::devices;
    use crate::policy::memory::Processes;

    #[test]
    fn tasks_fewer_than_a_batch_are_noted() {
        let text = include_str!("../../../../configs/signal.toml");
        let mut config = RunConfig::parse(text, Path::new("x.toml")).unwrap();
        (config.tasks.epochs, config.run.last_batch) = (2, LastBatch::Discard);
        let batch = config.agents.values().next().unwrap().train.batch_groups as u64;
        let line = too_few(&config, ("tasks", batch / 2 - 1)).unwrap();
        assert!(
            line.contains(&format!("fewer than a batch of a (train.batch_groups = {batch})")),
            "{line}"
        );
        assert_eq!(too_few(&config, ("tasks", batch / 2)), None);
        assert_eq!(too_few(&config, ("eval", 1)), None);
        config.run.last_batch = LastBatch::Train;
        assert_eq!(too_few(&config, ("tasks", 1)), None);
    }

    #[test]
    fn rows_longer_than_a_message_are_noted() {
        let with = |cap: &str, context: usize| {
            let text =
                crate::run_folder::tests::CONFIG.replace("[run]\n", &format!("[run]\nmessage_cap = \"{cap}\"\n"));
            let mut config = RunConfig::parse(&text, Path::new("x.toml")).unwrap();
            for agent in config.agents.values_mut() {
                let configs::ModelConfig::Random(model) = &mut agent.model else {
                    unreachable!()
                };
                model.max_context = context;
            }
            long_rows(&config)
        };
        assert_eq!(
            (with("1 MiB", 4096), with("16 KiB", 1920)),
            (String::new(), String::new())
        );
        let lines = with("16 KiB", 1921);
        assert!(
            lines.starts_with("# agents.a: a row of 1921 tokens") && lines.contains("raise run.message_cap"),
            "{lines}"
        );
    }

    #[test]
    fn warm_start_replaced_by_a_past_is_noted() {
        let text = include_str!("../../../../configs/thinker-adversary-past.toml");
        let warm = "train.warm_start = { source = \"generator:arithmetic-solver\", steps = 1, batch = 1 }";
        let with = |agent: &str| text.replace(&format!("[agents.{agent}]"), &format!("[agents.{agent}]\n{warm}\n"));
        let notes = |text: &str| ignored(&RunConfig::parse(text, Path::new("x.toml")).unwrap());
        assert_eq!((notes(text), notes(&with("first"))), (String::new(), String::new()));
        let line = notes(&with("past"));
        assert!(
            line.starts_with("# agents.past.train.warm_start: has no effect"),
            "{line}"
        );
        assert!(line.ends_with("the warm start of adversary counts\n"), "{line}");
    }

    #[test]
    fn evaluation_with_more_tools_than_training_is_noted() {
        let text = include_str!("../../../../configs/actor-verifier-astraflow.toml");
        let notes = |text: &str| all_tools(&RunConfig::parse(text, Path::new("x.toml")).unwrap());
        assert_eq!(notes(text), "", "nothing narrows the tools of training");
        let narrowed = text.replace("[tasks]\n", "[tasks]\ntools = \"may\"\n");
        let lines = notes(&narrowed);
        assert_eq!(lines.lines().count(), 6, "{lines}");
        assert!(lines.starts_with("# eval.tools: not set") && lines.contains("# eval.suites.aime25.tools: "));
        let same = narrowed.replace("prompt = \"problem\"\nlabel = \"answer\"\n", "");
        assert_eq!(notes(&same).lines().count(), 5, "its rows are read as those of [tasks]");
        let own = narrowed.replace("samples = 4, every = 1 }", "samples = 4, every = 1, tools = \"may\" }");
        assert_eq!(notes(&own).lines().count(), 4, "two suites name theirs");
    }

    #[test]
    fn missing_hub_data_sets_are_noted_and_are_no_mistake() {
        let text = include_str!("../../../../configs/actor-verifier-astraflow.toml");
        let config = RunConfig::parse(text, Path::new("x.toml")).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path().to_owned());
        let (here, lines) = without_absent(&config, &cache);
        assert!(here.eval.suites.is_empty() && here.eval.source.is_none(), "{lines:?}");
        assert_eq!(lines.len(), 6, "{lines:?}");
        let devices = devices::reports(&config, Processes::One);
        let notes = not_here(&config, &cache, &devices);
        assert!(
            notes.len() == 6 + config.agents.len() + absent_devices(&devices).len()
                && notes[0].to_string().starts_with("agents.")
                && notes.iter().all(Finding::is_absent),
            "--quiet reports them too: {notes:?}"
        );
        let aime = "eval.suites.aime25.source: NOT HERE: math-ai/aime25 is neither";
        let command = "`hf download --repo-type dataset math-ai/aime25`";
        assert!(
            lines
                .iter()
                .map(Finding::to_string)
                .any(|line| line.starts_with(aime) && line.contains(command)),
            "{lines:?}"
        );

        let snapshot = folder.path().join("datasets--math-ai--aime25/snapshots/abc1");
        std::fs::create_dir_all(&snapshot).unwrap();
        std::fs::create_dir_all(folder.path().join("datasets--math-ai--aime25/refs")).unwrap();
        std::fs::write(folder.path().join("datasets--math-ai--aime25/refs/main"), "abc1").unwrap();
        let (here, lines) = without_absent(&config, &cache);
        assert_eq!(
            (here.eval.suites.len(), lines.len()),
            (1, 5),
            "what is here is looked at: {lines:?}"
        );
        // A path below an existing folder is meant as a path, not as a Hub name.
        let mut config = config;
        config.tasks = config.tasks.on("hf:src/nothing".into());
        let (here, _) = without_absent(&config, &cache);
        assert_eq!(here.tasks.source, "hf:src/nothing");
    }
}
