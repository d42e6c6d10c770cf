//! Writes models as Hugging Face folders: `config.json` and safetensors, in one file or in shards
//! with an index.

use std::fs;
use std::io::ErrorKind;
use std::ops::Range;
use std::path::Path;

use serde_json::{Map, json};
use tch::Kind;

use super::atomic_write::io;
use super::config;
use super::load::{CONFIG, SHARDS, WEIGHTS};
use super::new_file::{NewFile, Tensors};
use crate::model::error::Result;
use crate::model::param_source::ParamSource;
use crate::model::shape::{ModelShape, ParamSpec};
use crate::model::weights::Weights;

/// The largest size in bytes of one file of weights, unless a single tensor is larger. The
/// `max_shard_size` of transformers' releases before 5, `"5GB"`.
pub const SHARD_BYTES: u64 = 5_000_000_000;

impl Weights {
    /// [`Self::save_as`] in the weights' own type, in shards of [`SHARD_BYTES`].
    ///
    /// # Errors
    /// The same as for [`Self::save_as`].
    pub fn save(&self, shape: &ModelShape, folder: &Path) -> Result<Vec<String>> {
        self.save_as(shape, folder, self.kind(), SHARD_BYTES)
    }

    /// Writes `config.json` and the weights as `kind` into `folder`, which is created if missing.
    /// transformers' `AutoModelForCausalLM` loads the result. Returns the names of the files,
    /// `config.json` first.
    ///
    /// Weights of at most `shard_bytes` go into `model.safetensors`. Larger ones go into
    /// `model-0000i-of-0000n.safetensors` of at most that size (a larger tensor gets its own file)
    /// and `model.safetensors.index.json`. Each file is written under another name, synced and
    /// renamed; the index comes last. Before the index, the single file of an earlier save is
    /// removed, and after it the other files of weights. Values are converted tensor by tensor,
    /// without a copy of the whole.
    ///
    /// # Errors
    /// [`crate::model::ModelError::Io`], and [`crate::model::ModelError::Torch`] when values cannot
    /// be read from their device.
    pub fn save_as(&self, shape: &ModelShape, folder: &Path, kind: Kind, shard_bytes: u64) -> Result<Vec<String>> {
        save_model(self, shape, folder, kind, shard_bytes)
    }
}

/// [`Weights::save_as`] for parameters that are anywhere.
///
/// # Errors
/// The errors of [`Weights::save_as`] and of the source.
pub(crate) fn save_model(
    source: &dyn ParamSource,
    shape: &ModelShape,
    folder: &Path,
    kind: Kind,
    shard_bytes: u64,
) -> Result<Vec<String>> {
    fs::create_dir_all(folder).map_err(io("making", folder))?;
    let files = model_files(source, shape, kind, shard_bytes);
    for file in &files {
        if file.name == SHARDS {
            // Readers prefer one file to an index.
            remove(&folder.join(WEIGHTS))?;
        }
        file.put(folder)?;
    }
    let names: Vec<String> = files.into_iter().map(|file| file.name).collect();
    clear(folder, &names)?;
    Ok(names)
}

/// The files of a model in the order in which they are written: those of [`Weights::save_as`], for
/// parameters that are anywhere.
pub(crate) fn model_files<'a>(
    source: &'a dyn ParamSource,
    shape: &ModelShape,
    kind: Kind,
    shard_bytes: u64,
) -> Vec<NewFile<'a>> {
    let dtype = match kind {
        Kind::BFloat16 => "bfloat16",
        Kind::Half => "float16",
        _ => "float32",
    };
    let mut files = vec![NewFile::text(CONFIG, format!("{:#}\n", config::write(shape, dtype)))];
    let params = source.layout().params();
    let bytes = |spec: &ParamSpec| (spec.numel * kind.elt_size_in_bytes()) as u64;
    let sizes: Vec<u64> = params.iter().map(bytes).collect();
    let shards = plan(&sizes, shard_bytes);
    if shards.len() <= 1 {
        files.push(NewFile::tensors(WEIGHTS, kind, vec![Tensors::all(source, "")]));
        return files;
    }
    let mut map = Map::new();
    for (at, range) in shards.iter().enumerate() {
        let name = format!("model-{:05}-of-{:05}.safetensors", at + 1, shards.len());
        let params = &params[range.clone()];
        map.extend(params.iter().map(|spec| (spec.name.clone(), json!(name))));
        let prefix = "";
        files.push(NewFile::tensors(&name, kind, vec![Tensors { source, params, prefix }]));
    }
    let index = json!({"metadata": {"total_size": sizes.iter().sum::<u64>()}, "weight_map": map});
    files.push(NewFile::text(SHARDS, format!("{index:#}\n")));
    files
}

/// Distributes tensors of these sizes over files: in order, at most `most` bytes per file, and at
/// least one tensor.
fn plan(sizes: &[u64], most: u64) -> Vec<Range<usize>> {
    let mut shards: Vec<Range<usize>> = Vec::new();
    let mut held = 0u64;
    for (at, size) in sizes.iter().enumerate() {
        match shards.last_mut() {
            Some(shard) if held.checked_add(*size).is_some_and(|sum| sum <= most) => {
                shard.end = at + 1;
                held += size;
            }
            _ => {
                shards.push(at..at + 1);
                held = *size;
            }
        }
    }
    shards
}

/// Removes files of weights that are not `written`. The index goes first, because it leads to the
/// others.
fn clear(folder: &Path, written: &[String]) -> Result<()> {
    let of_weights = |name: &str| {
        name == WEIGHTS || name == SHARDS || (name.starts_with("model-") && name.ends_with(".safetensors"))
    };
    let mut stale = Vec::new();
    for entry in fs::read_dir(folder).map_err(io("listing", folder))? {
        let name = entry.map_err(io("listing", folder))?.file_name();
        let name = name.to_string_lossy().into_owned();
        if of_weights(&name) && !written.contains(&name) {
            stale.push(name);
        }
    }
    stale.sort_by_key(|name| name != SHARDS);
    stale.iter().try_for_each(|name| remove(&folder.join(name)))
}

/// Removes a file, if it exists.
fn remove(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(io("removing", path)(error)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
