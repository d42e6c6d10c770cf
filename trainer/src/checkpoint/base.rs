//! Which frozen model an adapter's checkpoint is of.

use std::collections::BTreeMap;
use std::path::Path;

use configs::Dtype;
use serde::{Deserialize, Serialize};
use tch::Kind;

use super::error::CheckpointError;
use super::state::{STATE, TrainerState, dtype_name};
use crate::model::{ModelError, ModelShape, Weights};

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
        let mut settings = shape.settings();
        settings.retain(|key, _| !LEFT_OUT.contains(&key.as_str()));
        Ok(Self {
            digest: base.frozen_digest()?.to_hex().to_string(),
            settings,
        })
    }

    /// What sets this base apart from `ours`.
    pub(crate) fn unlike(&self, ours: &Self) -> Option<String> {
        self.set_otherwise(ours).or_else(|| {
            (self.digest != ours.digest).then(|| {
                format!(
                    "it is an adapter of a base whose weights have the digest {}, those of the base here have {}",
                    self.digest, ours.digest
                )
            })
        })
    }

    /// A setting in which they differ; a key that only one of them has is of another build, or of another `model_type`, which both have.
    fn set_otherwise(&self, ours: &Self) -> Option<String> {
        let mut told = self.settings.iter();
        let other =
            told.find_map(|(key, value)| Some((key, value, ours.settings.get(key).filter(|own| *own != value)?)));
        let (key, value, own) = other?;
        Some(format!(
            "it is an adapter of a base with {key} = {value}, the base here has {own}"
        ))
    }
}

/// Refuses the adapter in `folder` over another base than the one it was trained over, which is to compute as `shape` says. A folder that does
/// not say is taken: PEFT's own adapters, and checkpoints of earlier builds. Of a base that was f32 the settings alone count where this one
/// is bf16.
///
/// # Errors
/// [`CheckpointError::OtherModel`] with what differs; a state that cannot be read; libtorch's.
pub fn check_base(folder: &Path, shape: &ModelShape, base: &Weights) -> Result<(), CheckpointError> {
    if !folder.join(STATE).exists() {
        return Ok(());
    }
    let state = TrainerState::read(folder)?;
    let Some(told) = state.base else {
        return Ok(());
    };
    let failed = |error: ModelError| CheckpointError::content(folder, format!("comparing its base: {error}"));
    let ours = |base: &Weights| AdaptedBase::of(shape, base).map_err(failed);
    let was = [Dtype::F32, Dtype::Bf16].map(|dtype| state.dtype == dtype_name(dtype));
    let unlike = match (was, base.kind()) {
        ([_, true], Kind::Float) => told.unlike(&ours(&base.copied_to(base.device(), Dtype::Bf16).map_err(failed)?)?),
        ([true, _], Kind::BFloat16) => told.set_otherwise(&ours(base)?),
        _ => told.unlike(&ours(base)?),
    };
    match unlike {
        Some(reason) => Err(CheckpointError::OtherModel {
            path: folder.to_path_buf(),
            reason,
        }),
        None => Ok(()),
    }
}
