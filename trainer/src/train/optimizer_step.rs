//! The optimizer step: one sum of the ranks' gradients, one norm, AdamW on what this rank owns, and
//! the new weights of all ranks (ZeRO, Rajbhandari et al., arXiv:1910.02054, stages 1 to
//! 3).
//!
//! Ranks that split nothing add their whole gradients and step everything. Ranks that split the
//! optimizer's state receive the sum of their own pieces, step these, and gather the weights in the
//! dtype of the computation. Both ways give the same bits.

use broker::codec;
use broker::protocol::train::OptimStep;
use tch::{TchError, Tensor};

use super::compute_weights::ComputeWeights;
use super::ranks::Fault;
use super::stop::Stop;
use super::trainer::Trainer;
use crate::collective::Collective;
use crate::model::ModelError;
use crate::optim::{self, Shard, StepOutcome};

impl Trainer {
    /// Clips the sum of the ranks' gradients and takes one step of AdamW with it.
    pub(in crate::train) fn step_optimizer(&mut self, params: &OptimStep) -> Result<StepOutcome, Stop> {
        let _no_grad = tch::no_grad_guard();
        self.sum_gradient()?;
        let grad_norm = self.gradient_norm()?;
        let Some(scale) = optim::scale_of(grad_norm, params) else {
            return Ok(StepOutcome {
                grad_norm,
                skipped: true,
            });
        };
        let stepped = self.step_own(scale, params).map_err(torch);
        let computing = self.ranks.agree(stepped)?;
        if !self.parts.is_whole() {
            let shared = self.computing.share(self.ranks.group(), &self.parts, &computing);
            shared.map_err(Stop::Ended)?;
            self.ranks.pulse().mark();
        }
        Ok(StepOutcome {
            grad_norm,
            skipped: false,
        })
    }

    /// Steps what this rank owns. Returns its new weights as the model computes with them.
    fn step_own(&mut self, scale: f64, params: &OptimStep) -> Result<Tensor, TchError> {
        let computing = match &self.computing {
            ComputeWeights::Window { own, .. } => own.shallow_clone(),
            ComputeWeights::Whole(room) => match self.parts.view(room)? {
                Some(view) => view,
                None => self.parts.zeros(room.kind(), room.device())?,
            },
        };
        let grad = self.own_gradient()?;
        self.owned.step(&grad, scale, params, &computing)?;
        Ok(computing)
    }

    /// Adds the ranks' gradients. Ranks that split the state get the sum of their own pieces only.
    fn sum_gradient(&self) -> Result<(), Stop> {
        let group = self.ranks.group();
        let summed = match self.model.grad_room() {
            _ if self.ranks.is_alone() => return Ok(()),
            // The backward passes have added the pieces.
            None => return Ok(()),
            Some(_) if self.parts.is_whole() => group.all_reduce(&mut self.model.grad().shallow_clone()),
            Some(room) => {
                let mut own = self.own_gradient().map_err(torch)?;
                group.reduce_scatter(&mut own, room)
            }
        };
        self.ranks.pulse().mark();
        summed.map_err(Stop::Ended)
    }

    /// The gradient of what this rank owns, as long as its buffers.
    fn own_gradient(&self) -> Result<Tensor, TchError> {
        let view = match self.model.grad_room() {
            Some(room) => self.parts.view(room)?,
            None => None,
        };
        Ok(view.unwrap_or_else(|| self.model.grad().shallow_clone()))
    }

    /// The norm of the whole gradient: each rank adds the squares of its part, block by block, and
    /// all ranks add the blocks in the same order.
    fn gradient_norm(&self) -> Result<f64, Stop> {
        if self.ranks.is_alone() {
            return optim::global_norm(self.model.grad()).map_err(torch);
        }
        let squares = self.own_squares().map_err(|error| error.to_string());
        let decode = |bytes: &[u8]| codec::decode::<Vec<f64>>(bytes);
        let blocks = self.ranks.gather(squares, codec::encode::<Vec<f64>>, decode);
        match blocks {
            Ok(blocks) => Ok(blocks.into_iter().flatten().sum::<f64>().sqrt()),
            Err(Fault::Failed(reason)) => Err(Stop::Broken(reason)),
            Err(Fault::Ended(error)) => Err(Stop::Ended(error)),
        }
    }

    fn own_squares(&self) -> Result<Vec<f64>, TchError> {
        if !self.parts.is_whole() {
            return self.parts.squares(&self.own_gradient()?);
        }
        let grad = self.model.grad();
        let even = Shard::of(grad.size1()?, self.ranks.rank(), self.ranks.count());
        optim::squares(&grad.f_narrow(0, even.range().start, even.len())?)
    }
}

fn torch(error: TchError) -> Stop {
    ModelError::from(error).into()
}
