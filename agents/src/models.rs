//! Where a model lies: `model.path` is a folder, or a name of the Hugging Face Hub (`Qwen/Qwen3-8B`, `Qwen/Qwen3-8B@REVISION`).
//!
//! A name is looked up in the Hub's own cache on this machine, as `huggingface_hub` lays it out:
//! `models--ORG--NAME/refs/REVISION` has a commit, and `models--ORG--NAME/snapshots/COMMIT` the files. Nothing is downloaded.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};

use configs::{ModelConfig, RunConfig};
use serde::Deserialize;

/// The revision that a name without one means.
const MAIN: &str = "main";
/// What every model's folder has; its weights are looked at beside.
const NEEDED: [&str; 2] = ["config.json", "tokenizer.json"];
const WEIGHTS: &str = "model.safetensors";
const SHARDS: &str = "model.safetensors.index.json";

/// The Hub's cache on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cache(PathBuf);

/// Why a model's folder cannot be told.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotHere {
    #[error("there is no folder {path}: paths count from the working directory, {here}")]
    Folder { path: String, here: String },
    #[error(
        "{name} is neither a folder here nor in the Hugging Face cache {cache}; dyad downloads nothing: `{command}` does \
         (older installations: huggingface-cli download)"
    )]
    Absent {
        name: String,
        cache: String,
        command: String,
    },
    #[error("{name} is in the Hugging Face cache and lacks {lacks} ({folder}): `{command}` completes it")]
    Incomplete {
        name: String,
        lacks: String,
        folder: String,
        command: String,
    },
}

/// `ORG/NAME`, or `ORG/NAME@REVISION`: a branch, a tag or a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Name<'a> {
    org: &'a str,
    name: &'a str,
    revision: Option<&'a str>,
}

impl Cache {
    /// By the environment, as `huggingface_hub` reads it.
    #[must_use]
    pub fn of_environment() -> Self {
        Self::by(|name| std::env::var_os(name))
    }

    /// `HF_HUB_CACHE`, else `hub` below `HF_HOME`, else below `huggingface` of `XDG_CACHE_HOME`, else of `~/.cache`.
    fn by(variable: impl Fn(&str) -> Option<OsString>) -> Self {
        let given = |name: &str| variable(name).filter(|value| !value.is_empty());
        let home = given("HOME").map(PathBuf::from).unwrap_or_default();
        let folder = |name: &str| {
            let path = PathBuf::from(given(name)?);
            Some(path.strip_prefix("~").map_or(path.clone(), |rest| home.join(rest)))
        };
        let cache = || folder("XDG_CACHE_HOME").unwrap_or_else(|| home.join(".cache"));
        Self(
            ["HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"]
                .into_iter()
                .find_map(folder)
                .or_else(|| Some(folder("HF_HOME")?.join("hub")))
                .unwrap_or_else(|| cache().join("huggingface/hub")),
        )
    }

    /// The folder of `model.path`: the one of this name, else the snapshot of the Hub's cache.
    ///
    /// # Errors
    /// It is not here, or not all of it.
    pub fn locate(&self, path: &Path) -> Result<PathBuf, NotHere> {
        if path.is_dir() {
            return Ok(path.to_owned());
        }
        let Some(name) = path.to_str().and_then(Name::read) else {
            return Err(NotHere::Folder {
                path: path.display().to_string(),
                here: std::env::current_dir().unwrap_or_default().display().to_string(),
            });
        };
        let folder = self.snapshot(&name).ok_or_else(|| NotHere::Absent {
            name: name.shown(),
            cache: self.0.display().to_string(),
            command: name.download(),
        })?;
        match lacks(&folder) {
            None => Ok(folder),
            Some(lacks) => Err(NotHere::Incomplete {
                name: name.shown(),
                lacks,
                folder: folder.display().to_string(),
                command: name.download(),
            }),
        }
    }

