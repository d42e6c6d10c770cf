//! Keys and values of a single row: a prompt that is computed in pieces, or an ended turn kept for
//! later prompts.

use tch::{Device, Kind, Tensor};

use crate::model::error::{ModelError, Result};
use crate::model::shape::ModelShape;

/// Deterministic attention reads keys in multiples of this number.
pub(super) const BUCKET: usize = 64;

/// Keys and values of a prefill, one pair per layer, `[prompts, kv_heads, width, head_dim]`.
pub(crate) type Prefilled = Vec<[Tensor; 2]>;

/// Keys and values of a row's first tokens, with room for more.
#[derive(Debug)]
pub(crate) struct RowKv {
    /// Per layer: keys, values, `[1, kv_heads, room, head_dim]`.
    layers: Vec<[Tensor; 2]>,
    filled: usize,
}

impl RowKv {
    /// An empty row with room for `room` tokens.
    pub(crate) fn new(shape: &ModelShape, room: usize, device: Device, kind: Kind) -> Result<Self> {
        let size = [1, shape.kv_heads as i64, room as i64, shape.head_dim as i64];
        let empty = || Tensor::f_empty(size, (kind, device));
        Ok(Self {
            layers: (0..shape.layers)
                .map(|_| Ok([empty()?, empty()?]))
                .collect::<Result<_>>()?,
            filled: 0,
        })
    }

    /// An empty row in whole buckets. Its places are zero until they are written, for attention
    /// that reads beyond its end with a mask.
    pub(crate) fn in_buckets(shape: &ModelShape, room: usize, device: Device, kind: Kind) -> Result<Self> {
        let row = Self::new(shape, room.next_multiple_of(BUCKET), device, kind)?;
        for place in row.layers.iter().flatten() {
            let _ = place.shallow_clone().f_zero_()?;
        }
        Ok(row)
    }

    /// A complete row: `layers` are `[1, kv_heads, tokens, head_dim]`.
    pub(in crate::model) fn whole(layers: Vec<[Tensor; 2]>) -> Self {
        let filled = layers.first().map_or(0, |[keys, _]| keys.size()[2] as usize);
        Self { layers, filled }
    }

    /// The number of tokens with keys and values.
    pub(crate) fn filled(&self) -> usize {
        self.filled
    }

    /// Discards all tokens.
    pub(crate) fn rewind(&mut self) {
        self.filled = 0;
    }

    /// Copies the first `length` tokens of another row, which must have at least as many
    /// [filled](Self::filled).
    pub(crate) fn begin_with(&mut self, other: &Self, length: usize) -> Result<()> {
        for (mine, theirs) in self.layers.iter().flatten().zip(other.layers.iter().flatten()) {
            first(mine, length)?.f_copy_(&first(theirs, length)?)?;
        }
        self.filled = length;
        Ok(())
    }

    /// Writes the keys and values of the next tokens, `[tokens, kv_heads, head_dim]`, and returns
    /// those of all tokens up to them. They count after [`Self::advance`].
    pub(in crate::model) fn write(&self, layer: usize, new: [&Tensor; 2]) -> Result<[Tensor; 2]> {
        let layer = self.places(layer)?;
        let mut all = Vec::with_capacity(2);
        for (place, new) in layer.iter().zip(new) {
            let count = new.size()[0];
            let mut target = place.f_narrow(2, self.filled as i64, count)?;
            target.f_copy_(&new.f_transpose(0, 1)?.f_unsqueeze(0)?)?;
            all.push(first(place, self.filled + count as usize)?);
        }
        <[Tensor; 2]>::try_from(all).map_err(|_| ModelError::shape("keys and values are two"))
    }

    /// All places of a layer, written or not.
    pub(in crate::model) fn places(&self, layer: usize) -> Result<&[Tensor; 2]> {
        let none = || ModelError::shape("a row's keys and values have no such layer");
        self.layers.get(layer).ok_or_else(none)
    }

    /// Counts `tokens` more tokens as written in every layer.
    pub(super) fn advance(&mut self, tokens: usize) {
        self.filled += tokens;
    }

    /// Keys and values of the filled tokens, layer by layer.
    pub(in crate::model) fn layers(&self) -> Result<Vec<[Tensor; 2]>> {
        let of = |[keys, values]: &[Tensor; 2]| Ok([first(keys, self.filled)?, first(values, self.filled)?]);
        self.layers.iter().map(of).collect()
    }
}

fn first(all: &Tensor, length: usize) -> Result<Tensor> {
    Ok(all.f_narrow(2, 0, length as i64)?)
}
