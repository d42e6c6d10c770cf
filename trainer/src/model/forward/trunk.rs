//! The trunk in parts: the embedding, each layer, the final norm. Serves a backward pass that
//! computes each part again.

use tch::{Kind, Tensor};

use super::decoder::Decoder;
use super::layer::rms_norm;
use super::rope_table::RopeRows;
use super::row_batch::RowBatch;
use crate::model::error::Result;
use crate::model::shape::Layout;

impl Decoder {
    /// The number of parts of the trunk. Each is computed from the result of the one before.
    pub(crate) fn parts(&self) -> usize {
        self.layers.len() + 2
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
            Some(layer) => self.layer(layer, batch, turns, x, &mut |_, _| Ok(())),
            None => Ok(rms_norm(x, &self.norm, self.shape.rms_eps)?.f_to_kind(Kind::Float)?),
        }
    }
}

/// Returns true if the trained parameter at `offset` belongs to the head.
pub(crate) fn is_head(layout: &Layout, offset: usize) -> bool {
    let mut params = layout.params().iter();
    params.any(|spec| spec.offset == offset && spec.name.starts_with("lm_head."))
}

/// The part of the trunk that the parameter at an offset of the buffer belongs to; `None` for the
/// head.
pub(crate) fn part_of(layout: &Layout, offset: usize, layers: usize) -> Option<usize> {
    let spec = layout.params().iter().find(|spec| spec.offset == offset)?;
    let name = spec.name.as_str();
    match name.strip_prefix("model.layers.") {
        Some(rest) => Some(rest.split('.').next()?.parse::<usize>().ok()? + 1),
        None if name.starts_with("model.embed_tokens.") => Some(0),
        None if name.starts_with("model.norm.") => Some(layers + 1),
        None => None,
    }
}
