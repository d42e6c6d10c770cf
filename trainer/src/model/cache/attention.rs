//! Attention with the log-sum-exp of its logits, which allows a merge with attention over other
//! keys.

use tch::{Device, Kind, Tensor};

use crate::model::error::Result;

/// The implementation of attention.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// A CPU's fused kernels.
    Kernels,
    /// Products and sums, on every device. libtorch's fused attention returns its log-sum-exp only
    /// on a CPU, or only for some types and sizes. The logits stay in memory during the call.
    Plain,
}

impl Way {
    pub(in crate::model) fn of(device: Device) -> Self {
        if device == Device::Cpu {
            Self::Kernels
        } else {
            Self::Plain
        }
    }

    /// Attends with `q` (`[n, heads, queries, head_dim]`) over keys and values
    /// (`[n, heads, length, head_dim]`). A masked key has minus infinity in `mask`; each query must
    /// see at least one key. Returns the attention in the shape and type of `q`, and the
    /// log-sum-exp `[n, heads, queries]` in f32.
    pub(in crate::model) fn attend(
        self,
        q: &Tensor,
        keys: &Tensor,
        values: &Tensor,
        mask: Option<&Tensor>,
    ) -> Result<(Tensor, Tensor)> {
        match self {
            Self::Kernels => flash(q, keys, values, mask),
            Self::Plain => plain(q, keys, values, mask),
        }
    }
}

/// [`Way::attend`] on a CPU.
pub(super) fn flash(q: &Tensor, keys: &Tensor, values: &Tensor, mask: Option<&Tensor>) -> Result<(Tensor, Tensor)> {
    let attend = Tensor::f_internal_scaled_dot_product_flash_attention_for_cpu;
    Ok(attend(q, keys, values, 0.0, false, mask, None)?)
}

/// [`Way::attend`] on any device. Logits are f32: in bf16, a logit of 20 would be known only to
/// 0.06, and its key's weight to 6%.
fn plain(q: &Tensor, keys: &Tensor, values: &Tensor, mask: Option<&Tensor>) -> Result<(Tensor, Tensor)> {
    let (_, _, _, dim) = q.size4()?;
    let wide = q.f_to_kind(Kind::Float)?.f_mul_scalar((dim as f64).sqrt().recip())?;
    let keys = keys.f_to_kind(Kind::Float)?.f_transpose(-2, -1)?;
    let mut logits = wide.f_matmul(&keys)?;
    if let Some(mask) = mask {
        logits = logits.f_add(mask)?;
    }
    let sums = logits.f_logsumexp(-1i64, false)?;
    let weights = logits.f_softmax(-1, Kind::Float)?;
    let out = weights.f_to_kind(values.kind())?.f_matmul(values)?;
    Ok((out, sums))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(size: &[i64], salt: f64) -> Tensor {
        let count: i64 = size.iter().product();
        ((Tensor::arange(count, (Kind::Float, Device::Cpu)) * 0.73 + salt).sin() * 1.7).view(size)
    }

    fn gap(a: &Tensor, b: &Tensor) -> f64 {
        let apart = a.to_kind(Kind::Double) - b.to_kind(Kind::Double);
        apart.abs().max().double_value(&[])
    }

    #[test]
    fn plain_products_are_the_kernels_attention() {
        let q = values(&[3, 2, 4, 8], 0.1);
        let (keys, content) = (values(&[3, 2, 70, 8], 0.2), values(&[3, 2, 70, 8], 0.3));
        let behind =
            Tensor::arange(70, (Kind::Int64, Device::Cpu)).ge_tensor(&Tensor::from_slice(&[70i64, 1, 33]).view([3, 1]));
        let mask = Tensor::zeros([3, 70], (Kind::Float, Device::Cpu)).masked_fill(&behind, f64::NEG_INFINITY);
        let mask = mask.view([3, 1, 1, 70]);
        for mask in [None, Some(&mask)] {
            let (out, sums) = Way::Plain.attend(&q, &keys, &content, mask).unwrap();
            let (wanted, lse) = Way::Kernels.attend(&q, &keys, &content, mask).unwrap();
            assert_eq!((out.size(), sums.size()), (wanted.size(), lse.size()));
            assert!(
                gap(&out, &wanted) < 2e-6 && gap(&sums, &lse) < 1e-5,
                "{} {}",
                gap(&out, &wanted),
                gap(&sums, &lse)
            );
        }
    }

    #[test]
    fn sums_of_half_precision_are_of_full_logits() {
        let half = |size: &[i64], salt: f64| values(size, salt).to_kind(Kind::BFloat16);
        let (q, keys, content) = (
            half(&[2, 2, 3, 8], 0.1) * 4.0,
            half(&[2, 2, 9, 8], 0.2),
            half(&[2, 2, 9, 8], 0.3),
        );
        let (out, sums) = Way::Plain.attend(&q, &keys, &content, None).unwrap();
        let full = |all: &Tensor| all.to_kind(Kind::Float);
        let (wanted, lse) = Way::Kernels
            .attend(&full(&q), &full(&keys), &full(&content), None)
            .unwrap();
        assert_eq!((out.kind(), sums.kind()), (Kind::BFloat16, Kind::Float));
        assert!(gap(&sums, &lse) < 1e-4, "{}", gap(&sums, &lse));
        assert!(gap(&out, &wanted) < 3e-2, "{}", gap(&out, &wanted));
    }

    #[test]
    fn kernels_are_of_cpus() {
        assert_eq!(Way::of(Device::Cpu), Way::Kernels);
        assert_eq!(Way::of(Device::Cuda(1)), Way::Plain);
    }
}
