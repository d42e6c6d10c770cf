//! The parts of the flat buffers that the ranks have.

use tch::{TchError, Tensor};

use super::Ranks;
use crate::model::{ModelError, Weights};
use crate::optim::{self, AdamW, Shard};

/// The equal parts that the ranks have of the flat buffers.
pub(in crate::train) struct Parts {
    /// The elements of the buffers before the padding that makes parts equal.
    total: i64,
    stride: i64,
    rank: usize,
    ranks: usize,
    /// The buffer that begins with the weights, if the optimizer is in parts.
    weights: Option<Tensor>,
}

impl Parts {
    pub(in crate::train) fn new(total: i64, ranks: &Ranks) -> Self {
        Self {
            total,
            stride: Shard::stride(total, ranks.count()),
            rank: ranks.rank(),
            ranks: ranks.count(),
            weights: None,
        }
    }

    /// Moves the weights into a buffer with equal parts, of which this rank's optimizer steps its
    /// own.
    pub(in crate::train) fn split(&mut self, weights: Weights) -> Result<Weights, ModelError> {
        let room = Tensor::f_zeros([self.room()], (weights.kind(), weights.device()))?;
        let moved = weights.moved_into(&room)?;
        self.weights = Some(room);
        Ok(moved)
    }

    /// The elements of the buffers without padding.
    pub(in crate::train) fn total(&self) -> i64 {
        self.total
    }

    /// The elements of one part.
    pub(in crate::train) fn stride(&self) -> i64 {
        self.stride
    }

    /// The buffer that begins with the weights, if each rank's optimizer steps its part alone.
    pub(in crate::train) fn split_weights(&self) -> Option<&Tensor> {
        self.weights.as_ref()
    }

    /// The elements of all parts.
    pub(in crate::train) fn room(&self) -> i64 {
        match self.ranks {
            1 => self.total,
            ranks => self.stride * ranks as i64,
        }
    }

    /// This rank's part, without padding.
    pub(in crate::train) fn shard(&self) -> Shard {
        Shard::of(self.total, self.rank, self.ranks)
    }

    pub(in crate::train) fn optimizer(&self, weights: &Weights) -> Result<AdamW, TchError> {
        let decay = optim::ranges(weights.params());
        match self.weights {
            Some(_) => AdamW::of_shard(weights.flat(), &decay, self.shard()),
            None => AdamW::new(weights.flat(), decay),
        }
    }

    /// The part of the moments that this rank's optimizer has.
    pub(in crate::train) fn of_moments(&self) -> Shard {
        match self.weights {
            Some(_) => self.shard(),
            None => Shard::whole(self.total),
        }
    }

    /// This rank's part of a buffer with [`Self::room`].
    pub(in crate::train) fn own(&self, buffer: &Tensor) -> Result<Tensor, TchError> {
        buffer.f_narrow(0, self.stride * self.rank as i64, self.stride)
    }

    /// Returns `block` elements of this rank's `part`, with zeros behind its end, and room for the
    /// blocks of all ranks.
    pub(in crate::train) fn block_of(
        &self,
        part: &Tensor,
        start: i64,
        block: i64,
    ) -> Result<(Tensor, Tensor), TchError> {
        let options = (part.kind(), part.device());
        let own = Tensor::f_zeros([block], options)?;
        let here = block.min(part.size1()? - start).max(0);
        if here > 0 {
            own.f_narrow(0, 0, here)?.f_copy_(&part.f_narrow(0, start, here)?)?;
        }
        Ok((own, Tensor::f_zeros([block * self.ranks as i64], options)?))
    }

    /// Copies the ranks' blocks to their places.
    pub(in crate::train) fn keep_block(
        &self,
        whole: &Tensor,
        blocks: &Tensor,
        start: i64,
        block: i64,
    ) -> Result<(), TchError> {
        for rank in 0..self.ranks as i64 {
            let place = self.stride * rank + start;
            let here = block.min(self.total - place);
            if here > 0 {
                whole
                    .f_narrow(0, place, here)?
                    .f_copy_(&blocks.f_narrow(0, block * rank, here)?)?;
            }
        }
        Ok(())
    }
}
