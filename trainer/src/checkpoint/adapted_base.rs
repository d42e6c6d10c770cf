//! The frozen model that an adapter was trained over.

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
        Ok(Self {
            digest: base.frozen_digest()?.to_hex().to_string(),
            settings: Self::settings_of(shape),
        })
    }

    pub(super) fn settings_of(shape: &ModelShape) -> BTreeMap<String, String> {
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
    pub(super) fn set_otherwise(&self, ours: &BTreeMap<String, String>) -> Option<String> {
        let mut told = self.settings.iter();
        let other = told.find_map(|(key, value)| Some((key, value, ours.get(key).filter(|own| *own != value)?)));
        let (key, value, own) = other?;
        Some(format!(
            "it is an adapter of a base with {key} = {value}, the base here has {own}"
        ))
    }
}
