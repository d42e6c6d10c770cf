//! The optimizer step: with several ranks one sum of the gradient, one norm, and either all of
//! AdamW on each rank or ZeRO-1 (Rajbhandari et al., arXiv:1910.02054, stage 1).
//!
//! With ZeRO-1 each rank keeps the moments of its part, steps its part of the weights, and receives
//! the others' parts. Both ways give the same bits.

use broker::codec;
use broker::protocol::train::OptimStep;
use tch::{Device, TchError, Tensor};

use super::ranks::Fault;
use super::stop::Stop;
use super::trainer::Trainer;
use crate::model::ModelError;
use crate::optim::{self, StepOutcome};

/// Elements of each rank's moments that are gathered at once.
const BLOCK: i64 = 1 << 22;

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
        if let (Some(room), false) = (self.parts.split_weights(), outcome.skipped) {
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
        let summed = if self.parts.split_weights().is_none() {
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
            Err(Fault::Failed(reason)) => Err(Stop::Broken(reason)),
            Err(Fault::Ended(error)) => Err(Stop::Ended(error)),
        }
    }

    /// Returns the moments of all weights, for rank 0's checkpoint. The other ranks get unfinished
    /// ones: they only pass their part on.
    pub(in crate::train) fn whole_moments(&self) -> Result<[Tensor; 2], Stop> {
        let (first, second) = self.optimizer.moments();
        if self.parts.split_weights().is_none() {
            return Ok([first.shallow_clone(), second.shallow_clone()]);
        }
        Ok([self.whole(first)?, self.whole(second)?])
    }

    /// Gathers the parts of a buffer into host memory, a block of each at a time.
    fn whole(&self, part: &Tensor) -> Result<Tensor, Stop> {
        let torch = |error: TchError| Stop::Failed(ModelError::from(error).to_string());
        let parts = &self.parts;
        let length = if self.ranks.is_first() { parts.total() } else { 0 };
        let whole = Tensor::f_zeros([length], (part.kind(), Device::Cpu)).map_err(torch);
        let whole = self.ranks.agree(whole)?;
        let mut kept = Ok(());
        for start in (0..parts.stride()).step_by(BLOCK as usize) {
            let block = BLOCK.min(parts.stride() - start);
            let (own, mut all) = self.ranks.agree(parts.block_of(part, start, block).map_err(torch))?;
            self.ranks.group().all_gather(&mut all, &own).map_err(Stop::Ended)?;
            self.model.pulse().mark();
            if self.ranks.is_first() && kept.is_ok() {
                kept = parts.keep_block(&whole, &all, start, block).map_err(torch);
            }
        }
        kept?;
        Ok(whole)
    }
}
