//! Exports a policy as a folder that other tools load: a model in Hugging Face's form or an adapter
//! in PEFT's form, without the data that only training needs.

use std::ffi::OsString;
use std::fs::{self, File};
use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};

use configs::Dtype;
use serde_json::json;
use tch::Device;

use super::base_note::other_base;
use super::error::CheckpointError;
use super::folder::{sync_folder, write_synced};
use super::tokenizer;
use crate::model::{ModelError, ModelShape, Weights, kind_of, peft};

const GENERATION: &str = "generation_config.json";
/// The file that marks an export and records its origin. Written last.
pub const EXPORT: &str = "dyad_export.json";

/// The options of an export.
pub struct Export<'a> {
    /// Folder of the whole model, or of the base of `adapter`.
    pub model: &'a Path,
    pub adapter: Option<&'a Weights>,
    /// The folder of `adapter`. A checkpoint's folder records the base, and the adapter is merged
    /// into no other base.
    pub adapter_folder: Option<&'a Path>,
    /// Merges base and adapter into a whole model. Has no effect for a policy without an adapter.
    pub merged: bool,
    /// Folder of the tokenizer's files.
    pub tokenizer: &'a Path,
    /// The dtype of the written weights; merging happens in f32.
    pub dtype: Dtype,
    /// The largest size in bytes of one file of weights of a whole model. A larger model is written
    /// in shards with an index.
    pub shard_bytes: u64,
    /// The origin of the weights for [`EXPORT`]: a JSON object of the caller.
    pub provenance: serde_json::Value,
}

/// The result of an export.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exported {
    /// True for an adapter, which needs its base.
    pub adapter: bool,
    /// True if a tied base became a model with a separate head.
    pub untied: bool,
    pub parameters: usize,
    /// In the order of their names.
    pub files: Vec<String>,
}

