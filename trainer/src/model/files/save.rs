//! Writes models as Hugging Face folders: `config.json` and safetensors, in one file or in shards
//! with an index.

use std::fs;
use std::io::{ErrorKind, Write};
use std::ops::Range;
use std::path::Path;

use serde_json::{Map, Value, json};
use tch::Kind;

use super::atomic_write::{WriteError, io, write_atomically};
use super::config;
use super::load::{CONFIG, SHARDS, WEIGHTS};
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
/// The same as for [`Weights::save_as`].
pub(crate) fn save_model(
    source: &dyn ParamSource,
    shape: &ModelShape,
    folder: &Path,
    kind: Kind,
    shard_bytes: u64,
) -> Result<Vec<String>> {
    fs::create_dir_all(folder).map_err(io("making", folder))?;
    let dtype = match kind {
        Kind::BFloat16 => "bfloat16",
        Kind::Half => "float16",
        _ => "float32",
    };
    let text = format!("{:#}\n", config::write(shape, dtype));
    write_atomically(&folder.join(CONFIG), |file| Ok(file.write_all(text.as_bytes())?))?;
    let mut names = vec![CONFIG.to_owned()];
    names.extend(save_tensors(source, folder, kind, shard_bytes)?);
    clear(folder, &names)?;
    Ok(names)
}

/// Writes the files of weights and returns their names.
fn save_tensors(source: &dyn ParamSource, folder: &Path, kind: Kind, shard_bytes: u64) -> Result<Vec<String>> {
    let params = source.layout().params();
    let bytes = |spec: &ParamSpec| (spec.numel * kind.elt_size_in_bytes()) as u64;
    let sizes: Vec<u64> = params.iter().map(bytes).collect();
    let shards = plan(&sizes, shard_bytes);
    if shards.len() <= 1 {
        write_atomically(&folder.join(WEIGHTS), |file| {
            write_tensors(source, params, kind, file, str::to_owned)
        })?;
        return Ok(vec![WEIGHTS.to_owned()]);
    }
    let (mut names, mut map) = (Vec::with_capacity(shards.len() + 1), Map::new());
    for (at, range) in shards.iter().enumerate() {
        let name = format!("model-{:05}-of-{:05}.safetensors", at + 1, shards.len());
        let part = &params[range.clone()];
        write_atomically(&folder.join(&name), |file| {
            write_tensors(source, part, kind, file, str::to_owned)
        })?;
        map.extend(part.iter().map(|spec| (spec.name.clone(), json!(name))));
        names.push(name);
    }
    // Readers prefer one file to an index.
    remove(&folder.join(WEIGHTS))?;
    let index = json!({"metadata": {"total_size": sizes.iter().sum::<u64>()}, "weight_map": map});
    let text = format!("{index:#}\n");
    write_atomically(&folder.join(SHARDS), |file| Ok(file.write_all(text.as_bytes())?))?;
    names.push(SHARDS.to_owned());
    Ok(names)
}

/// Writes one file of some parameters in the safetensors format: length of the header, header,
/// data. `name` maps a parameter to its name there.
pub(in crate::model) fn write_tensors(
    source: &dyn ParamSource,
    params: &[ParamSpec],
    kind: Kind,
    file: &mut dyn Write,
    name: impl Fn(&str) -> String,
) -> std::result::Result<(), WriteError> {
    let dtype = match kind {
        Kind::BFloat16 => "BF16",
        Kind::Half => "F16",
        _ => "F32",
    };
    let mut header = Map::new();
    header.insert("__metadata__".into(), json!({"format": "pt"}));
    let mut end = 0;
    for spec in params {
        let start = end;
        end += spec.numel * kind.elt_size_in_bytes();
        header.insert(
            name(&spec.name),
            json!({"dtype": dtype, "shape": spec.shape, "data_offsets": [start, end]}),
        );
    }
    let mut header = Value::Object(header).to_string().into_bytes();
    header.resize(header.len().next_multiple_of(8), b' ');
    file.write_all(&(header.len() as u64).to_le_bytes())?;
    file.write_all(&header)?;
    for spec in params {
        file.write_all(&source.bytes_as(spec, kind)?)?;
    }
    Ok(())
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
