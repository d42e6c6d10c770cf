//! Which frozen model an adapter's checkpoint is of.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

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

    /// What sets this base apart from `ours`; a key that only one of them has is of another build, or of another `model_type`, which
    /// both have.
    pub(crate) fn unlike(&self, ours: &Self) -> Option<String> {
        let mut told = self.settings.iter();
        let other =
            told.find_map(|(key, value)| Some((key, value, ours.settings.get(key).filter(|own| *own != value)?)));
        if let Some((key, value, own)) = other {
            return Some(format!(
                "it is an adapter of a base with {key} = {value}, this trainer's base has {own}"
            ));
        }
        (self.digest != ours.digest).then(|| {
            format!(
                "it is an adapter of a base whose weights have the digest {}, those of this trainer's base have {}",
                self.digest, ours.digest
            )
        })
    }
}
