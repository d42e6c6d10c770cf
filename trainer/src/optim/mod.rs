//! Turns an accumulated gradient into new weights: norm, clipping, AdamW.

mod adamw;
mod blocks;
mod decay;
mod shard;

pub use adamw::AdamW;
pub use decay::ranges;
pub use shard::{Shard, Stretch, stretches};

use broker::protocol::train::OptimStep;
use tch::{Device, Kind, TchError, Tensor};

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

/// Elements of the gradient that are turned into f64 at once: 128 MiB.
const NORM_BLOCK: i64 = 1 << 24;

/// Global L2 norm, summed in f64. It is computed in fixed blocks, because libtorch turns its whole
/// argument into f64 first: 8 bytes a parameter. The blocks are gathered on the device and read by
/// one copy.
pub fn global_norm(grad: &Tensor) -> Result<f64, TchError> {
    norm_in_blocks(grad, NORM_BLOCK)
}

fn norm_in_blocks(grad: &Tensor, block: i64) -> Result<f64, TchError> {
    let grad = grad.f_view(-1)?;
    let length = grad.size1()?;
    let norm = |start: i64| {
        let block = grad.f_narrow(0, start, block.min(length - start))?;
        block.f_norm_scalaropt_dtype(2.0, Kind::Double)
    };
    if length <= block {
        return norm(0)?.f_double_value(&[]);
    }
    let starts = (0..length).step_by(block as usize);
    let norms = starts.map(norm).collect::<Result<Vec<_>, _>>()?;
    let norms: Vec<f64> = Vec::try_from(Tensor::f_stack(&norms, 0)?.f_to_device(Device::Cpu)?)?;
    Ok(norms.into_iter().map(|norm| norm * norm).sum::<f64>().sqrt())
}

/// The sums of squares of `part`, block by block. The norm of a gradient is the root of the sum
/// over the blocks of all its parts.
pub(crate) fn squares(part: &Tensor) -> Result<Vec<f64>, TchError> {
    let length = part.size1()?;
    let square = |start: i64| {
        let norm = global_norm(&part.f_narrow(0, start, NORM_BLOCK.min(length - start))?)?;
        Ok(norm * norm)
    };
    (0..length).step_by(NORM_BLOCK as usize).map(square).collect()
}

/// The factor for a gradient of this norm, or `None` if the step must be skipped: a gradient that
/// is not finite changes nothing.
#[must_use]
pub(crate) fn scale_of(grad_norm: f64, params: &OptimStep) -> Option<f64> {
    grad_norm.is_finite().then(|| clip_factor(grad_norm, params.clip_norm))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn step_with_a_gradient_that_is_not_finite_is_skipped() {
        let params = OptimStep {
            lr: 0.1,
            beta1: 0.9,
            beta2: 0.99,
            eps: 1e-8,
            weight_decay: 0.0,
            clip_norm: 1.0,
        };
        for bad in [f32::NAN, f32::INFINITY] {
            let norm = global_norm(&Tensor::from_slice(&[0.5, bad])).unwrap();
            assert_eq!(scale_of(norm, &params), None);
        }
        assert_eq!(scale_of(0.5, &params), Some(1.0));
    }

    #[test]
    fn norm_in_blocks_is_the_norm_of_the_whole() {
        let grad = Tensor::arange(1000, (Kind::Float, Device::Cpu)) - 500.0;
        let whole = global_norm(&grad).unwrap();
        for block in [1000, 999, 128, 7] {
            let norm = norm_in_blocks(&grad, block).unwrap();
            assert!((norm / whole - 1.0).abs() < 1e-14, "{block}: {norm} and {whole}");
        }
        let _ = grad.get(999).fill_(f64::NAN);
        assert!(
            norm_in_blocks(&grad, 128).unwrap().is_nan(),
            "a bad element is not lost"
        );
        assert_eq!(norm_in_blocks(&grad.narrow(0, 0, 0), 128).unwrap(), 0.0);
    }

    #[test]
    fn clipping_scales_to_the_norm_and_zero_means_none() {
        assert_eq!(clip_factor(10.0, 0.0), 1.0);
        assert_eq!(clip_factor(0.5, 1.0), 1.0);
        assert!((clip_factor(10.0, 1.0) - 0.1).abs() < 1e-7);
    }
}
