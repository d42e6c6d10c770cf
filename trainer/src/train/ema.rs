//! The exponential moving average of the trained weights: `e <- d e + (1 - d) w` after each
//! optimizer step (Polyak and Juditsky, 1992; the update of PyTorch's
//! `torch.optim.swa_utils.get_ema_multi_avg_fn`).
//!
//! It begins as version 0. A skipped step leaves it unchanged. For an adapter, A and B are averaged
//! separately.

use crate::model::{ModelError, Weights};

/// Options of the average that is kept with the trained weights.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EmaOptions {
    /// The decay d, from 0 (the weights themselves) to below 1.
    pub decay: f64,
    /// If true, the KL term uses the average as its reference instead of version 0.
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

    /// Updates the average after a step of the weights.
    pub(super) fn follow(&mut self, weights: &Weights) -> Result<(), ModelError> {
        let _no_grad = tch::no_grad_guard();
        let mut average = self.weights.flat().shallow_clone();
        let _ = average.f_lerp_(weights.flat(), 1.0 - self.options.decay)?;
        Ok(())
    }
}
