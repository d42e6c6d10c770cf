//! What is said of a good configuration: what is here, what has no effect, how many tasks.

use configs::RunConfig;
use rollout::hub_cache::Cache;
use rollout::tasks::TaskSource;

use super::finding::Finding;

/// Each data set and model that the configuration names and this machine lacks.
pub(super) fn not_here(config: &RunConfig, cache: &Cache) -> Vec<Finding> {
    let (_, data_sets) = without_absent(config, cache);
    let models = models(config, cache).into_iter().filter(Finding::is_absent);
    models.chain(data_sets).collect()
}

/// Where the models are. One that is not here is no mistake of the configuration: another machine may have it.
pub(super) fn models(config: &RunConfig, cache: &Cache) -> Vec<Finding> {
    let found = crate::run_folder::models::found(config, cache).into_iter();
    found.map(Finding::model).collect()
}

/// As comments of the configuration that follows.
pub(super) fn comments(findings: &[Finding]) -> String {
    findings.iter().map(|finding| format!("# {finding}\n")).collect()
}

/// What is written and has no effect, as comments.
pub(super) fn ignored(config: &RunConfig) -> String {
    let warmed = config
        .agents
        .iter()
        .filter(|(_, agent)| agent.train.warm_start.is_some());
    let lines = warmed.filter_map(|(name, agent)| {
        let of = &agent.past.as_ref()?.of;
        Some(format!(
            "# agents.{name}.train.warm_start: is not done, as {name} plays with the past of {of}; that of {of} counts\n"
        ))
    });
    lines.collect()
}

/// Rows that are measured on with all tools of the run, while those that are trained on name theirs: as comments.
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
            "# {path}.tools: is not given, so that each of its rows has all tools of the run; those of [tasks] name theirs\n"
        )
    };
    paths.map(line).collect()
}

/// The configuration without data sets that it names as the Hub does and this machine's cache has not, and each of these.
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

/// How many tasks each source of the run has, as comments of the configuration that follows.
pub(super) fn stock(config: &RunConfig) -> anyhow::Result<String> {
    let seed = config.run.seed;
    let sources = [
        ("tasks", TaskSource::open(&config.tasks, seed)?),
        ("eval", TaskSource::open_eval(&config.eval, &config.tasks, seed)?),
    ];
    let mut text = String::new();
    for (section, source) in sources {
        let Some(source) = source else { continue };
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

    #[test]
    fn a_warm_start_that_a_past_replaces_is_told() {
        let text = include_str!("../../../../configs/thinker-adversary-past.toml");
        let warm = "train.warm_start = { source = \"generator:arithmetic-solver\", steps = 1, batch = 1 }";
        let with = |agent: &str| text.replace(&format!("[agents.{agent}]"), &format!("[agents.{agent}]\n{warm}\n"));
        let told = |text: &str| ignored(&RunConfig::parse(text, Path::new("x.toml")).unwrap());
        assert_eq!((told(text), told(&with("first"))), (String::new(), String::new()));
        let line = told(&with("past"));
        assert!(
            line.starts_with("# agents.past.train.warm_start: is not done"),
            "{line}"
        );
        assert!(line.ends_with("that of adversary counts\n"), "{line}");
    }

    #[test]
    fn evaluations_that_have_other_tools_than_training_are_told() {
        let text = include_str!("../../../../configs/actor-verifier-astraflow.toml");
        let told = |text: &str| all_tools(&RunConfig::parse(text, Path::new("x.toml")).unwrap());
        assert_eq!(told(text), "", "nothing narrows the tools of training");
        let narrowed = text.replace("[tasks]\n", "[tasks]\ntools = \"may\"\n");
        let lines = told(&narrowed);
        assert_eq!(lines.lines().count(), 6, "{lines}");
        assert!(lines.starts_with("# eval.tools: is not given") && lines.contains("# eval.suites.aime25.tools: "));
        let same = narrowed.replace("prompt = \"problem\"\nlabel = \"answer\"\n", "");
        assert_eq!(told(&same).lines().count(), 5, "its rows are read as those of [tasks]");
        let own = narrowed.replace("samples = 4, every = 1 }", "samples = 4, every = 1, tools = \"may\" }");
        assert_eq!(told(&own).lines().count(), 4, "two suites name theirs");
    }

    #[test]
    fn data_sets_of_the_hub_that_are_not_here_are_told_and_are_no_mistake() {
        let text = include_str!("../../../../configs/actor-verifier-astraflow.toml");
        let config = RunConfig::parse(text, Path::new("x.toml")).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path().to_owned());
        let (here, lines) = without_absent(&config, &cache);
        assert!(here.eval.suites.is_empty() && here.eval.source.is_none(), "{lines:?}");
        assert_eq!(lines.len(), 6, "{lines:?}");
        let told = not_here(&config, &cache);
        assert!(
            told.len() == 6 + config.agents.len()
                && told[0].to_string().starts_with("agents.")
                && told.iter().all(Finding::is_absent),
            "--quiet tells them too: {told:?}"
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
        // A path below a folder that is here was meant as one.
        let mut config = config;
        config.tasks = config.tasks.on("hf:src/nothing".into());
        let (here, _) = without_absent(&config, &cache);
        assert_eq!(here.tasks.source, "hf:src/nothing");
    }
}
