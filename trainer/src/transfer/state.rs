//! All values of a model's parameters at one version, as bytes.

use std::sync::Arc;

use broker::ids::WeightVersion;
use broker::protocol::engine::StateId;
use configs::Dtype;

use super::TransferError;
use crate::model::Layout;

/// The properties of weights other than their values. A delta is possible only between states of
/// one form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Form {
    pub dtype: Dtype,
    pub elements: usize,
    /// A hash over the names and shapes of all parameters and, for an adapter, over its base.
    pub model: [u8; 32],
}

impl Form {
    /// The form of parameters that are served in `dtype`. `base` is the digest of an adapter's
    /// frozen model.
    #[must_use]
    pub fn of(layout: &Layout, dtype: Dtype, base: Option<blake3::Hash>) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key("dyad weights form v1");
        for spec in layout.params() {
            hasher.update(format!("{} {:?}\n", spec.name, spec.shape).as_bytes());
        }
        // The shapes alone do not determine an adapter's rank and scale.
        hasher.update(format!("{:?}", layout.lora()).as_bytes());
        if let Some(base) = base {
            hasher.update(base.as_bytes());
        }
        Self {
            dtype,
            elements: layout.numel(),
            model: *hasher.finalize().as_bytes(),
        }
    }

    /// Bytes of one element.
    #[must_use]
    pub fn width(&self) -> usize {
        match self.dtype {
            Dtype::F32 => 4,
            Dtype::Bf16 => 2,
        }
    }

    /// Bytes of all elements.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.elements.saturating_mul(self.width())
    }
}

/// A whole model at one version. Its bytes are the elements in the order of the flat buffer,
/// little-endian. Clones share them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct State {
    form: Form,
    version: WeightVersion,
    bytes: Arc<Vec<u8>>,
    digest: blake3::Hash,
}

impl State {
    /// Wraps the bytes of a model.
    ///
    /// # Errors
    /// [`TransferError::Length`].
    pub fn new(form: Form, version: WeightVersion, bytes: Vec<u8>) -> Result<Self, TransferError> {
        if bytes.len() != form.bytes() {
            return Err(TransferError::Length {
                bytes: bytes.len(),
                elements: form.elements,
            });
        }
        let mut hasher = blake3::Hasher::new_derive_key("dyad weights state v1");
        hasher.update(&form.model);
        hasher.update(&bytes);
        Ok(Self {
            form,
            version,
            digest: hasher.finalize(),
            bytes: Arc::new(bytes),
        })
    }

    #[must_use]
    pub fn form(&self) -> &Form {
        &self.form
    }

    #[must_use]
    pub fn version(&self) -> WeightVersion {
        self.version
    }

    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the bytes to change. They are copied only if a clone shares them.
    pub(super) fn into_bytes(self) -> Vec<u8> {
        Arc::unwrap_or_clone(self.bytes)
    }

    /// The digest over form and bytes.
    #[must_use]
    pub fn digest(&self) -> &blake3::Hash {
        &self.digest
    }

    #[must_use]
    pub fn id(&self) -> StateId {
        StateId {
            version: self.version,
            digest: *self.digest.as_bytes(),
        }
    }
}
