//! Turns an accumulated gradient into new weights: norm, clipping, AdamW.

mod adamw;
mod blocks;
mod decay;
mod shard;

pub use adamw::AdamW;
pub use decay::ranges;
pub use shard::Shard;

use broker::protocol::train::OptimStep;
use tch::{Kind, TchError, Tensor};

/// The outcome of a step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepOutcome {
    /// Global L2 norm of the gradient before clipping.
    pub grad_norm: f64,
    /// True if the norm was not finite; weights and optimizer are then unchanged.
    pub skipped: bool,
}

/// The factor that brings a gradient of norm `norm` to at most `clip_norm`, or 1 for a smaller one.
/// The `1e-6` is that of PyTorch's `clip_grad_norm_`.
#[must_use]
pub fn clip_factor(norm: f64, clip_norm: f64) -> f64 {
    if clip_norm > 0.0 {
        (clip_norm / (norm + 1e-6)).min(1.0)
    } else {
        1.0
    }
}

/// Global L2 norm, summed in f64.
pub fn global_norm(grad: &Tensor) -> Result<f64, TchError> {
    grad.f_norm_scalaropt_dtype(2.0, Kind::Double)?.f_double_value(&[])
}

/// Clips the gradient and takes one step of `optimizer`. A gradient that is not finite changes
/// nothing.
pub fn step(
    optimizer: &mut AdamW,
    weights: &Tensor,
    grad: &Tensor,
    params: &OptimStep,
) -> Result<StepOutcome, TchError> {
    let grad_norm = global_norm(grad)?;
    if !grad_norm.is_finite() {
        return Ok(StepOutcome {
            grad_norm,
            skipped: true,
        });
    }
    optimizer.step(weights, grad, clip_factor(grad_norm, params.clip_norm), params)?;
    Ok(StepOutcome {
        grad_norm,
        skipped: false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn params(clip_norm: f64) -> OptimStep {
        OptimStep {
            lr: 0.1,
            beta1: 0.9,
            beta2: 0.99,
            eps: 1e-8,
            weight_decay: 0.0,
            clip_norm,
        }
    }

    #[test]
    fn a_gradient_that_is_not_finite_changes_nothing() {
        let weights = Tensor::from_slice(&[1f32, 2.0]);
        let mut optimizer = AdamW::new(&weights, vec![]).unwrap();
        for bad in [f32::NAN, f32::INFINITY] {
            let outcome = step(&mut optimizer, &weights, &Tensor::from_slice(&[0.5, bad]), &params(1.0)).unwrap();
            assert!(outcome.skipped);
        }
        assert_eq!(Vec::<f32>::try_from(&weights).unwrap(), [1.0, 2.0]);
        assert_eq!(optimizer.steps(), 0);
    }

    #[test]
    fn clipping_scales_to_the_norm_and_zero_means_none() {
        assert_eq!(clip_factor(10.0, 0.0), 1.0);
        assert_eq!(clip_factor(0.5, 1.0), 1.0);
        assert!((clip_factor(10.0, 1.0) - 0.1).abs() < 1e-7);
    }
}
