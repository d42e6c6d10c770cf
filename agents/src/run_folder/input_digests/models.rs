//! Pins the commit of each model from the Hub: a name without a commit changes its meaning when its
//! branch moves.
//!
//! `pinned.AGENT.json` in the run folder has the commit by the name of the repository. The agent's
//! process writes it after it has opened the model for the first time. Every later process, and
//! `--resume`, compares. Commands that measure or export a run's weights use the pinned commit.
//! Folders are neither pinned nor compared: a folder may be a copy of the original one.

use std::path::{Path, PathBuf};

use anyhow::Context;
use broker::AgentName;
use configs::{ModelConfig, RunConfig};
use rollout::hub_cache::{Cache, Name};

use super::Pins;
use crate::base::fault::Usage;
use crate::run_folder::RunFolder;
use crate::run_folder::models;

/// Compares the models of all agents with the pinned commits.
///
/// # Errors
/// A model of another commit than the run began with, and the fix; errors of the disk.
pub fn verify(folder: &RunFolder, config: &RunConfig) -> anyhow::Result<()> {
    let mut agents = config.agents.iter();
    agents.try_for_each(|(agent, settings)| verify_one(folder, agent, &settings.model))
}

/// Compares the model of an agent with the pinned commit.
///
/// # Errors
/// The same as for [`verify`].
pub fn verify_one(folder: &RunFolder, agent: &AgentName, model: &ModelConfig) -> anyhow::Result<()> {
    compare(folder, agent, model, &Cache::of_environment()).map(|_| ())
}

/// Compares like [`verify_one`], and pins the model if it is not yet pinned. Call it after the
/// model was opened.
///
/// # Errors
/// The same as for [`verify`].
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

/// Returns the pins to write; None if the model is pinned or is not from a repository.
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
        Some((repository, _)) if *repository != name.repository() => Err(other(agent, repository, &name)),
        Some((_, began)) if *began != found => Err(moved(folder.path(), agent, &name, began, &found)),
        Some(_) => Ok(None),
    }
}

/// Returns the model that a run's agent began with. A name of the Hub gets its pinned commit,
/// wherever its revision has moved since. Folders, and names without a pin, are returned unchanged.
///
/// # Errors
/// Another repository than the run began with; errors of the disk.
pub fn pinned(folder: &RunFolder, agent: &AgentName, model: &ModelConfig) -> anyhow::Result<ModelConfig> {
    let ModelConfig::Path(named) = model else {
        return Ok(model.clone());
    };
    let Some(name) = named.to_str().and_then(Name::read).filter(|_| !named.is_dir()) else {
        return Ok(model.clone());
    };
    match super::read(&path(folder, agent))?.first_key_value() {
        None => Ok(model.clone()),
        Some((repository, commit)) if *repository == name.repository() => {
            Ok(ModelConfig::Path(format!("{repository}@{commit}").into()))
        }
        Some((repository, _)) => Err(other(agent, repository, &name)),
    }
}

fn other(agent: &AgentName, began: &str, name: &Name<'_>) -> anyhow::Error {
    Usage::new(format!(
        "agents.{agent}.model: this run began with {began}, and the configuration names {}",
        name.repository()
    ))
    .hint("restore it, or begin a new run")
    .into()
}

fn moved(run: &Path, agent: &AgentName, name: &Name<'_>, began: &str, found: &str) -> anyhow::Error {
    let (revision, name) = (name.revision(), name.repository());
    Usage::new(format!(
        "agents.{agent}.model: {revision} of {name} moved from {began} to {found} since this run began"
    ))
    .hint(format!(
        "write model.path = \"{name}@{began}\" in the configuration of this process (with --resume {}); \
         `hf download {name} --revision {began}` downloads it if it is missing",
        run.join("config.toml").display()
    ))
    .into()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::cli::exit_code::{code, render};
    use crate::run_folder::tests::config_in;

    #[test]
    fn a_run_continues_with_the_model_commit_it_began_with() {
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
            "neither a missing model nor a folder is pinned"
        );
        main("aaaa");
        settle("org/model").unwrap();
        settle("org/model").unwrap();

        main("bbbb");
        let error = settle("org/model").unwrap_err();
        assert_eq!(code(&error), 2, "the supervisor ends without a retry");
        let said = render(&error);
        assert!(
            said.contains("main of org/model moved from aaaa to bbbb since this run began")
                && said.contains("model.path = \"org/model@aaaa\""),
            "{said}"
        );
        settle("org/model@aaaa").unwrap();
        assert!(
            settle("org/model@bbbb").is_err(),
            "a commit in the configuration may be the wrong one"
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

    #[test]
    fn later_readers_of_a_run_use_its_pinned_commit() {
        let base = tempfile::tempdir().unwrap();
        let config = config_in(base.path());
        let folder = RunFolder::create(base.path(), &config, None).unwrap();
        let agent = config.agents.keys().next().unwrap();
        let of = |name: &str| match pinned(&folder, agent, &ModelConfig::Path(name.into())) {
            Ok(ModelConfig::Path(path)) => Ok(path.display().to_string()),
            Ok(model) => Err(format!("{model:?}")),
            Err(error) => Err(render(&error)),
        };
        assert_eq!(of("org/model"), Ok("org/model".into()), "nothing is pinned");
        fs::write(path(&folder, agent), r#"{"org/model": "aaaa"}"#).unwrap();
        for name in ["org/model", "org/model@main", "org/model@bbbb"] {
            assert_eq!(of(name), Ok("org/model@aaaa".into()), "{name}");
        }
        let own = base.path().display().to_string();
        assert_eq!(of(&own), Ok(own.clone()), "a folder is returned unchanged");
        let said = of("org/second").unwrap_err();
        assert!(said.contains("this run began with org/model"), "{said}");
        let random = &config.agents[agent].model;
        let same = pinned(&folder, agent, random).unwrap();
        assert!(matches!(
            (random, same),
            (ModelConfig::Random(_), ModelConfig::Random(_))
        ));
    }
}
