//! The optimizer step of several ranks: one sum of the gradient, one norm, and either all of AdamW
//! on each rank or ZeRO-1 (Rajbhandari et al., arXiv:1910.02054, stage 1).
//!
//! With ZeRO-1 each rank keeps the moments of its part, steps its part of the weights, and receives
//! the others' parts. Both ways give the same bits.

use broker::codec;
use broker::protocol::train::OptimStep;
use tch::{Device, TchError, Tensor};

use super::Ranks;
use crate::model::{ModelError, Weights};
use crate::optim::{self, AdamW, Shard, StepOutcome};
use crate::train::trainer::{Stop, Trainer};

/// Elements of each rank's moments that are gathered at once.
const BLOCK: i64 = 1 << 22;

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

    /// The elements of all parts.
    pub(in crate::train) fn room(&self) -> i64 {
        match self.ranks {
            1 => self.total,
            ranks => self.stride * ranks as i64,
        }
    }

    /// This rank's part, without padding.
    fn shard(&self) -> Shard {
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
    fn own(&self, buffer: &Tensor) -> Result<Tensor, TchError> {
        buffer.f_narrow(0, self.stride * self.rank as i64, self.stride)
    }

    /// Returns `block` elements of this rank's `part`, with zeros behind its end, and room for the
    /// blocks of all ranks.
    fn block_of(&self, part: &Tensor, start: i64, block: i64) -> Result<(Tensor, Tensor), TchError> {
        let options = (part.kind(), part.device());
        let own = Tensor::f_zeros([block], options)?;
        let here = block.min(part.size1()? - start).max(0);
        if here > 0 {
            own.f_narrow(0, 0, here)?.f_copy_(&part.f_narrow(0, start, here)?)?;
        }
        Ok((own, Tensor::f_zeros([block * self.ranks as i64], options)?))
    }

    /// Copies the ranks' blocks to their places.
    fn keep_block(&self, whole: &Tensor, blocks: &Tensor, start: i64, block: i64) -> Result<(), TchError> {
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

impl Trainer {
    /// Clips the sum of the ranks' gradients and takes one step of AdamW with it.
    pub(in crate::train) fn step_optimizer(&mut self, params: &OptimStep) -> Result<StepOutcome, Stop> {
        let torch = |error: TchError| Stop::from(ModelError::from(error));
        if self.ranks.is_alone() {
            let (flat, grad) = (self.weights.flat(), self.model.grad());
            return optim::step(&mut self.optimizer, flat, grad, params).map_err(torch);
        }
        let _no_grad = tch::no_grad_guard();
        self.sum_gradient()?;
        let norm = self.gradient_norm()?;
        let (flat, grad) = (self.weights.flat(), self.model.grad());
        let outcome = optim::step_at_norm(&mut self.optimizer, flat, grad, norm, params);
        let outcome = self.ranks.agree(outcome.map_err(torch))?;
        if let (Some(room), false) = (&self.parts.weights, outcome.skipped) {
            let own = self.parts.own(room).map_err(torch)?;
            self.ranks
                .group()
                .all_gather(&mut room.shallow_clone(), &own)
                .map_err(Stop::Ended)?;
            self.model.pulse().mark();
        }
        Ok(outcome)
    }

    /// Adds the ranks' gradients. With an optimizer in parts, only this rank's part becomes the
    /// sum.
    fn sum_gradient(&self) -> Result<(), Stop> {
        let (group, room) = (self.ranks.group(), self.model.grad_room());
        let summed = if self.parts.weights.is_none() {
            group.all_reduce(&mut self.model.grad().shallow_clone())
        } else {
            let mut own = self
                .parts
                .own(room)
                .map_err(|error| Stop::from(ModelError::from(error)))?;
            group.reduce_scatter(&mut own, room)
        };
        self.model.pulse().mark();
        summed.map_err(Stop::Ended)
    }

    /// The norm of the whole gradient: each rank adds the squares of its part, block by block, and
    /// all ranks add the blocks in the same order.
    fn gradient_norm(&self) -> Result<f64, Stop> {
        let range = self.parts.shard().range();
        let part = self.model.grad().f_narrow(0, range.start, range.end - range.start);
        let squares = part
            .and_then(|part| optim::squares(&part))
            .map_err(|error| error.to_string());
        let decode = |bytes: &[u8]| codec::decode::<Vec<f64>>(bytes);
        let blocks = self.ranks.gather(squares, codec::encode::<Vec<f64>>, decode);
        match blocks {
            Ok(blocks) => Ok(blocks.into_iter().flatten().sum::<f64>().sqrt()),
            Err(super::Fault::Failed(reason)) => Err(Stop::Broken(reason)),
            Err(super::Fault::Ended(error)) => Err(Stop::Ended(error)),
        }
    }

    /// Returns the moments of all weights, for rank 0's checkpoint. The other ranks get unfinished
    /// ones: they only pass their part on.
    pub(in crate::train) fn whole_moments(&self) -> Result<[Tensor; 2], Stop> {
        let (first, second) = self.optimizer.moments();
        if self.parts.weights.is_none() {
            return Ok([first.shallow_clone(), second.shallow_clone()]);
        }
        Ok([self.whole(first)?, self.whole(second)?])
    }

    /// Gathers the parts of a buffer into host memory, a block of each at a time.
    fn whole(&self, part: &Tensor) -> Result<Tensor, Stop> {
        let torch = |error: TchError| Stop::Failed(ModelError::from(error).to_string());
        let parts = &self.parts;
        let length = if parts.rank == 0 { parts.total } else { 0 };
        let whole = Tensor::f_zeros([length], (part.kind(), Device::Cpu)).map_err(torch);
        let whole = self.ranks.agree(whole)?;
        let mut kept = Ok(());
        for start in (0..parts.stride).step_by(BLOCK as usize) {
            let block = BLOCK.min(parts.stride - start);
            let (own, mut all) = self.ranks.agree(parts.block_of(part, start, block).map_err(torch))?;
            self.ranks.group().all_gather(&mut all, &own).map_err(Stop::Ended)?;
            self.model.pulse().mark();
            if parts.rank == 0 && kept.is_ok() {
                kept = parts.keep_block(&whole, &all, start, block).map_err(torch);
            }
        }
        kept?;
        Ok(whole)
    }
}
