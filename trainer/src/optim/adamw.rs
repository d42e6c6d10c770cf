//! AdamW over one flat f32 buffer, or over an owner's part of it, with moments that can be read and
//! saved.

use std::ops::Range;

use broker::protocol::train::OptimStep;
use tch::{Device, Kind, TchError, Tensor};

use super::blocks;
use super::shard::Shard;
use crate::shim::fused_adamw::{self, Lists, Numbers};

/// Adam with decoupled weight decay (Loshchilov and Hutter, arXiv:1711.05101; the form of
/// `torch.optim.AdamW`).
///
/// Weights, gradient and both moments are flat buffers. A step is one pass over contiguous memory,
/// whatever the number of parameters. An owner of a [`Shard`] holds only its part of the moments.
/// On a CPU the pass works in blocks ([`blocks`]). On a GPU it uses ATen's fused kernel, with two
/// calls a step: one for all stretches that decay, one for the others.
#[derive(Debug)]
pub struct AdamW {
    /// First moment, `[shard]`.
    first: Tensor,
    /// Second moment, `[shard]`.
    second: Tensor,
    /// The number of steps taken, which is the exponent of the bias corrections.
    steps: u64,
    /// The part of the buffer that this optimizer steps.
    shard: Shard,
    /// The stretches of the shard; true for those that decay.
    stretches: Vec<(Range<i64>, bool)>,
    fused: bool,
}

impl AdamW {
    /// Creates zero moments for all of `weights` (`[P]`, f32). `decay` lists the stretches that
    /// weight decay acts on.
    pub fn new(weights: &Tensor, decay: Vec<Range<i64>>) -> Result<Self, TchError> {
        let whole = Shard::whole(weights.size1()?);
        Self::of_shard(weights, &decay, whole)
    }

    /// Creates zero moments for a part of `weights` (`[P]`, f32). `decay` covers the whole buffer.
    pub fn of_shard(weights: &Tensor, decay: &[Range<i64>], shard: Shard) -> Result<Self, TchError> {
        let part = weights.f_narrow(0, shard.range().start, shard.len())?.f_detach()?;
        Ok(Self {
            first: part.f_zeros_like()?,
            second: part.f_zeros_like()?,
            steps: 0,
            stretches: shard.stretches(decay),
            shard,
            fused: weights.device() != Device::Cpu,
        })
    }

    /// Chooses the fused kernel or the blocks, whatever the device.
    #[cfg(test)]
    pub(crate) fn set_fused(&mut self, fused: bool) {
        self.fused = fused;
    }

    #[must_use]
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// First and second moment, each as long as the shard. Callers may read or overwrite them, but
    /// not resize them.
    pub fn moments(&self) -> (&Tensor, &Tensor) {
        (&self.first, &self.second)
    }

    /// Restores saved moments.
    pub fn restore(&mut self, first: &Tensor, second: &Tensor, steps: u64) -> Result<(), TchError> {
        self.first.f_copy_(first)?;
        self.second.f_copy_(second)?;
        self.steps = steps;
        Ok(())
    }

    /// Takes a step: `w <- w (1 - lr wd)` on the decaying stretches, then
    /// `w <- w - lr / (1 - b1^t) m / (sqrt(v / (1 - b2^t)) + eps)`, where m and v are the running
    /// means of `scale g` and of its square. Both buffers are whole, `[P]`; only the shard's
    /// elements are read and changed. The fused kernel leaves the shard's gradient scaled, as
    /// PyTorch's clipping does.
    pub fn step(&mut self, weights: &Tensor, grad: &Tensor, scale: f64, params: &OptimStep) -> Result<(), TchError> {
        let _no_grad = tch::no_grad_guard();
        if !(self.fused && self.step_fused(weights, grad, scale, params)?) {
            self.step_in_blocks(weights, grad, scale, params)?;
        }
        self.steps += 1;
        Ok(())
    }

    fn step_in_blocks(&self, weights: &Tensor, grad: &Tensor, scale: f64, params: &OptimStep) -> Result<(), TchError> {
        debug_assert_eq!(weights.kind(), Kind::Float);
        if params.weight_decay != 0.0 {
            for (range, _) in self.stretches.iter().filter(|(_, decays)| *decays) {
                let mut stretch = weights.f_narrow(0, range.start, range.end - range.start)?;
                let _ = stretch.f_mul_scalar_(1.0 - params.lr * params.weight_decay)?;
            }
        }
        let (start, length) = (self.shard.range().start, self.shard.len());
        let flat = blocks::Flat {
            weights: weights.f_narrow(0, start, length)?,
            grad: grad.f_narrow(0, start, length)?,
            first: self.first.shallow_clone(),
            second: self.second.shallow_clone(),
        };
        blocks::step(&flat, scale, self.steps + 1, params)
    }

    /// Returns `false` and changes nothing if this libtorch has no fused kernel.
    fn step_fused(&self, weights: &Tensor, grad: &Tensor, scale: f64, params: &OptimStep) -> Result<bool, TchError> {
        if !fused_adamw::is_there() {
            return Ok(false);
        }
        let offset = self.shard.range().start;
        if scale != 1.0 {
            let _ = grad.f_narrow(0, offset, self.shard.len())?.f_mul_scalar_(scale)?;
        }
        let step = Tensor::f_full([1], (self.steps + 1) as f64, (Kind::Float, weights.device()))?;
        for decays in [true, false] {
            let mut lists = Lists::default();
            for (range, _) in self.stretches.iter().filter(|(_, own)| *own == decays) {
                let part = |flat: &Tensor, offset: i64| flat.f_narrow(0, range.start - offset, range.end - range.start);
                lists.weights.push(part(weights, 0)?);
                lists.grads.push(part(grad, 0)?);
                lists.first.push(part(&self.first, offset)?);
                lists.second.push(part(&self.second, offset)?);
            }
            let numbers = Numbers {
                lr: params.lr,
                beta1: params.beta1,
                beta2: params.beta2,
                weight_decay: if decays { params.weight_decay } else { 0.0 },
                eps: params.eps,
            };
            if !lists.weights.is_empty() {
                fused_adamw::step(&lists, &step, numbers)?;
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests;
