//! The output matrix and the loss in one pass, in chunks, without a graph through the vocabulary.
//!
//! For a token with logits `z = W h / T`, `p = softmax(z)`, target `y` and entropy
//! `H = -sum p log p`:
//!
//! ```text
//! d log p_y / d z = onehot(y) - p          d H / d z = -p (log p + H)
//! ```
//!
//! A loss with derivatives `g = dL/d log p_y` and `e = dL/dH` therefore has
//! `dL/dz = g onehot(y) - p (g + e (log p + H))`. From it follow `dL/dh = W^T dL/dz / T` and
//! `dL/dW = sum dL/dz h^T / T`. Only one chunk of logits exists at a time, which bounds the memory
//! of a large vocabulary.

use tch::{Device, Kind, TchError, Tensor};

use crate::bf16_product;
use crate::linear::{add_outer, times};

/// The best number of elements in one chunk of logits on a device.
///
/// A CPU gets 16 MiB in f32: larger blocks are mapped again each time, and their page faults cost
/// more than the arithmetic (512 tokens x 32,000 words: 244 ms against 805 ms). A GPU gets 1 GiB:
/// each chunk reads the matrix and reads and writes its gradient, 5 GB for an 8B model.
#[must_use]
pub fn chunk_elements(device: Device) -> i64 {
    match device {
        Device::Cpu => 1 << 22,
        _ => 1 << 28,
    }
}

/// The largest number of tensors of a chunk's size, in f32, that exist at once: log-probs,
/// probabilities and their product.
pub const CHUNK_TENSORS: u64 = 3;

/// The tokens of the loss.
#[derive(Debug)]
pub struct HeadInput<'a> {
    /// `[N, hidden]`, the states that predict the tokens. No gradient is recorded through them.
    pub hidden: &'a Tensor,
    /// `[vocab, hidden]`, in f32. It may be bf16 if all numbers in `hidden` are exact in bf16.
    pub matrix: &'a Tensor,
    /// The low-rank change of the matrix, if any.
    pub adapter: Option<HeadAdapter<'a>>,
    /// The drawn tokens, each below `vocab`; N of them.
    pub targets: &'a [i64],
    /// Divisors of the logits; N of them, each above 0.
    pub temperatures: &'a [f32],
    /// The largest number of logits that exist at once, but at least one row. Use
    /// [`chunk_elements`].
    pub chunk_elements: i64,
}

/// A low-rank change of the output matrix: `scale B A`.
#[derive(Debug, Clone, Copy)]
pub struct HeadAdapter<'a> {
    /// `[rank, hidden]`
    pub a: &'a Tensor,
    /// `[vocab, rank]`
    pub b: &'a Tensor,
    pub scale: f64,
}

/// The place where the head's gradient accumulates.
#[derive(Debug)]
pub enum HeadGrad<'a> {
    /// `[vocab, hidden]`
    Matrix(&'a mut Tensor),
    /// The gradients of [`HeadAdapter::a`] and [`HeadAdapter::b`].
    Adapter { d_a: &'a mut Tensor, d_b: &'a mut Tensor },
    /// The head is not trained.
    Frozen,
}

/// The derivatives of the whole loss by one token's log-prob and entropy, weights included.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Slope {
    pub d_logprob: f64,
    pub d_entropy: f64,
}

/// Log-prob and entropy of every token, in nats.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HeadValues {
    pub logprobs: Vec<f32>,
    pub entropies: Vec<f32>,
}

/// Computes only the log-prob and entropy of every token.
pub fn values(input: &HeadInput<'_>) -> Result<HeadValues, TchError> {
    let mut all = HeadValues::default();
    for_chunks(input, |chunk| {
        let (logprobs, entropies) = chunk.host_values()?;
        all.logprobs.extend(logprobs);
        all.entropies.extend(entropies);
        Ok(())
    })?;
    Ok(all)
}

/// Computes the gradients of a loss that `slope(n, logprob, entropy)` describes token by token. It
/// is called once for each token, in order.
///
/// Adds the head's gradient to `grad` and returns the gradient of the hidden states
/// (`[N, hidden]`).
pub fn gradients(
    input: &HeadInput<'_>,
    mut grad: HeadGrad<'_>,
    mut slope: impl FnMut(usize, f32, f32) -> Slope,
) -> Result<Tensor, TchError> {
    let mut d_hidden = Vec::new();
    let matrix = input.matrix.f_detach()?;
    let narrow = matrix.kind() == Kind::BFloat16;
    for_chunks(input, |chunk| {
        let (logprobs, entropies) = chunk.host_values()?;
        let slopes: Vec<Slope> = (0..logprobs.len())
            .map(|i| slope(chunk.start + i, logprobs[i], entropies[i]))
            .collect();
        let hidden = chunk.hidden.shallow_clone();
        let d_logits = chunk.into_d_logits(&slopes, &entropies)?;
        let mut d_chunk = match narrow {
            true => bf16_product::times_split(&d_logits, &matrix.f_tr()?)?,
            false => times(&d_logits, &matrix.f_tr()?)?,
        };
        let mut d_low = None;
        if let Some(HeadAdapter { a, b, scale }) = input.adapter {
            let low = d_logits.f_matmul(b)?.f_mul_scalar(scale)?;
            let _ = d_chunk.f_addmm_(&low, a)?;
            d_low = Some((low, hidden.f_matmul(&a.f_tr()?)?.f_mul_scalar(scale)?));
        }
        d_hidden.push(d_chunk);
        match (&mut grad, d_low) {
            (HeadGrad::Matrix(d_matrix), _) if narrow => bf16_product::add_outer(d_matrix, &d_logits, &hidden)?,
            (HeadGrad::Matrix(d_matrix), _) => add_outer(d_matrix, &d_logits, &hidden)?,
            (HeadGrad::Adapter { d_a, d_b }, Some((low, up))) => {
                let _ = d_a.f_addmm_(&low.f_tr()?, &hidden)?;
                let _ = d_b.f_addmm_(&d_logits.f_tr()?, &up)?;
            }
            (HeadGrad::Adapter { .. }, None) => return Err(TchError::Torch("the head has no adapter".into())),
            (HeadGrad::Frozen, _) => {}
        }
        Ok(())
    })?;
    if d_hidden.len() == 1 {
        return d_hidden.pop().ok_or_else(|| TchError::Torch("no chunk".into()));
    }
    Tensor::f_cat(&d_hidden, 0)
}