    fn snapshot(&self, name: &Name<'_>) -> Option<PathBuf> {
        let repository = self.0.join(format!("models--{}--{}", name.org, name.name));
        let revision = name.revision.unwrap_or(MAIN);
        let branch = std::fs::read_to_string(repository.join("refs").join(revision));
        let commit = branch.as_deref().map_or(revision, str::trim);
        // What is no commit is no folder below `snapshots` either.
        let is_hash = !commit.is_empty() && commit.bytes().all(|byte| byte.is_ascii_hexdigit());
        let folder = repository.join("snapshots").join(commit);
        (is_hash && folder.is_dir()).then_some(folder)
    }
}

impl<'a> Name<'a> {
    fn read(text: &'a str) -> Option<Self> {
        let (repository, revision) = match text.split_once('@') {
            Some((repository, revision)) => (repository, Some(revision)),
            None => (text, None),
        };
        let (org, name) = repository.split_once('/')?;
        let legal = |part: &str| {
            let first = part.chars().next();
            first.is_some_and(|first| first.is_ascii_alphanumeric() || first == '_')
                && part.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
        };
        // A revision is a path below `refs`, and must stay there.
        let inside = |revision: &str| {
            let mut parts = Path::new(revision).components();
            !revision.is_empty() && parts.all(|part| matches!(part, Component::Normal(_)))
        };
        (legal(org) && legal(name) && revision.is_none_or(inside)).then_some(Self { org, name, revision })
    }

    fn shown(&self) -> String {
        let revision = self.revision.map(|revision| format!("@{revision}")).unwrap_or_default();
        format!("{}/{}{revision}", self.org, self.name)
    }

    fn download(&self) -> String {
        let revision = self
            .revision
            .map(|revision| format!(" --revision {revision}"))
            .unwrap_or_default();
        format!("hf download {}/{}{revision}", self.org, self.name)
    }
}

/// Tensor -> its file.
#[derive(Deserialize)]
struct ShardIndex {
    weight_map: BTreeMap<String, String>,
}

/// The first file that a model's folder should have and has not; of the Hub's links, those that lead nowhere are not there.
fn lacks(folder: &Path) -> Option<String> {
    let missing = |name: &str| !folder.join(name).is_file();
    if let Some(name) = NEEDED.into_iter().find(|name| missing(name)) {
        return Some(name.to_owned());
    }
    if missing(SHARDS) {
        return missing(WEIGHTS).then(|| WEIGHTS.to_owned());
    }
    let index = std::fs::read(folder.join(SHARDS)).ok();
    let index: Option<ShardIndex> = index.and_then(|text| serde_json::from_slice(&text).ok());
    match index {
        None => Some(format!("a readable {SHARDS}")),
        Some(index) => index.weight_map.into_values().find(|shard| missing(shard)),
    }
}

/// The folder of `model.path` on this machine.
///
/// # Errors
/// It is not here, or not all of it.
pub fn locate(path: &Path) -> Result<PathBuf, NotHere> {
    let folder = Cache::of_environment().locate(path)?;
    if folder != path {
        tracing::info!(model = %path.display(), folder = %folder.display(), "found in the Hugging Face cache");
    }
    Ok(folder)
}

/// Where the models that the configuration names are, a line each: found or not.
#[must_use]
pub fn found(config: &RunConfig, cache: &Cache) -> Vec<String> {
    let lines = config.agents.iter().filter_map(|(agent, settings)| {
        let ModelConfig::Path(path) = &settings.model else {
            return None;
        };
        let path_shown = path.display();
        Some(match cache.locate(path) {
            Ok(folder) if folder == *path => format!("agents.{agent}.model: {path_shown} is a folder here"),
            Ok(folder) => format!("agents.{agent}.model: {path_shown} is {}", folder.display()),
            Err(why) => format!("agents.{agent}.model: NOT HERE: {why}"),
        })
    });
    lines.collect()
}

#[cfg(test)]
#[path = "models_tests.rs"]
mod tests;
