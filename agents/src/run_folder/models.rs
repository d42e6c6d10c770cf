//! Where a model lies: `model.path` is a folder, or a name of the Hugging Face Hub (`Qwen/Qwen3-8B`, `Qwen/Qwen3-8B@REVISION`) that
//! the Hub's cache on this machine has. And what of it is read: not always the weights.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use configs::{AgentConfig, ModelConfig, RunConfig};
use rollout::hub_cache::{Cache, Kind, Name};
use serde::Deserialize;

/// What every model's folder has; its weights are looked at beside.
const NEEDED: [&str; 2] = ["config.json", "tokenizer.json"];
const WEIGHTS: &str = "model.safetensors";
const SHARDS: &str = "model.safetensors.index.json";

/// What of a model its agent's process reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reads {
    /// All of it.
    Whole,
    /// Shape, tokenizer and chat template. The weights are the servers' alone: what they were started with is what plays.
    NoWeights,
}

impl Reads {
    /// As the agent's settings say. Weights that are trained, warmed or replaced, or that an engine of ours computes with or fetches,
    /// must be here; those below an adapter that other people's servers are given need not be.
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

/// Why a model's folder cannot be told.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotHere {
    #[error("there is no folder {path}: paths count from the working directory, {here}")]
    Folder { path: String, here: String },
    #[error("{why}")]
    Absent { why: String, command: String },
    #[error("{name} is in the Hugging Face cache and lacks {lacks} ({folder}): `{command}` completes it")]
    Incomplete {
        name: String,
        lacks: String,
        folder: String,
        command: String,
    },
}

/// The folder of `model.path` on this machine.
///
/// # Errors
/// It is not here, or not all of what is read.
pub fn locate(path: &Path, reads: Reads) -> Result<PathBuf, NotHere> {
    let folder = locate_in(path, reads, &Cache::of_environment())?;
    if folder != path {
        tracing::info!(model = %path.display(), folder = %folder.display(), "found in the Hugging Face cache");
    }
    Ok(folder)
}

/// The folder of this name, whatever it holds, else the snapshot of the cache.
fn locate_in(path: &Path, reads: Reads, cache: &Cache) -> Result<PathBuf, NotHere> {
    if path.is_dir() {
        return Ok(path.to_owned());
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
    match lacks(&folder, reads) {
        None => Ok(folder),
        Some(lacks) => Err(NotHere::Incomplete {
            name: name.to_string(),
            lacks,
            folder: folder.display().to_string(),
            command: name.download(kind),
        }),
    }
}

/// Tensor -> its file.
#[derive(Deserialize)]
struct ShardIndex {
    weight_map: BTreeMap<String, String>,
}

/// The first file that is read of a model's folder and is not there; of the Hub's links, those that lead nowhere are not there.
fn lacks(folder: &Path, reads: Reads) -> Option<String> {
    let missing = |name: &str| !folder.join(name).is_file();
    if let Some(name) = NEEDED.into_iter().find(|name| missing(name)) {
        return Some(name.to_owned());
    }
    if reads == Reads::NoWeights {
        return None;
    }
    // One file is read before shards.
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

/// The commit of the snapshot that a name of the Hub means on this machine; `None` of a folder, and of what is not here.
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
pub struct Found {
    /// Key path in the configuration, such as `agents.solver.model`.
    pub key: String,
    /// What stands there.
    pub model: PathBuf,
    /// Its folder on this machine, or why there is none.
    pub folder: Result<PathBuf, NotHere>,
    /// What of it is read.
    pub reads: Reads,
}

/// Where the models that the configuration names are, in the order of its agents.
#[must_use]
pub fn found(config: &RunConfig, cache: &Cache) -> Vec<Found> {
    let named = config.agents.iter().filter_map(|(agent, settings)| {
        let ModelConfig::Path(path) = &settings.model else {
            return None;
        };
        Some(Found {
            key: format!("agents.{agent}.model"),
            model: path.clone(),
            folder: locate_in(path, Reads::of(settings), cache),
            reads: Reads::of(settings),
        })
    });
    named.collect()
}

/// Models that the configuration names as the Hub does and that this machine lacks, wholly or in part: the key, and the command that
/// brings it.
#[must_use]
pub fn downloads(config: &RunConfig, cache: &Cache) -> Vec<(String, String)> {
    let wanted = found(config, cache).into_iter().filter_map(|one| match one.folder {
        Err(NotHere::Absent { command, .. } | NotHere::Incomplete { command, .. }) => Some((one.key, command)),
        Ok(_) | Err(NotHere::Folder { .. }) => None,
    });
    wanted.collect()
}

#[cfg(test)]
mod tests;