/// Why nothing was exported.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    #[error(transparent)]
    Model(#[from] ModelError),
    #[error(transparent)]
    Files(#[from] CheckpointError),
    #[error("{} names no folder to create: name one", .0.display())]
    NoName(PathBuf),
}

/// Writes the folder `out`, whole or not at all: its files are synced in a hidden folder next to
/// it, which is then renamed. An empty folder is replaced. A folder with content is replaced only
/// with `replace`; the caller must decide whether that is allowed.
///
/// # Errors
/// [`ExportError`]. `out` is as it was, or has the name that the error reports.
pub fn export(what: &Export<'_>, out: &Path, replace: bool) -> Result<Exported, ExportError> {
    let hidden = hidden_next_to(out, "new")?;
    let above = parent(out);
    fs::create_dir_all(above).map_err(CheckpointError::io("making", above))?;
    make(&hidden)?;
    let written = fill(what, &hidden).and_then(|exported| put(&hidden, out, replace).map(|()| exported));
    if written.is_err() {
        // A hidden folder may remain if it cannot be removed either.
        let _ = fs::remove_dir_all(&hidden);
    }
    written
}

/// Returns an unused hidden name next to `out`.
fn hidden_next_to(out: &Path, suffix: &str) -> Result<PathBuf, ExportError> {
    let name = out.file_name().ok_or_else(|| ExportError::NoName(out.to_owned()))?;
    let mut hidden = OsString::from(".");
    hidden.push(name);
    let random = RandomState::new().hash_one(std::process::id());
    hidden.push(format!(".{suffix}-{random:016x}"));
    Ok(out.with_file_name(hidden))
}

/// Creates a new folder. An existing one might hold files of another export, which would become
/// part of this one.
fn make(hidden: &Path) -> Result<(), CheckpointError> {
    fs::create_dir(hidden).map_err(CheckpointError::io("making", hidden))
}

fn fill(what: &Export<'_>, folder: &Path) -> Result<Exported, ExportError> {
    let base = ModelShape::load(what.model)?;
    let (shape, parameters) = match what.adapter {
        Some(adapter) if !what.merged => {
            // An absolute path, because a later reader has another working directory.
            let base_name = what.model.canonicalize().unwrap_or_else(|_| what.model.to_owned());
            let written = adapter.copied_to(Device::Cpu, what.dtype)?;
            peft::save(folder, &written, &base_name.display().to_string())?;
            (base.clone(), adapter.layout().numel())
        }
        adapter => {
            let (shape, weights) = whole(&base, what, adapter)?;
            weights.save_as(&shape, folder, kind_of(what.dtype), what.shard_bytes)?;
            (shape, weights.layout().numel())
        }
    };
    for name in tokenizer::files(what.tokenizer) {
        let target = folder.join(name);
        tokenizer::copy(what.tokenizer, name, &target)?;
        File::open(&target)
            .and_then(|file| file.sync_all())
            .map_err(CheckpointError::io("syncing", &target))?;
    }
    let adapter = what.adapter.is_some() && !what.merged;
    let generation = folder.join(GENERATION);
    if !adapter && !generation.exists() {
        let text = format!("{:#}\n", generation_config(&shape));
        write_synced(&generation, text.as_bytes())?;
    }
    let provenance = format!("{:#}\n", what.provenance);
    write_synced(&folder.join(EXPORT), provenance.as_bytes())?;
    sync_folder(folder)?;
    Ok(Exported {
        adapter,
        untied: base.tied && !shape.tied,
        parameters,
        files: names(folder)?,
    })
}

/// Returns the whole model: merged in f32, otherwise in the dtype of the export.
fn whole(
    base: &ModelShape,
    what: &Export<'_>,
    adapter: Option<&Weights>,
) -> Result<(ModelShape, Weights), ExportError> {
    match adapter {
        Some(adapter) => {
            let below = Weights::load(base, what.model)?;
            if let Some(folder) = what.adapter_folder
                && let Some(reason) = other_base(folder, base, &below)?
            {
                let path = folder.to_path_buf();
                return Err(CheckpointError::OtherModel { path, reason }.into());
            }
            Ok(peft::merged_into(base, below, adapter)?)
        }
        None => Ok((
            base.clone(),
            Weights::load_as(base, what.model, Device::Cpu, what.dtype)?,
        )),
    }
}

/// The ids that end and pad a text, in the form of transformers' `GenerationConfig`.
fn generation_config(shape: &ModelShape) -> serde_json::Value {
    json!({"bos_token_id": shape.bos, "eos_token_id": shape.eos, "pad_token_id": shape.pad})
}

fn names(folder: &Path) -> Result<Vec<String>, CheckpointError> {
    let read = || -> std::io::Result<Vec<String>> {
        let names = fs::read_dir(folder)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
        names.collect()
    };
    let mut names = read().map_err(CheckpointError::io("listing", folder))?;
    names.sort();
    Ok(names)
}

/// Gives the folder its final name. With `replace`, an existing folder is moved away first and
/// removed last.
fn put(hidden: &Path, out: &Path, replace: bool) -> Result<(), ExportError> {
    let old = if replace && out.is_dir() {
        let old = hidden_next_to(out, "old")?;
        fs::rename(out, &old).map_err(CheckpointError::io("moving aside", out))?;
        Some(old)
    } else {
        None
    };
    // The rename replaces nothing or an empty folder, and fails if the target has content.
    if let Err(error) = fs::rename(hidden, out) {
        if let Some(old) = &old {
            fs::rename(old, out).map_err(CheckpointError::io("moving back", old))?;
        }
        return Err(CheckpointError::io("naming", out)(error).into());
    }
    // From here on the export exists, whatever fails.
    if let Err(error) = sync_folder(parent(out)) {
        tracing::warn!(%error, "the export is complete, but its name may be lost if the machine crashes now");
    }
    if let Some(old) = &old
        && let Err(error) = fs::remove_dir_all(old)
    {
        tracing::warn!(%error, path = %old.display(), "the earlier folder could not be removed: remove it by hand");
    }
    Ok(())
}

fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

#[cfg(test)]
mod tests;
