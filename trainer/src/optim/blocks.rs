//! AdamW's formula over flat buffers, a block at a time.

use broker::protocol::train::OptimStep;
use tch::{Device, TchError, Tensor};

/// The number of elements in a block on a CPU. The four blocks stay in the second-level cache, so
/// memory is read and written once per step although the formula has several operations. A GPU
/// without a fused kernel takes the whole buffer.
pub(super) const CPU_BLOCK: i64 = 1 << 16;

/// The buffers of a step, each `[n]` in f32.
pub(super) struct Flat {
    pub(super) weights: Tensor,
    pub(super) grad: Tensor,
    pub(super) first: Tensor,
    pub(super) second: Tensor,
}

/// Takes step `t` (from 1), after weight decay, with the gradient times `scale`.
pub(super) fn step(flat: &Flat, scale: f64, t: u64, params: &OptimStep) -> Result<(), TchError> {
    let t = i32::try_from(t).unwrap_or(i32::MAX);
    let correction = Correction {
        scale,
        step_size: params.lr / (1.0 - params.beta1.powi(t)),
        root: (1.0 - params.beta2.powi(t)).sqrt(),
    };
    let total = flat.weights.size1()?;
    let block = match flat.weights.device() {
        Device::Cpu => CPU_BLOCK,
        _ => total.max(1),
    };
    let mut start = 0;
    while start < total {
        let length = block.min(total - start);
        let part = |tensor: &Tensor| tensor.f_narrow(0, start, length);
        let (first, second) = (part(&flat.first)?, part(&flat.second)?);
        step_block(
            part(&flat.weights)?,
            part(&flat.grad)?,
            first,
            second,
            correction,
            params,
        )?;
        start += length;
    }
    Ok(())
}

#[derive(Clone, Copy)]
struct Correction {
    scale: f64,
    step_size: f64,
    root: f64,
}

fn step_block(
    mut weights: Tensor,
    grad: Tensor,
    mut first: Tensor,
    mut second: Tensor,
    correction: Correction,
    params: &OptimStep,
) -> Result<(), TchError> {
    let grad = if correction.scale == 1.0 {
        grad
    } else {
        grad.f_mul_scalar(correction.scale)?
    };
    let _ = first.f_lerp_(&grad, 1.0 - params.beta1)?;
    let _ = second.f_mul_scalar_(params.beta2)?;
    let _ = second.f_addcmul_(&grad, &grad.f_mul_scalar(1.0 - params.beta2)?)?;
    let mut divisor = second.f_sqrt()?;
    let _ = divisor.f_div_scalar_(correction.root)?;
    let _ = divisor.f_add_scalar_(params.eps)?;
    let mut change = first.f_div(&divisor)?;
    let _ = change.f_mul_scalar_(-correction.step_size)?;
    let _ = weights.f_add_(&change)?;
    Ok(())
}
