//! The trunk in parts: the embedding, each layer, the final norm. Serves a backward pass that
//! computes each part again.

use std::fmt;
use std::sync::Arc;

use tch::{Kind, Tensor};

use super::decoder::Decoder;
use super::layer::rms_norm;
use super::rope_table::RopeRows;
use super::row_batch::RowBatch;
use crate::model::error::Result;

/// Brings a layer's weights to their place before the layer is computed.
pub(in crate::model) struct Fetch(Arc<dyn Fn(usize) + Send + Sync>);

impl fmt::Debug for Fetch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Fetch")
    }
}

impl Decoder {
    /// The number of parts of the trunk. Each is computed from the result of the one before.
    pub(crate) fn parts(&self) -> usize {
        self.layers.len() + 2
    }

    /// Calls `fetch` with the number of each layer (from 0) before the layer is computed.
    pub(crate) fn fetch_with(&mut self, fetch: impl Fn(usize) + Send + Sync + 'static) {
        self.fetch = Some(Fetch(Arc::new(fetch)));
    }

    pub(super) fn fetch(&self, layer: usize) {
        if let Some(Fetch(fetch)) = &self.fetch {
            fetch(layer);
        }
    }

    pub(crate) fn turns(&self, batch: &RowBatch) -> Result<RopeRows> {
        self.rope.rows(&batch.positions, batch.longest)
    }

    /// Computes a part of the trunk from `x`, which the first part does not need. The last part
    /// returns the same as [`Self::hidden`].
    pub(crate) fn part(&self, index: usize, batch: &RowBatch, turns: &RopeRows, x: Option<&Tensor>) -> Result<Tensor> {
        let Some(x) = x else {
            return Ok(Tensor::f_embedding(&self.embedding, &batch.ids, -1, false, false)?);
        };
        match self.layers.get(index.wrapping_sub(1)) {
            Some(layer) => {
                self.fetch(index - 1);
                self.layer(layer, batch, turns, x, &mut |_, _| Ok(()))
            }
            None => Ok(rms_norm(x, &self.norm, self.shape.rms_eps)?.f_to_kind(Kind::Float)?),
        }
    }
}

/// Returns true if the trained parameter `name` belongs to the head.
pub(crate) fn is_head(name: &str) -> bool {
    name.starts_with("lm_head.")
}

/// The part of the trunk that the parameter `name` belongs to; `None` for the head.
pub(crate) fn part_of(name: &str, layers: usize) -> Option<usize> {
    match name.strip_prefix("model.layers.") {
        Some(rest) => Some(rest.split('.').next()?.parse::<usize>().ok()? + 1),
        None if name.starts_with("model.embed_tokens.") => Some(0),
        None if name.starts_with("model.norm.") => Some(layers + 1),
        None => None,
    }
}
