//! Which commit of the Hub's repository a run's models are: a name without one means another when its branch moves on.
//!
//! `pinned.AGENT.json` in the run folder has the commit by the name of the repository. The agent's process writes it when it has opened the
//! model for the first time; every later one, and `--resume`, compares. Folders are not pinned, nor
//! compared: one may be a copy of what the run began with.

use std::path::{Path, PathBuf};

use anyhow::Context;
use broker::AgentName;
use configs::{ModelConfig, RunConfig};
use rollout::hub_cache::{Cache, Name};

use super::Pins;
use crate::cli::failure::Usage;
use crate::folder::RunFolder;
use crate::models;

/// Compares the models of all agents with what is pinned.
///
/// # Errors
/// A model of another commit than the run began with, and what to do; the disk's.
pub fn verify(folder: &RunFolder, config: &RunConfig) -> anyhow::Result<()> {
    let mut agents = config.agents.iter();
    agents.try_for_each(|(agent, settings)| verify_one(folder, agent, &settings.model))
}

/// Compares the model of an agent with what is pinned.
///
/// # Errors
/// As [`verify`].
pub fn verify_one(folder: &RunFolder, agent: &AgentName, model: &ModelConfig) -> anyhow::Result<()> {
    compare(folder, agent, model, &Cache::of_environment()).map(|_| ())
}

/// As [`verify_one`], and pins the model if it is not yet. Call it when it was opened.
///
/// # Errors
/// As [`verify`].
pub fn settle(folder: &RunFolder, agent: &AgentName, model: &ModelConfig) -> anyhow::Result<()> {
    settle_in(folder, agent, model, &Cache::of_environment())
}

fn settle_in(folder: &RunFolder, agent: &AgentName, model: &ModelConfig, cache: &Cache) -> anyhow::Result<()> {
    let Some(pins) = compare(folder, agent, model, cache)? else {
        return Ok(());
    };
    let path = path(folder, agent);
    super::write(&path, &pins).with_context(|| format!("writing {}", path.display()))?;
    Ok(())
}

fn path(folder: &RunFolder, agent: &AgentName) -> PathBuf {
    folder.path().join(format!("pinned.{agent}.json"))
}

/// What is to be pinned; none if it is, and of what is no repository's.
fn compare(folder: &RunFolder, agent: &AgentName, model: &ModelConfig, cache: &Cache) -> anyhow::Result<Option<Pins>> {
    let ModelConfig::Path(model) = model else {
        return Ok(None);
    };
    let (Some(found), Some(name)) = (models::commit(model, cache), model.to_str().and_then(Name::read)) else {
        return Ok(None);
    };
    let pinned = super::read(&path(folder, agent))?;
    match pinned.first_key_value() {
        None => Ok(Some(Pins::from([(name.repository(), found)]))),
        Some((repository, _)) if *repository != name.repository() => Err(Usage::new(format!(
            "agents.{agent}.model: this run began with {repository}, and the configuration names {}",
            name.repository()
        ))
        .hint("put it back as it was, or begin a new run")
        .into()),
        Some((_, began)) if *began != found => Err(moved(folder.path(), agent, &name, began, &found)),
        Some(_) => Ok(None),
    }
}

fn moved(run: &Path, agent: &AgentName, name: &Name<'_>, began: &str, found: &str) -> anyhow::Error {
    let (revision, name) = (name.revision(), name.repository());
    Usage::new(format!(
        "agents.{agent}.model: {revision} of {name} moved from {began} to {found} since this run began"
    ))
    .hint(format!(
        "write model.path = \"{name}@{began}\" in the configuration that this process is started with (with --resume {}); \
         `hf download {name} --revision {began}` brings it if it is gone",
        run.join("config.toml").display()
    ))
    .into()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::cli::failure::{code, render};
    use crate::folder::tests::config_in;

    #[test]
    fn a_run_goes_on_with_the_commit_of_the_model_that_it_began_with() {
        let base = tempfile::tempdir().unwrap();
        let config = config_in(base.path());
        let folder = RunFolder::create(base.path(), &config, None).unwrap();
        let agent = config.agents.keys().next().unwrap();
        let cache = Cache::at(base.path().join("hub"));
        let repository = cache.folder().join("models--org--model");
        for commit in ["aaaa", "bbbb"] {
            fs::create_dir_all(repository.join("snapshots").join(commit)).unwrap();
        }
        fs::create_dir_all(repository.join("refs")).unwrap();
        let main = |commit: &str| fs::write(repository.join("refs/main"), commit).unwrap();
        let named = |name: &str| ModelConfig::Path(name.into());
        let settle = |name: &str| settle_in(&folder, agent, &named(name), &cache);

        settle("org/other").unwrap();
        settle(base.path().to_str().unwrap()).unwrap();
        assert!(
            !path(&folder, agent).exists(),
            "neither what is not here nor a folder is pinned"
        );
        main("aaaa");
        settle("org/model").unwrap();
        settle("org/model").unwrap();

        main("bbbb");
        let error = settle("org/model").unwrap_err();
        assert_eq!(code(&error), 2, "the supervisor ends, and does not try again");
        let said = render(&error);
        assert!(
            said.contains("main of org/model moved from aaaa to bbbb since this run began")
                && said.contains("model.path = \"org/model@aaaa\""),
            "{said}"
        );
        settle("org/model@aaaa").unwrap();
        assert!(
            settle("org/model@bbbb").is_err(),
            "a commit that is written may be the wrong one"
        );
        main("aaaa");
        settle("org/model").unwrap();

        let second = cache.folder().join("models--org--second");
        fs::create_dir_all(second.join("snapshots/cccc")).unwrap();
        fs::create_dir_all(second.join("refs")).unwrap();
        fs::write(second.join("refs/main"), "cccc").unwrap();
        let said = render(&settle("org/second").unwrap_err());
        assert!(said.contains("this run began with org/model"), "{said}");
    }
}
