//! Finds the folder of a model, and the part of it that is read.
//!
//! `model.path` is a folder, or a name of the Hugging Face Hub (`Qwen/Qwen3-8B`,
//! `Qwen/Qwen3-8B@REVISION`) in the Hub's cache on this machine. Weights are not always read.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use configs::{AgentConfig, AgentName, ModelConfig, RunConfig};
use rollout::hub_cache::{Cache, Kind, Name, name_in_url, no_folder};
use serde::Deserialize;

/// Files that every model's folder has; its weights are checked separately.
const NEEDED: [&str; 2] = ["config.json", "tokenizer.json"];
const WEIGHTS: &str = "model.safetensors";
const SHARDS: &str = "model.safetensors.index.json";

/// The part of a model that its agent's process reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reads {
    /// All of it.
    Whole,
    /// Shape, tokenizer and chat template. Only servers have the weights they were started with.
    NoWeights,
}

impl Reads {
    /// Returns the part that the agent's settings need. Weights must be here if they are trained,
    /// warmed or replaced, or if an engine of ours computes with them or fetches them. Weights
    /// below an adapter for foreign servers need not be here.
    #[must_use]
    pub fn of(settings: &AgentConfig) -> Self {
        let changes = settings.train.enabled || settings.train.warm_start.is_some() || settings.past.is_some();
        if changes || !settings.engine.kind.is_foreign() {
            Self::Whole
        } else {
            Self::NoWeights
        }
    }

    fn kind(self) -> Kind {
        match self {
            Self::Whole => Kind::Model,
            Self::NoWeights => Kind::ModelWithoutWeights,
        }
    }
}

/// Reasons why a model's folder is not found.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotHere {
    #[error("there is no folder {path}: paths start at the working directory, {here}")]
    Folder { path: String, here: String },
    #[error("{why}")]
    NoFolder { why: String },
    #[error("{url} is a URL: write {name}")]
    Url { url: String, name: String },
    #[error("{why}")]
    Absent { why: String, command: String },
    #[error("{name} is in the Hugging Face cache without {missing} ({folder}): `{command}` completes it")]
    Incomplete {
        name: String,
        missing: String,
        folder: String,
        command: String,
    },
}

/// Returns the folder of `model.path` on this machine.
///
/// # Errors
/// The folder or a file that is read is missing.
pub fn locate(path: &Path, reads: Reads) -> Result<PathBuf, NotHere> {
    let folder = locate_in(path, reads, &Cache::of_environment())?;
    if folder != path {
        tracing::info!(model = %path.display(), folder = %folder.display(), "found in the Hugging Face cache");
    }
    Ok(folder)
}

/// Returns the folder of this name, with any content, else the snapshot of the cache.
fn locate_in(path: &Path, reads: Reads, cache: &Cache) -> Result<PathBuf, NotHere> {
    if path.is_dir() {
        return Ok(path.to_owned());
    }
    if let Some(why) = no_folder(path) {
        return Err(NotHere::NoFolder { why });
    }
    if let Some(name) = path.to_str().and_then(name_in_url) {
        let url = path.display().to_string();
        return Err(NotHere::Url { url, name });
    }
    let Some(name) = path.to_str().and_then(Name::read) else {
        return Err(NotHere::Folder {
            path: path.display().to_string(),
            here: std::env::current_dir().unwrap_or_default().display().to_string(),
        });
    };
    let kind = reads.kind();
    let folder = cache.snapshot(kind, &name).ok_or_else(|| NotHere::Absent {
        why: name.absent(kind, cache),
        command: name.download(kind),
    })?;
    match missing_file(&folder, reads) {
        None => Ok(folder),
        Some(missing) => Err(NotHere::Incomplete {
            name: name.to_string(),
            missing,
            folder: folder.display().to_string(),
            command: name.download(kind),
        }),
    }
}

/// Maps a tensor to its file.
#[derive(Deserialize)]
struct ShardIndex {
    weight_map: BTreeMap<String, String>,
}

/// Returns the first file of a model's folder that is read and missing. A dangling link of the
/// Hub's cache counts as missing.
fn missing_file(folder: &Path, reads: Reads) -> Option<String> {
    let missing = |name: &str| !folder.join(name).is_file();
    if let Some(name) = NEEDED.into_iter().find(|name| missing(name)) {
        return Some(name.to_owned());
    }
    if reads == Reads::NoWeights {
        return None;
    }
    // A single weight file is read before shards.
    if !missing(WEIGHTS) {
        return None;
    }
    if missing(SHARDS) {
        return Some(WEIGHTS.to_owned());
    }
    let index = std::fs::read(folder.join(SHARDS)).ok();
    let index: Option<ShardIndex> = index.and_then(|text| serde_json::from_slice(&text).ok());
    match index {
        None => Some(format!("a readable {SHARDS}")),
        Some(index) => index.weight_map.into_values().find(|shard| missing(shard)),
    }
}

/// Returns the commit of the snapshot that a name of the Hub stands for on this machine; `None` for
/// a folder or a missing model.
#[must_use]
pub fn commit(path: &Path, cache: &Cache) -> Option<String> {
    if path.is_dir() {
        return None;
    }
    let snapshot = cache.snapshot(Kind::Model, &Name::read(path.to_str()?)?)?;
    Some(snapshot.file_name()?.to_str()?.to_owned())
}

/// A model that the configuration names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundModel {
    /// The agent that has it.
    pub agent: AgentName,
    /// Key path in the configuration, for example `agents.solver.model`.
    pub key: String,
    /// The value in the configuration.
    pub model: PathBuf,
    /// Its folder on this machine, or the reason it has none.
    pub folder: Result<PathBuf, NotHere>,
    /// The part of it that is read.
    pub reads: Reads,
}

/// Returns the models that the configuration names, in the order of its agents.
#[must_use]
pub fn found(config: &RunConfig, cache: &Cache) -> Vec<FoundModel> {
    let named = config.agents.iter().filter_map(|(agent, settings)| {
        let ModelConfig::Path(path) = &settings.model else {
            return None;
        };
        Some(FoundModel {
            agent: agent.clone(),
            key: format!("agents.{agent}.model"),
            model: path.clone(),
            folder: locate_in(path, Reads::of(settings), cache),
            reads: Reads::of(settings),
        })
    });
    named.collect()
}

/// Returns models with a name of the Hub that are missing on this machine, wholly or in part: the
/// key, and the download command.
#[must_use]
pub fn downloads(config: &RunConfig, cache: &Cache) -> Vec<(String, String)> {
    let wanted = found(config, cache).into_iter().filter_map(|one| match one.folder {
        Err(NotHere::Absent { command, .. } | NotHere::Incomplete { command, .. }) => Some((one.key, command)),
        Ok(_) | Err(NotHere::Folder { .. } | NotHere::NoFolder { .. } | NotHere::Url { .. }) => None,
    });
    wanted.collect()
}

#[cfg(test)]
mod tests;