/// One chunk's forward values.
struct Chunk<'a> {
    start: usize,
    hidden: Tensor,
    targets: Tensor,
    temperatures: &'a [f32],
    /// `[n, vocab]`
    logprobs: Tensor,
    probs: Tensor,
}

fn for_chunks(input: &HeadInput<'_>, mut visit: impl FnMut(Chunk<'_>) -> Result<(), TchError>) -> Result<(), TchError> {
    let _no_grad = tch::no_grad_guard();
    let vocab = input.matrix.size()[0];
    let total = input.targets.len();
    let rows = usize::try_from((input.chunk_elements / vocab.max(1)).max(1)).unwrap_or(1);
    let device = input.hidden.device();
    let hidden = input.hidden.f_detach()?;
    let matrix = input.matrix.f_detach()?;
    for start in (0..total).step_by(rows) {
        let count = rows.min(total - start);
        let hidden = hidden.f_narrow(0, start as i64, count as i64)?;
        let temperatures = &input.temperatures[start..start + count];
        let mut logits = match matrix.kind() {
            Kind::BFloat16 => bf16_product::times(&hidden, &matrix)?,
            _ => times(&hidden, &matrix)?,
        };
        if let Some(HeadAdapter { a, b, scale }) = input.adapter {
            let low = hidden.f_matmul(&a.f_tr()?)?.f_mul_scalar(scale)?;
            let _ = logits.f_addmm_(&low, &b.f_tr()?)?;
        }
        if temperatures.iter().any(|t| *t != 1.0) {
            let divisors = Tensor::f_from_slice(temperatures)?.f_to_device(device)?;
            let _ = logits.f_div_(&divisors.f_unsqueeze(1)?)?;
        }
        let logprobs = logits.f_log_softmax(-1, Kind::Float)?;
        drop(logits);
        let probs = logprobs.f_exp()?;
        let targets = Tensor::f_from_slice(&input.targets[start..start + count])?
            .f_to_device(device)?
            .f_unsqueeze(1)?;
        visit(Chunk {
            start,
            hidden,
            targets,
            temperatures,
            logprobs,
            probs,
        })?;
    }
    Ok(())
}

impl Chunk<'_> {
    fn host_values(&self) -> Result<(Vec<f32>, Vec<f32>), TchError> {
        let picked = self.logprobs.f_gather(1, &self.targets, false)?.f_squeeze_dim(1)?;
        let entropy = self
            .probs
            .f_mul(&self.logprobs)?
            .f_sum_dim_intlist(&[-1i64][..], false, Kind::Float)?
            .f_neg()?;
        Ok((host(&picked)?, host(&entropy)?))
    }

    /// `[n, vocab]`: the formula at the top of this file, divided by the temperature. It takes the
    /// place of the chunk's values.
    fn into_d_logits(mut self, slopes: &[Slope], entropies: &[f32]) -> Result<Tensor, TchError> {
        let device = self.probs.device();
        let column = |values: Vec<f32>| Tensor::f_from_slice(&values)?.f_to_device(device)?.f_unsqueeze(1);
        let scaled = |i: usize, value: f64| (value / f64::from(self.temperatures[i])) as f32;
        let each = |f: &dyn Fn(usize, &Slope) -> f64| -> Vec<f32> {
            slopes.iter().enumerate().map(|(i, s)| scaled(i, f(i, s))).collect()
        };
        let constant = column(each(&|i, s| -s.d_logprob - s.d_entropy * f64::from(entropies[i])))?;
        let mut d_logits = if slopes.iter().any(|s| s.d_entropy != 0.0) {
            let per_logprob = column(each(&|_, s| -s.d_entropy))?;
            let _ = self.logprobs.f_mul_(&per_logprob)?;
            let _ = self.logprobs.f_add_(&constant)?;
            self.logprobs.f_mul_(&self.probs)?
        } else {
            self.probs.f_mul_(&constant)?
        };
        let at_target = column(each(&|_, s| s.d_logprob))?;
        d_logits.f_scatter_add_(1, &self.targets, &at_target)
    }
}

fn host(tensor: &Tensor) -> Result<Vec<f32>, TchError> {
    Vec::<f32>::try_from(tensor.f_contiguous()?)
}

#[cfg(test)]
mod tests;
