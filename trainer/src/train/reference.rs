//! The reference policy of the KL term: a frozen copy, or the average that moves with the weights.
//! Ranks that split the trained weights split those of the reference too.

use std::sync::Arc;

use tch::{TchError, Tensor};

use super::compute_weights::ComputeWeights;
use super::error::Refusal;
use super::model_parts::{LayerWeights, Window};
use super::split_pass::Act;
use super::stop::Stop;
use super::trainer::Trainer;
use crate::model::{Decoder, ModelError, ParamSource, Parts, Weights, kind_of};

/// A reference policy in the dtype of the computation.
pub(super) struct Reference {
    pub(super) weights: Weights,
    pub(super) computing: ComputeWeights,
    pub(super) decoder: Decoder,
    /// The layers that passes gather, until [`Trainer::set_reference`] hands them over.
    layers: Vec<LayerWeights>,
}

impl Trainer {
    /// Begins to use a reference policy, or none. Passes gather its layers if the ranks split them.
    pub(super) fn set_reference(&mut self, mut reference: Option<Reference>) {
        let layers = reference
            .as_mut()
            .map(|reference| std::mem::take(&mut reference.layers));
        self.model.store().set_reference(layers.unwrap_or_default());
        self.reference = reference;
    }

    /// Copies the weights of a reference policy from `source`, or this rank's parts of them.
    pub(super) fn reference_from(&self, source: &dyn ParamSource) -> Result<Reference, ModelError> {
        let (mut weights, computing) = self.room_of_reference()?;
        match &computing {
            ComputeWeights::Whole(_) => weights.copy_from(source)?,
            ComputeWeights::Window { window, own } => {
                window.fill(source)?;
                self.parts.take(own, |range, part| source.copy(range, part))?;
            }
        }
        self.reference(weights, computing)
    }

    /// Makes zeros for the weights of a reference policy, or for this rank's parts of them.
    fn room_of_reference(&self) -> Result<(Weights, ComputeWeights), ModelError> {
        let (kind, device) = (kind_of(self.options.dtype), self.weights.device());
        if let ComputeWeights::Window { .. } = &self.computing {
            let window = Window::new(&self.layout, self.shape.layers, &self.parts, (kind, device))?;
            let own = self.parts.zeros(kind, device)?;
            return Ok((window.weights.share(), ComputeWeights::Window { window, own }));
        }
        let room = Tensor::f_zeros([self.parts.room()], (kind, device))?;
        let weights = Weights::at_start_of(&room, Arc::clone(&self.layout))?;
        Ok((weights, ComputeWeights::Whole(room)))
    }

    /// Makes a reference policy of weights in their place.
    fn reference(&self, weights: Weights, computing: ComputeWeights) -> Result<Reference, ModelError> {
        let parts = Parts::over(self.base.as_ref(), &weights);
        // Shares the f32 copy of a frozen base's head.
        let mut decoder = self.model.decoder().rebound(parts)?;
        if let Some(fetch) = self.model.store().fetch(Act::FetchReference) {
            decoder.fetch_with(fetch);
        }
        Ok(Reference {
            layers: computing.layers(&self.parts)?,
            weights,
            computing,
            decoder,
        })
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
            (None, ComputeWeights::Window { .. }) => &self.owned.masters,
            (None, ComputeWeights::Whole(_)) => return self.reference_from(&self.weights).map_err(failed),
        };
        let room = self.room_of_reference().map_err(failed);
        let (weights, computing) = self.ranks.agree(room)?;
        self.gather_state(source, &computing)?;
        self.reference(weights, computing).map_err(failed)
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
            self.gather_state(average, &reference.computing)?;
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

    /// Fills `computing` with a buffer that the ranks own parts of, converted to its kind. All
    /// ranks call it together.
    fn gather_state(&self, own: &Tensor, computing: &ComputeWeights) -> Result<(), Stop> {
        let _no_grad = tch::no_grad_guard();
        let converted = self.converted(own, computing);
        let own = self
            .ranks
            .agree(converted.map_err(|error| ModelError::from(error).into()))?;
        if self.parts.is_whole() {
            return Ok(());
        }
        let shared = computing.share(self.ranks.group(), &self.parts, &own);
        shared.map_err(Stop::Ended)
    }

    /// Converts this rank's parts of a buffer to the kind of `computing`. Copies them to their
    /// place in it, unless the ranks gather whole weights there.
    fn converted(&self, own: &Tensor, computing: &ComputeWeights) -> Result<Tensor, TchError> {
        let (own, place) = (own.f_detach()?, computing.own());
        match computing {
            ComputeWeights::Whole(_) if !self.parts.is_whole() => {
                own.f_to_device_(place.device(), place.kind(), false, false)
            }
            _ => {
                let mut place = place.shallow_clone();
                place.f_copy_(&own)?;
                Ok(place)
            }
        }
    }
}

pub(super) fn reference_of(reference: &Option<Reference>) -> Result<&Decoder, Refusal> {
    let reference = reference.as_ref().ok_or(Refusal::NoReference)?;
    Ok(&reference.decoder)
}
