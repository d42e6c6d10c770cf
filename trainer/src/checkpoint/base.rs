//! Which frozen model an adapter's checkpoint is of.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use configs::Dtype;
use serde::{Deserialize, Serialize};
use tch::Kind;

use super::error::CheckpointError;
use super::folder::write_synced;
use super::manifest::{FileEntry, Manifest};
use super::state::{STATE, TrainerState, dtype_name};
use crate::model::{ModelError, ModelShape, Weights, peft};

/// Which ids begin and end a turn, and how long a context may be, is no part of what was trained: YaRN's own contexts are settings of its own.
const LEFT_OUT: [&str; 4] = [
    "bos_token_id",
    "eos_token_id",
    "pad_token_id",
    "max_position_embeddings",
];

/// A frozen model: an adapter trained over it means nothing over another.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdaptedBase {
    /// BLAKE3 of its weights as they compute.
    pub digest: String,
    /// What its `config.json` says of its arithmetic, key by key.
    pub settings: BTreeMap<String, String>,
}

impl AdaptedBase {
    /// `base`, which nobody changes, computed as `shape` says.
    ///
    /// # Errors
    /// [`ModelError::Torch`] when the weights cannot be read from their device.
    pub(crate) fn of(shape: &ModelShape, base: &Weights) -> Result<Self, ModelError> {
        Ok(Self {
            digest: base.frozen_digest()?.to_hex().to_string(),
            settings: Self::settings_of(shape),
        })
    }

    fn settings_of(shape: &ModelShape) -> BTreeMap<String, String> {
        let mut settings = shape.settings();
        settings.retain(|key, _| !LEFT_OUT.contains(&key.as_str()));
        settings
    }

    /// What sets this base apart from `ours`.
    pub(crate) fn unlike(&self, ours: &Self) -> Option<String> {
        self.set_otherwise(&ours.settings).or_else(|| {
            (self.digest != ours.digest).then(|| {
                format!(
                    "it is an adapter of a base whose weights have the digest {}, those of the base here have {}",
                    self.digest, ours.digest
                )
            })
        })
    }

    /// A setting in which they differ; a key that only one of them has is of another build, or of another `model_type`, which both have.
    fn set_otherwise(&self, ours: &BTreeMap<String, String>) -> Option<String> {
        let mut told = self.settings.iter();
        let other = told.find_map(|(key, value)| Some((key, value, ours.get(key).filter(|own| *own != value)?)));
        let (key, value, own) = other?;
        Some(format!(
            "it is an adapter of a base with {key} = {value}, the base here has {own}"
        ))
    }
}

/// What is kept of a base beside an adapter whose `state.json` is not.
pub(super) const BASE: &str = "base.json";

/// What the adapter in a folder says of its base.
#[derive(Debug, Serialize, Deserialize)]
struct Told {
    /// What the base computed in, as `state.json` names it.
    dtype: String,
    base: AdaptedBase,
}

impl Told {
    fn of(state: TrainerState) -> Option<Self> {
        let dtype = state.dtype;
        state.base.map(|base| Self { dtype, base })
    }

    /// Of the checkpoint that the adapter in `folder` is of, or its average or reference below it.
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
                let told = serde_json::from_str(&text).map(Some);
                return told.map_err(|error| CheckpointError::content(&path, error.to_string()));
            }
        }
        Ok(None)
    }
}

/// Writes what the checkpoint in `folder` says of its base into `target`; `None` where it says nothing.
pub(super) fn keep_base(folder: &Path, target: &Path) -> Result<Option<FileEntry>, CheckpointError> {
    let Some(told) = TrainerState::read(folder).ok().and_then(Told::of) else {
        return Ok(None);
    };
    let path = target.join(BASE);
    let text =
        serde_json::to_string_pretty(&told).map_err(|error| CheckpointError::content(&path, error.to_string()))?;
    write_synced(&path, text.as_bytes())?;
    FileEntry::of(&path).map(Some)
}

/// What sets `base`, which is to compute as `shape` says, apart from the one that the adapter in `folder` was trained over. `None` where they are
/// the same, and where the folder does not say: PEFT's own adapters, exported ones, checkpoints of earlier builds. Of a base that was f32 the
/// settings alone are compared where this one is bf16.
///
/// # Errors
/// What the folder says cannot be read; libtorch's.
pub fn other_base(folder: &Path, shape: &ModelShape, base: &Weights) -> Result<Option<String>, CheckpointError> {
    let Some(told) = Told::read(folder)? else {
        return Ok(None);
    };
    let settings = AdaptedBase::settings_of(shape);
    if let Some(other) = told.base.set_otherwise(&settings) {
        return Ok(Some(other));
    }
    let was = [Dtype::F32, Dtype::Bf16].map(|dtype| told.dtype == dtype_name(dtype));
    let digest = match (was, base.kind()) {
        ([_, true], Kind::Float) => base.digest_as(Kind::BFloat16),
        ([true, _], Kind::BFloat16) => return Ok(None),
        _ => base.frozen_digest(),
    };
    let failed = |error: ModelError| CheckpointError::content(folder, format!("comparing its base: {error}"));
    let digest = digest.map_err(failed)?.to_hex().to_string();
    Ok(told.base.unlike(&AdaptedBase { digest, settings }))
}
