//! The exponential moving average of the trained weights (Polyak and Juditsky, 1992; the update of PyTorch's
//! `torch.optim.swa_utils.get_ema_multi_avg_fn`): `e <- d e + (1 - d) w` after each optimizer step.
//!
//! It begins as version 0. A step that is left out leaves it as it is. Of an adapter, A and B are averaged each by itself.

use crate::model::{ModelError, Weights};

/// An average that is kept beside the trained weights.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EmaOptions {
    /// d, from 0 (the weights themselves) to below 1.
    pub decay: f64,
    /// Whether the KL term is taken to the average, in place of version 0.
    pub is_reference: bool,
}

pub(super) struct Ema {
    pub(super) options: EmaOptions,
    /// In f32, on the device of the trained weights.
    pub(super) weights: Weights,
}

impl Ema {
    pub(super) fn new(options: EmaOptions, weights: &Weights) -> Result<Self, ModelError> {
        let weights = weights.copied(weights.device(), weights.kind())?;
        Ok(Self { options, weights })
    }

    /// The weights have made a step.
    pub(super) fn follow(&mut self, weights: &Weights) -> Result<(), ModelError> {
        let _no_grad = tch::no_grad_guard();
        let mut average = self.weights.flat().shallow_clone();
        let _ = average.f_lerp_(weights.flat(), 1.0 - self.options.decay)?;
        Ok(())
    }
}
