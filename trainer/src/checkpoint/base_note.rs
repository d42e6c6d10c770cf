//! Records and compares the frozen model of an adapter's checkpoint.

use std::fs;
use std::path::Path;

use configs::Dtype;
use serde::{Deserialize, Serialize};
use tch::Kind;

use super::adapted_base::AdaptedBase;
use super::error::CheckpointError;
use super::file_digest;
use super::manifest::{FileEntry, Manifest};
use super::state::{STATE, TrainerState, dtype_name};
use crate::model::{ModelError, ModelShape, ParamSource, Weights, peft};

/// The record of a base next to an adapter that is kept without its `state.json`.
pub(super) const BASE: &str = "base.json";

/// The record of an adapter's base in the adapter's folder.
#[derive(Debug, Serialize, Deserialize)]
struct BaseNote {
    /// The dtype that the base computed in, named as in `state.json`.
    dtype: String,
    base: AdaptedBase,
}

impl BaseNote {
    fn of(state: TrainerState) -> Option<Self> {
        let dtype = state.dtype;
        state.base.map(|base| Self { dtype, base })
    }

    /// Reads the record of the checkpoint that holds the adapter in `folder`, which may be its
    /// average or reference.
    fn read(folder: &Path) -> Result<Option<Self>, CheckpointError> {
        for root in [Some(folder), folder.parent()].into_iter().flatten() {
            let adapter = folder.strip_prefix(root).unwrap_or(folder).join(peft::CONFIG);
            let Ok(manifest) = Manifest::read(root) else { continue };
            let has = |name: &str| manifest.files.contains_key(name);
            if !adapter.to_str().is_some_and(has) {
                continue;
            }
            if has(STATE) {
                return Ok(Self::of(TrainerState::read(root)?));
            }
            if has(BASE) {
                let path = root.join(BASE);
                let text = fs::read_to_string(&path).map_err(CheckpointError::io("reading", &path))?;
                let note = serde_json::from_str(&text).map(Some);
                return note.map_err(|error| CheckpointError::content(&path, error.to_string()));
            }
        }
        Ok(None)
    }
}

/// Writes the base of the checkpoint in `folder` into `target`. Returns `None` if the checkpoint
/// has no base.
pub(super) fn keep_base(folder: &Path, target: &Path) -> Result<Option<FileEntry>, CheckpointError> {
    let Some(note) = TrainerState::read(folder).ok().and_then(BaseNote::of) else {
        return Ok(None);
    };
    let path = target.join(BASE);
    let text =
        serde_json::to_string_pretty(&note).map_err(|error| CheckpointError::content(&path, error.to_string()))?;
    let written = file_digest::write(&path, |out| out.write_all(text.as_bytes()));
    written.map(Some).map_err(CheckpointError::io("writing", &path))
}

/// Returns the difference between `base`, computed as `shape` describes, and the base that the
/// adapter in `folder` was trained over. Returns `None` if they are the same. Also returns `None`
/// if the folder has no record of its base: adapters from PEFT, exported ones, checkpoints of
/// earlier builds. If the recorded base was f32 and this one is bf16, only the settings are
/// compared.
///
/// # Errors
/// The record in the folder cannot be read, or libtorch fails.
pub fn other_base(folder: &Path, shape: &ModelShape, base: &Weights) -> Result<Option<String>, CheckpointError> {
    let Some(note) = BaseNote::read(folder)? else {
        return Ok(None);
    };
    let settings = AdaptedBase::settings_of(shape);
    if let Some(other) = note.base.set_otherwise(&settings) {
        return Ok(Some(other));
    }
    let was = [Dtype::F32, Dtype::Bf16].map(|dtype| note.dtype == dtype_name(dtype));
    let digest = match (was, base.kind()) {
        ([_, true], Kind::Float) => base.digest_as(Kind::BFloat16),
        ([true, _], Kind::BFloat16) => return Ok(None),
        _ => base.frozen_digest(),
    };
    let failed = |error: ModelError| CheckpointError::content(folder, format!("comparing its base: {error}"));
    let digest = digest.map_err(failed)?.to_hex().to_string();
    Ok(note.base.unlike(&AdaptedBase { digest, settings }))
}
