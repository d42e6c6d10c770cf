//! All values of a model's parameters at one version, as bytes.

use broker::ids::WeightVersion;
use configs::Dtype;

use super::TransferError;
use crate::model::Layout;

/// What weights are apart from their values: only states of one form can be told from each other by a delta.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Form {
    pub dtype: Dtype,
    pub elements: usize,
    /// Over names and shapes of all parameters and, of an adapter, over the base below it.
    pub model: [u8; 32],
}

impl Form {
    /// Of parameters that are served in `dtype`; `base` is the digest of the frozen model that they are an adapter of.
    #[must_use]
    pub fn of(layout: &Layout, dtype: Dtype, base: Option<blake3::Hash>) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key("dyad weights form v1");
        for spec in layout.params() {
            hasher.update(format!("{} {:?}\n", spec.name, spec.shape).as_bytes());
        }
        // Rank and scale of an adapter stand in no shape alone.
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

/// A whole model at one version. Its bytes are the elements in the order of the flat buffer, little-endian.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct State {
    form: Form,
    version: WeightVersion,
    bytes: Vec<u8>,
    digest: blake3::Hash,
}

impl State {
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
            bytes,
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

    /// Over form and bytes.
    #[must_use]
    pub fn digest(&self) -> &blake3::Hash {
        &self.digest
    }
}
