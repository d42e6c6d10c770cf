//! The views of the slots in the storage of a [`KvCache`](super::KvCache).

use tch::Tensor;

use super::budget::Slots;
use crate::model::error::Result;
use crate::model::shape::ModelShape;

/// The sizes of keys and values.
#[derive(Debug, Clone, Copy)]
pub(super) struct Dims {
    pub(super) layers: usize,
    pub(super) kv_heads: usize,
    pub(super) head_dim: usize,
    pub(super) max_context: usize,
}

/// Per layer: keys, values, each `[rows, kv_heads, room, head_dim]`.
pub(super) type Views = Vec<[Tensor; 2]>;

impl Dims {
    pub(super) fn of(shape: &ModelShape) -> Self {
        Self {
            layers: shape.layers,
            kv_heads: shape.kv_heads,
            head_dim: shape.head_dim,
            max_context: shape.max_context,
        }
    }

    /// The number of elements of these slots.
    pub(super) fn numel(&self, slots: Slots) -> usize {
        2 * self.layers * slots.rows * self.kv_heads * slots.room * self.head_dim
    }

    /// The slots at the start of a storage, tensor after tensor.
    pub(super) fn views(&self, storage: &Tensor, slots: Slots) -> Result<Views> {
        let size = [slots.rows, self.kv_heads, slots.room, self.head_dim].map(|n| n as i64);
        let numel: i64 = size.iter().product();
        let part = |index: i64| storage.f_narrow(0, index * numel, numel)?.f_view(size);
        (0..self.layers as i64)
            .map(|layer| Ok([part(2 * layer)?, part(2 * layer + 1)?]))
            .collect()
    }
}

/// Copies the first `length` tokens of the first `rows` rows to views of another storage.
pub(super) fn copy(from: &Views, to: &Views, rows: usize, length: usize) -> Result<()> {
    for (from, to) in from.iter().flatten().zip(to.iter().flatten()) {
        part(to, rows, length)?.f_copy_(&part(from, rows, length)?)?;
    }
    Ok(())
}

/// Moves the first `length` tokens of the first `rows` rows to other views of the same storage.
///
/// If tensors grow, a new place overlaps only old places from its own on: they are moved in reverse
/// order. If they shrink, it overlaps only old places up to its own: they are moved in order. A
/// tensor may overlap itself, so its live part is copied aside.
pub(super) fn shift(from: &Views, to: &Views, rows: usize, length: usize) -> Result<()> {
    let mut moves: Vec<(&Tensor, &Tensor)> = from.iter().flatten().zip(to.iter().flatten()).collect();
    let Some(&(old, new)) = moves.first() else {
        return Ok(());
    };
    let mut aside = part(old, rows, length)?.f_empty_like()?;
    if new.numel() > old.numel() {
        moves.reverse();
    }
    for (old, new) in moves {
        aside.f_copy_(&part(old, rows, length)?)?;
        part(new, rows, length)?.f_copy_(&aside)?;
    }
    Ok(())
}

fn part(all: &Tensor, rows: usize, length: usize) -> Result<Tensor> {
    Ok(all.f_narrow(0, 0, rows as i64)?.f_narrow(2, 0, length as i64)?)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tch::{Device, Kind};

    use super::*;
    use crate::model::shape::tiny;

    fn parts(views: &Views, rows: usize, length: usize) -> Vec<Tensor> {
        let of = |tensor| part(tensor, rows, length).unwrap().copy();
        views.iter().flatten().map(of).collect()
    }

    proptest! {
        /// Whatever becomes of rows and room, live tokens are the same bits in their new places.
        #[test]
        fn shifted_rows_keep_their_bits(
            [before, after] in prop::array::uniform2((1usize..9, 1usize..40)),
            (rows, length) in (0usize..9, 0usize..40),
        ) {
            let dims = Dims::of(&crate::model::ModelShape { layers: 3, ..tiny() });
            let [before, after] = [before, after].map(|(rows, room)| Slots { rows, room });
            let rows = rows.min(before.rows).min(after.rows);
            let length = length.min(before.room).min(after.room);
            let numel = dims.numel(before).max(dims.numel(after)) as i64;
            let storage = Tensor::rand([numel], (Kind::Float, Device::Cpu));
            let [from, to] = [before, after].map(|slots| dims.views(&storage, slots).unwrap());
            let wanted = parts(&from, rows, length);
            shift(&from, &to, rows, length).unwrap();
            prop_assert_eq!(parts(&to, rows, length), wanted);
        }
    }
}
