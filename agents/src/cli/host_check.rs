//! Rejects a run that this machine cannot play, before anything starts: models, data sets, GPUs or
//! memory are missing.

use configs::{RunConfig, SuiteConfig};
use rollout::hub_cache::Cache;

use super::devices::{self, DeviceReport};
use crate::base::fault::Usage;
use crate::policy::memory::Processes;
use crate::run_folder::models;

/// Rejects a run that this machine cannot play.
///
/// # Errors
/// Returns an error that lists everything missing, and what to do.
pub(super) fn require(config: &RunConfig, processes: Processes) -> anyhow::Result<()> {
    let cache = Cache::of_environment();
    let refused = refusal(config, &cache).or_else(|| unfit(config, &cache, processes));
    refused.map_or(Ok(()), |usage| Err(usage.into()))
}

/// Returns an error that lists missing model folders, missing devices and devices that are too
/// small.
fn unfit(config: &RunConfig, cache: &Cache, processes: Processes) -> Option<Usage> {
    let found = models::found(config, cache).into_iter();
    let folders = found.filter_map(|one| Some(format!("{}: {}", one.key, one.folder.err()?)));
    let devices = devices::reports(config, processes);
    let devices = devices.iter().filter_map(DeviceReport::problem);
    let problems: Vec<String> = folders.chain(devices).collect();
    if problems.is_empty() {
        return None;
    }
    let usage = Usage::new(format!("the run was not started:\n  {}", problems.join("\n  ")));
    Some(
        usage
            .hint("correct the configuration; `dyad doctor CONFIG` lists what this machine has and what the run needs"),
    )
}

fn refusal(config: &RunConfig, cache: &Cache) -> Option<Usage> {
    let missing = missing(config, cache);
    if missing.is_empty() {
        return None;
    }
    let keys: Vec<&str> = missing.iter().map(|(key, _)| key.as_str()).collect();
    let mut commands: Vec<&str> = Vec::new();
    for (_, command) in &missing {
        if !commands.contains(&command.as_str()) {
            commands.push(command);
        }
    }
    let usage = Usage::new(format!(
        "the run was not started: {} name data that is neither a folder here nor in the Hugging Face cache {}",
        keys.join(", "),
        cache.folder().display()
    ));
    let hint = format!(
        "correct the path, or download from the Hub, which dyad does not do itself:\n{}",
        commands.join("\n")
    );
    Some(usage.hint(hint))
}

/// Returns the key and the download command of each missing model and data set.
fn missing(config: &RunConfig, cache: &Cache) -> Vec<(String, String)> {
    // Only `dyad eval` plays the other suites.
    let sources = sources(config, |suite| suite.every.is_some_and(|every| every > 0));
    let data_sets = sources
        .into_iter()
        .filter_map(|(key, source)| Some((key, rollout::tasks::download(source, cache)?)));
    models::downloads(config, cache).into_iter().chain(data_sets).collect()
}

/// Returns the key and source of every set of tasks in the configuration; suites are filtered by
/// `wanted`.
pub(super) fn sources(config: &RunConfig, wanted: impl Fn(&SuiteConfig) -> bool) -> Vec<(String, &str)> {
    let mut all = vec![("tasks.source".to_owned(), config.tasks.source.as_str())];
    let mix = config.tasks.mix.iter().enumerate();
    all.extend(mix.map(|(index, one)| (format!("tasks.mix.{index}.source"), one.source.as_str())));
    let eval = config.eval.source.iter();
    all.extend(eval.map(|source| ("eval.source".to_owned(), source.as_str())));
    let suites = config.eval.suites.iter().filter(|(_, suite)| wanted(suite));
    all.extend(suites.map(|(name, suite)| (format!("eval.suites.{name}.source"), suite.source.as_str())));
    all
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::cli::exit_code::{code, render};

    #[test]
    fn everything_missing_is_listed_with_each_command_once() {
        let text = include_str!("../../../configs/actor-verifier-astraflow.toml");
        let config = RunConfig::parse(text, Path::new("x.toml")).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path().to_owned());
        let refused: anyhow::Error = refusal(&config, &cache).unwrap().into();
        assert_eq!(code(&refused), 2);
        let said = render(&refused);
        for command in [
            "hf download Qwen/Qwen3-8B",
            "hf download --repo-type dataset HuggingFaceH4/aime_2024",
            "hf download --repo-type dataset math-ai/aime25",
            "hf download --repo-type dataset HuggingFaceH4/MATH-500",
        ] {
            assert_eq!(
                said.lines().filter(|line| line.trim() == command).count(),
                1,
                "{command}: {said}"
            );
        }
        for key in [
            "agents.",
            "eval.source",
            "eval.suites.aime24.source",
            "eval.suites.math500.source",
        ] {
            assert!(said.contains(key), "{key}: {said}");
        }

        let mut config = config;
        let local = crate::run_folder::tests::config_in(folder.path());
        assert!(refusal(&local, &cache).is_none(), "none of it comes from the Hub");
        for suite in config.eval.suites.values_mut() {
            suite.every = None;
        }
        let keys: Vec<String> = missing(&config, &cache).into_iter().map(|(key, _)| key).collect();
        assert!(
            !keys.iter().any(|key| key.starts_with("eval.suites.")),
            "`dyad eval` needs them: {keys:?}"
        );
    }
}
