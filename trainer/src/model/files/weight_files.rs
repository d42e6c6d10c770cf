//! Finds the files of a folder's weights: one file, or the shards of an index.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::json_file;
use super::load::{SHARDS, WEIGHTS};
use super::regular_file::format;
use crate::model::error::{ModelError, Result};

#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct ShardIndex {
    weight_map: BTreeMap<String, PathBuf>,
}

/// Returns the paths of the files of a folder's weights. They may not exist.
pub(super) fn weight_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let (one, index) = (folder.join(WEIGHTS), folder.join(SHARDS));
    // A broken link counts: its reader reports it.
    let is_listed = |path: &Path| path.symlink_metadata().is_ok();
    if one.is_file() || !is_listed(&index) {
        return match is_listed(&one) {
            true => Ok(vec![one]),
            false => Err(no_weights(folder)),
        };
    }
    let shards: ShardIndex = json_file::read(&index)?;
    let names: BTreeSet<PathBuf> = shards.weight_map.into_values().collect();
    if names.is_empty() {
        return Err(format(&index, "its weight_map names no file: fetch it again"));
    }
    Ok(names.into_iter().map(|name| folder.join(name)).collect())
}

/// Returns the error for a folder without safetensors, or with shards only. It names the weights
/// that the folder has.
fn no_weights(folder: &Path) -> ModelError {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort();
    let find = |start: &str, end: &str| {
        let is_one = |name: &&String| name.starts_with(start) && name.ends_with(end);
        names.iter().find(is_one)
    };
    let reason = if let Some(shard) = find("model-", ".safetensors") {
        format!("it has {shard} and no index of the shards: fetch {SHARDS}")
    } else if let Some(file) = find("", ".gguf") {
        format!("it has {file}, and GGUF is not read: fetch the safetensors of the model that it was made of")
    } else if let Some(file) = find("pytorch_model", ".bin") {
        format!(
            "it has {file}, and only safetensors are read: fetch those of the model, or convert it with transformers: \
             AutoModelForCausalLM.from_pretrained(FOLDER).save_pretrained(FOLDER)"
        )
    } else {
        format!("it has no weights: fetch {WEIGHTS}, or {SHARDS} and the shards that it names")
    };
    format(folder, reason)
}
