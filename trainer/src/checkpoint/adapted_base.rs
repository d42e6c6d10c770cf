//! The frozen model that an adapter was trained over.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::model::{ModelError, ModelShape, Weights};

/// Settings that training does not depend on: the ids that begin and end a turn, and the length of
/// a context. YaRN's contexts are separate settings.
const LEFT_OUT: [&str; 4] = [
    "bos_token_id",
    "eos_token_id",
    "pad_token_id",
    "max_position_embeddings",
];

/// A frozen model. An adapter trained over it has no meaning over another model.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdaptedBase {
    /// BLAKE3 of its weights in the kind that they compute in.
    pub digest: String,
    /// The settings of its `config.json` that change its arithmetic, key by key.
    pub settings: BTreeMap<String, String>,
}

impl AdaptedBase {
    /// Describes `base`, which never changes, under the arithmetic of `shape`.
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

    /// The first difference between this base and `ours`, as a sentence.
    pub(crate) fn unlike(&self, ours: &Self) -> Option<String> {
        self.set_otherwise(&ours.settings).or_else(|| {
            (self.digest != ours.digest).then(|| {
                format!(
                    "it is an adapter of a base with the weight digest {}, the base here has {}",
                    self.digest, ours.digest
                )
            })
        })
    }

    /// The first differing setting, as a sentence. A key in only one of the two comes from another
    /// build or another `model_type`; both have `model_type`.
    pub(super) fn set_otherwise(&self, ours: &BTreeMap<String, String>) -> Option<String> {
        let mut pairs = self.settings.iter();
        let other = pairs.find_map(|(key, value)| Some((key, value, ours.get(key).filter(|own| *own != value)?)));
        let (key, value, own) = other?;
        Some(format!(
            "it is an adapter of a base with {key} = {value}, the base here has {own}"
        ))
    }
}
