//! Where a model lies: `model.path` is a folder, or a name of the Hugging Face Hub (`Qwen/Qwen3-8B`, `Qwen/Qwen3-8B@REVISION`) that
//! the Hub's cache on this machine has.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use configs::{ModelConfig, RunConfig};
use rollout::hub_cache::{Cache, Kind, Name};
use serde::Deserialize;

/// What every model's folder has; its weights are looked at beside.
const NEEDED: [&str; 2] = ["config.json", "tokenizer.json"];
const WEIGHTS: &str = "model.safetensors";
const SHARDS: &str = "model.safetensors.index.json";

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
/// It is not here, or not all of it.
pub fn locate(path: &Path) -> Result<PathBuf, NotHere> {
    let folder = locate_in(path, &Cache::of_environment())?;
    if folder != path {
        tracing::info!(model = %path.display(), folder = %folder.display(), "found in the Hugging Face cache");
    }
    Ok(folder)
}

/// The folder of this name, whatever it holds, else the snapshot of the cache.
fn locate_in(path: &Path, cache: &Cache) -> Result<PathBuf, NotHere> {
    if path.is_dir() {
        return Ok(path.to_owned());
    }
    let Some(name) = path.to_str().and_then(Name::read) else {
        return Err(NotHere::Folder {
            path: path.display().to_string(),
            here: std::env::current_dir().unwrap_or_default().display().to_string(),
        });
    };
    let folder = cache.snapshot(Kind::Model, &name).ok_or_else(|| NotHere::Absent {
        why: name.absent(Kind::Model, cache),
        command: name.download(Kind::Model),
    })?;
    match lacks(&folder) {
        None => Ok(folder),
        Some(lacks) => Err(NotHere::Incomplete {
            name: name.to_string(),
            lacks,
            folder: folder.display().to_string(),
            command: name.download(Kind::Model),
        }),
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

/// The commit of the snapshot that a name of the Hub means on this machine; `None` of a folder, and of what is not here.
#[must_use]
pub fn commit(path: &Path, cache: &Cache) -> Option<String> {
    if path.is_dir() {
        return None;
    }
    let snapshot = cache.snapshot(Kind::Model, &Name::read(path.to_str()?)?)?;
    Some(snapshot.file_name()?.to_str()?.to_owned())
}

/// Models that the configuration names as the Hub does and that this machine lacks, wholly or in part: the key, and the command that
/// brings it.
#[must_use]
pub fn downloads(config: &RunConfig, cache: &Cache) -> Vec<(String, String)> {
    let wanted = config.agents.iter().filter_map(|(agent, settings)| {
        let ModelConfig::Path(path) = &settings.model else {
            return None;
        };
        match locate_in(path, cache) {
            Err(NotHere::Absent { command, .. } | NotHere::Incomplete { command, .. }) => {
                Some((format!("agents.{agent}.model"), command))
            }
            Ok(_) | Err(NotHere::Folder { .. }) => None,
        }
    });
    wanted.collect()
}

/// Where the models that the configuration names are, a line each: found or not.
#[must_use]
pub fn found(config: &RunConfig, cache: &Cache) -> Vec<String> {
    let lines = config.agents.iter().filter_map(|(agent, settings)| {
        let ModelConfig::Path(path) = &settings.model else {
            return None;
        };
        let shown = path.display();
        Some(match locate_in(path, cache) {
            Ok(folder) if folder == *path => format!("agents.{agent}.model: {shown} is a folder here"),
            Ok(folder) => format!("agents.{agent}.model: {shown} is {}", folder.display()),
            Err(why) => format!("agents.{agent}.model: NOT HERE: {why}"),
        })
    });
    lines.collect()
}

#[cfg(test)]
#[path = "models_tests.rs"]
mod tests;
