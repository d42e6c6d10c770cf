//! AdamW over flat f32 buffers, with moments that can be read and saved.

use std::ops::Range;

use broker::protocol::train::OptimStep;
use tch::{Device, Kind, TchError, Tensor};

use super::blocks;
use super::blocks::Flat;
use super::shard::Stretch;
use crate::shim::fused_adamw::{self, Lists, Numbers};

/// Elements that go through the device at once when the state is in host memory: 768 MiB of
/// weights and moments. A multiple of [`blocks::CPU_BLOCK`], so that a CPU groups the same elements
/// as without blocks.
const STAGE: i64 = 1 << 26;

/// Adam with decoupled weight decay (Loshchilov and Hutter, arXiv:1711.05101; the form of
/// `torch.optim.AdamW`).
///
/// Weights, gradient and both moments are flat buffers of equal length, an owner's own part of the
/// model. A step is one pass over contiguous memory, whatever the number of parameters. On a CPU
/// the pass works in blocks ([`blocks`]). On a GPU it uses ATen's fused kernel, with two calls a
/// step: one for all stretches that decay, one for the others.
#[derive(Debug)]
pub struct AdamW {
    /// First moment, `[n]`.
    first: Tensor,
    /// Second moment, `[n]`.
    second: Tensor,
    /// The number of steps taken, which is the exponent of the bias corrections.
    steps: u64,
    /// The stretches of the buffers. Elements in none of them do not decay either.
    stretches: Vec<Stretch>,
    fused: bool,
    /// Elements of a block of [`Self::step_staged`].
    stage: i64,
}

impl AdamW {
    /// Creates an optimizer with these moments (`[n]` each, f32, zero), for buffers that compute on
    /// `device`. `stretches` are in order.
    #[must_use]
    pub fn new(first: Tensor, second: Tensor, stretches: Vec<Stretch>, device: Device) -> Self {
        Self {
            first,
            second,
            steps: 0,
            stretches,
            fused: device != Device::Cpu,
            stage: STAGE,
        }
    }

    /// Chooses the fused kernel or the blocks, whatever the device.
    #[cfg(test)]
    pub(crate) fn set_fused(&mut self, fused: bool) {
        self.fused = fused;
    }

    #[cfg(test)]
    pub(crate) fn set_stage(&mut self, elements: i64) {
        self.stage = elements;
    }

    #[must_use]
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// First and second moment. Callers may read or overwrite them, but not resize them.
    pub fn moments(&self) -> (&Tensor, &Tensor) {
        (&self.first, &self.second)
    }

    /// Sets the number of steps taken. Call it after saved values were written to
    /// [`Self::moments`].
    pub fn set_steps(&mut self, steps: u64) {
        self.steps = steps;
    }

    /// Takes a step: `w <- w (1 - lr wd)` on the decaying stretches, then
    /// `w <- w - lr / (1 - b1^t) m / (sqrt(v / (1 - b2^t)) + eps)`, where m and v are the running
    /// means of `scale g` and of its square. Both buffers are `[n]`, on the device of the moments.
    /// The fused kernel leaves the gradient scaled, as PyTorch's clipping does.
    pub fn step(&mut self, weights: &Tensor, grad: &Tensor, scale: f64, params: &OptimStep) -> Result<(), TchError> {
        let _no_grad = tch::no_grad_guard();
        let flat = Flat {
            weights: weights.f_detach()?,
            grad: grad.shallow_clone(),
            first: self.first.shallow_clone(),
            second: self.second.shallow_clone(),
        };
        self.step_range(0, &flat, scale, params)?;
        self.steps += 1;
        Ok(())
    }

    /// The same as [`Self::step`] for weights and moments in host memory: block after block is
    /// copied to the device of `grad`, stepped there and copied back. `stepped` receives the
    /// beginning of each block and its new weights on the device.
    pub(crate) fn step_staged(
        &mut self,
        weights: &Tensor,
        grad: &Tensor,
        scale: f64,
        params: &OptimStep,
        mut stepped: impl FnMut(i64, &Tensor) -> Result<(), TchError>,
    ) -> Result<(), TchError> {
        let _no_grad = tch::no_grad_guard();
        let (total, device) = (grad.size1()?, grad.device());
        for start in (0..total).step_by(self.stage as usize) {
            let length = self.stage.min(total - start);
            let own = |tensor: &Tensor| tensor.f_detach()?.f_narrow(0, start, length);
            let staged = |tensor: &Tensor| own(tensor)?.f_to_device_(device, Kind::Float, true, true);
            let flat = Flat {
                weights: staged(weights)?,
                grad: own(grad)?,
                first: staged(&self.first)?,
                second: staged(&self.second)?,
            };
            self.step_range(start, &flat, scale, params)?;
            own(weights)?.f_copy_(&flat.weights)?;
            own(&self.first)?.f_copy_(&flat.first)?;
            own(&self.second)?.f_copy_(&flat.second)?;
            stepped(start, &flat.weights)?;
        }
        self.steps += 1;
        Ok(())
    }

    /// Steps the elements from `start` on, of which `flat` holds the values.
    fn step_range(&self, start: i64, flat: &Flat, scale: f64, params: &OptimStep) -> Result<(), TchError> {
        let stretches = within(&self.stretches, start, flat.weights.size1()?);
        if self.fused && self.fused_range(&stretches, flat, scale, params)? {
            return Ok(());
        }
        debug_assert_eq!(flat.weights.kind(), Kind::Float);
        if params.weight_decay != 0.0 {
            for (range, _) in stretches.iter().filter(|(_, decays)| *decays) {
                let mut stretch = flat.weights.f_narrow(0, range.start, range.end - range.start)?;
                let _ = stretch.f_mul_scalar_(1.0 - params.lr * params.weight_decay)?;
            }
        }
        blocks::step(flat, scale, self.steps + 1, params)
    }

    /// Returns `false` and changes nothing if this libtorch has no fused kernel.
    fn fused_range(
        &self,
        stretches: &[Stretch],
        flat: &Flat,
        scale: f64,
        params: &OptimStep,
    ) -> Result<bool, TchError> {
        if !fused_adamw::is_there() {
            return Ok(false);
        }
        if scale != 1.0 {
            let _ = flat.grad.shallow_clone().f_mul_scalar_(scale)?;
        }
        let step = Tensor::f_full([1], (self.steps + 1) as f64, (Kind::Float, flat.weights.device()))?;
        for decays in [true, false] {
            let mut lists = Lists::default();
            for (range, _) in stretches.iter().filter(|(_, own)| *own == decays) {
                let part = |tensor: &Tensor| tensor.f_narrow(0, range.start, range.end - range.start);
                lists.weights.push(part(&flat.weights)?);
                lists.grads.push(part(&flat.grad)?);
                lists.first.push(part(&flat.first)?);
                lists.second.push(part(&flat.second)?);
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

/// The stretches that lie in `length` elements from `start` on, counted from there.
fn within(stretches: &[Stretch], start: i64, length: i64) -> Vec<Stretch> {
    let cut = |range: &Range<i64>| (range.start - start).max(0)..(range.end - start).min(length);
    let cut = stretches.iter().map(|(range, decays)| (cut(range), *decays));
    cut.filter(|(range, _)| range.start < range.end).collect()
}

#[cfg(test)]
mod tests;
