//! AdamW over one flat f32 buffer, with moments that can be read and saved.

use std::ops::Range;

use broker::protocol::train::OptimStep;
use tch::{Device, Kind, TchError, Tensor};

/// Elements worked on at once on a CPU: the four blocks stay in the second-level cache, so that memory is read and written
/// once per step although the formula is several operations. A GPU takes the buffer whole.
const CPU_BLOCK: i64 = 1 << 16;

/// Adam with decoupled weight decay (Loshchilov and Hutter, arXiv:1711.05101; the form of `torch.optim.AdamW`).
#[derive(Debug)]
pub struct AdamW {
    /// First moment, `[P]`.
    first: Tensor,
    /// Second moment, `[P]`.
    second: Tensor,
    /// Steps taken: the exponent of the bias corrections.
    steps: u64,
    /// Stretches of the buffer that decay.
    decay: Vec<Range<i64>>,
}

impl AdamW {
    /// Zero moments for `weights` (`[P]`, f32). `decay` lists the stretches that weight decay acts on.
    pub fn new(weights: &Tensor, decay: Vec<Range<i64>>) -> Result<Self, TchError> {
        Ok(Self {
            first: weights.f_zeros_like()?.f_detach()?,
            second: weights.f_zeros_like()?.f_detach()?,
            steps: 0,
            decay,
        })
    }

    #[must_use]
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// First and second moment, each `[P]`. To be read or overwritten, not resized.
    pub fn moments(&self) -> (&Tensor, &Tensor) {
        (&self.first, &self.second)
    }

    /// Puts saved moments back.
    pub fn restore(&mut self, first: &Tensor, second: &Tensor, steps: u64) -> Result<(), TchError> {
        self.first.f_copy_(first)?;
        self.second.f_copy_(second)?;
        self.steps = steps;
        Ok(())
    }

    /// `w <- w (1 - lr wd)` on the decaying stretches, then `w <- w - lr / (1 - b1^t) m / (sqrt(v / (1 - b2^t)) + eps)`,
    /// where m and v are the running means of `scale g` and of its square.
    pub fn step(&mut self, weights: &Tensor, grad: &Tensor, scale: f64, params: &OptimStep) -> Result<(), TchError> {
        let _no_grad = tch::no_grad_guard();
        let t = i32::try_from(self.steps + 1).unwrap_or(i32::MAX);
        self.decay_weights(weights, params)?;
        let correction = Correction {
            scale,
            step_size: params.lr / (1.0 - params.beta1.powi(t)),
            root: (1.0 - params.beta2.powi(t)).sqrt(),
        };
        let total = weights.size()[0];
        let block = match weights.device() {
            Device::Cpu => CPU_BLOCK,
            _ => total.max(1),
        };
        let mut start = 0;
        while start < total {
            let length = block.min(total - start);
            let part = |tensor: &Tensor| tensor.f_narrow(0, start, length);
            let (first, second) = (part(&self.first)?, part(&self.second)?);
            step_block(part(weights)?, part(grad)?, first, second, correction, params)?;
            start += length;
        }
        self.steps += 1;
        Ok(())
    }

    fn decay_weights(&self, weights: &Tensor, params: &OptimStep) -> Result<(), TchError> {
        if params.weight_decay == 0.0 {
            return Ok(());
        }
        for range in &self.decay {
            let mut stretch = weights.f_narrow(0, range.start, range.end - range.start)?;
            let _ = stretch.f_mul_scalar_(1.0 - params.lr * params.weight_decay)?;
        }
        Ok(())
    }
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
    debug_assert_eq!(weights.kind(), Kind::Float);
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The textbook loop in f64.
    fn reference(weights: &mut [f64], grads: &[Vec<f64>], decays: &[bool], params: &OptimStep) {
        let (mut m, mut v) = (vec![0.0; weights.len()], vec![0.0; weights.len()]);
        for (t, grad) in grads.iter().enumerate() {
            for i in 0..weights.len() {
                if decays[i] {
                    weights[i] -= params.lr * params.weight_decay * weights[i];
                }
                m[i] = params.beta1 * m[i] + (1.0 - params.beta1) * grad[i];
                v[i] = params.beta2 * v[i] + (1.0 - params.beta2) * grad[i] * grad[i];
                let m_hat = m[i] / (1.0 - params.beta1.powi(t as i32 + 1));
                let v_hat: f64 = v[i] / (1.0 - params.beta2.powi(t as i32 + 1));
                weights[i] -= params.lr * m_hat / (v_hat.sqrt() + params.eps);
            }
        }
    }

    #[test]
    fn it_follows_the_textbook_over_block_borders() {
        let params = OptimStep {
            lr: 0.01,
            beta1: 0.9,
            beta2: 0.95,
            eps: 1e-8,
            weight_decay: 0.1,
            clip_norm: 0.0,
        };
        let count = CPU_BLOCK as usize + 37;
        let value = |i: usize, k: usize| (((i * 31 + k * 17) % 101) as f64 - 50.0) / 50.0;
        let grads: Vec<Vec<f64>> = (0..4).map(|k| (0..count).map(|i| value(i, k + 1)).collect()).collect();
        let mut expected: Vec<f64> = (0..count).map(|i| value(i, 0)).collect();
        let single = |values: &[f64]| Tensor::from_slice(&values.iter().map(|x| *x as f32).collect::<Vec<_>>());
        let weights = single(&expected);
        let decays: Vec<bool> = (0..count).map(|i| (10..count - 5).contains(&i)).collect();
        reference(&mut expected, &grads, &decays, &params);
        let stretch = 10..count as i64 - 5;
        let mut optimizer = AdamW::new(&weights, Vec::from([stretch])).unwrap();
        for grad in &grads {
            optimizer.step(&weights, &single(grad), 1.0, &params).unwrap();
        }
        for (got, want) in Vec::<f32>::try_from(&weights).unwrap().iter().zip(&expected) {
            assert!((f64::from(*got) - want).abs() < 2e-6, "{got} {want}");
        }
    }
}
