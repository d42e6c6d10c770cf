//! The reference policy of the KL term: a frozen copy, or the average that moves with the weights.

use std::sync::Arc;

use tch::Tensor;

use super::error::Refusal;
use super::layout::Computing;
use super::stop::Stop;
use super::trainer::Trainer;
use crate::model::{Decoder, ModelError, Parts, Weights, kind_of};

/// A reference policy in the dtype of the computation.
pub(super) struct Reference {
    pub(super) weights: Weights,
    pub(super) decoder: Decoder,
    /// The buffer that begins with the weights and that ranks gather in.
    room: Tensor,
}

impl Trainer {
    pub(super) fn reference(&self, weights: Weights, room: Tensor) -> Result<Reference, ModelError> {
        let decoder = Decoder::new(&self.shape, Parts::over(self.base.as_ref(), &weights))?;
        Ok(Reference { weights, decoder, room })
    }

    /// Makes a reference policy of weights that only it has.
    pub(super) fn reference_of_copy(&self, weights: Weights) -> Result<Reference, ModelError> {
        let room = weights.flat().shallow_clone();
        self.reference(weights, room)
    }

    /// Returns true if the reference policy is the average, which moves with the weights.
    pub(super) fn follows_average(&self) -> bool {
        self.options.ema.is_some_and(|ema| ema.is_reference)
    }

    /// Copies the current weights, or the average that the reference follows. All ranks call it
    /// together.
    pub(super) fn copy_as_reference(&self) -> Result<Reference, Stop> {
        let failed = |error: ModelError| Stop::Failed(error.to_string());
        let average = self.owned.average.as_ref().filter(|_| self.follows_average());
        let source = match (average, &self.computing) {
            (Some(average), _) => average,
            (None, Computing::Window { .. }) => &self.owned.masters,
            (None, Computing::Whole(_)) => {
                let copy = self.weights.copied_to(self.weights.device(), self.options.dtype);
                return copy.and_then(|copy| self.reference_of_copy(copy)).map_err(failed);
            }
        };
        let options = (kind_of(self.options.dtype), self.weights.device());
        let room = Tensor::f_zeros([self.parts.room()], options).map_err(ModelError::from);
        let room = self.ranks.agree(room.map_err(failed))?;
        self.gather_state(source, &room)?;
        let weights = Weights::at_start_of(&room, Arc::clone(&self.layout));
        weights
            .and_then(|weights| self.reference(weights, room))
            .map_err(failed)
    }

    /// Moves the average, and the reference that follows it in its own memory.
    pub(super) fn move_average(&mut self) -> Result<(), Stop> {
        let Some(ema) = self.options.ema else {
            return Ok(());
        };
        let moved = self.owned.move_average(ema).map_err(ModelError::from);
        self.ranks.agree(moved.map_err(Stop::from))?;
        if ema.is_reference
            && let Some(reference) = &self.reference
            && let Some(average) = &self.owned.average
        {
            self.gather_state(average, &reference.room)?;
        }
        if ema.is_reference
            && let Some(Reference { weights, decoder, .. }) = &mut self.reference
        {
            if self.base.is_some() {
                // Bound again, because a decoder keeps copies of the adapter's change to
                // neighbouring modules.
                *decoder = decoder.rebound(Parts::over(self.base.as_ref(), weights))?;
            } else {
                decoder.follow()?;
            }
        }
        Ok(())
    }

    /// Fills `room` with a buffer that the ranks own parts of, converted to the room's kind. All
    /// ranks call it together.
    fn gather_state(&self, own: &Tensor, room: &Tensor) -> Result<(), Stop> {
        let torch = |error: tch::TchError| Stop::from(ModelError::from(error));
        let _no_grad = tch::no_grad_guard();
        if self.parts.is_whole() {
            return own
                .f_detach()
                .and_then(|own| room.shallow_clone().f_copy_(&own))
                .map_err(torch);
        }
        let own = own.f_to_device_(room.device(), room.kind(), false, false);
        let own = self.ranks.agree(own.map_err(torch))?;
        self.parts.gather(self.ranks.group(), &own, room).map_err(Stop::Ended)
    }
}

pub(super) fn reference_of(reference: &Option<Reference>) -> Result<&Decoder, Refusal> {
    let reference = reference.as_ref().ok_or(Refusal::NoReference)?;
    Ok(&reference.decoder)
}
