//! Products of bf16 matrices with f32 sums, which GPUs compute on tensor cores.
//!
//! The output matrix is bf16, and the states that it multiplies come from a bf16 norm. Both hold
//! bf16 numbers even when they are widened to f32. The product of the bf16 operands with f32 sums
//! therefore has the same terms as the f32 product. It is about ten times as fast, and needs no f32
//! copy of the matrix.
//!
//! The gradient of the logits has more digits. It is split into two bf16 parts, which together keep
//! 16 bits of its mantissa.

use std::sync::OnceLock;

use tch::{Device, Kind, TchError, Tensor};

/// The largest accepted relative error of a product. A library that sums in bf16 has an error of
/// 1e-3 or more.
const WIDEST_ERROR: f64 = 1e-5;

/// Returns true if this device computes such products. The first call on a GPU tests it, for all
/// GPUs.
pub(crate) fn serves(device: Device) -> bool {
    static SERVES: OnceLock<bool> = OnceLock::new();
    device.is_cuda()
        && *SERVES.get_or_init(|| {
            let error = error(device);
            let serves = error.as_ref().is_ok_and(|error| *error < WIDEST_ERROR);
            tracing::debug!(serves, ?error, "bf16 products with f32 sums");
            serves
        })
}

/// Computes `x W^T` in f32. `x` is `[n, in]` in f32, with numbers that are exact in bf16. `weight`
/// is `[out, in]` in bf16. Records no gradient.
pub(crate) fn times(x: &Tensor, weight: &Tensor) -> Result<Tensor, TchError> {
    product(&x.f_to_kind(Kind::BFloat16)?, &weight.f_tr()?)
}

/// Computes `x W^T` for any f32 numbers in `x`, with 16 bits of their mantissas.
pub(crate) fn times_split(x: &Tensor, weight: &Tensor) -> Result<Tensor, TchError> {
    let (high, rest) = split(x)?;
    let weight = weight.f_tr()?;
    product(&high, &weight)?.f_add(&product(&rest, &weight)?)
}

/// Computes `sum += a^T b`, with 16 bits of the mantissas of `a`. `a` is `[n, out]` and `sum` is
/// `[out, in]`, both in f32. `b` is `[n, in]` in f32, with numbers that are exact in bf16.
pub(crate) fn add_outer(sum: &Tensor, a: &Tensor, b: &Tensor) -> Result<(), TchError> {
    let (high, rest) = split(a)?;
    let b = b.f_to_kind(Kind::BFloat16)?;
    for part in [high, rest] {
        add_product(sum, &part.f_tr()?, &b)?;
    }
    Ok(())
}

/// Returns two bf16 tensors. Their sum is `x` with 16 bits of its mantissas.
fn split(x: &Tensor) -> Result<(Tensor, Tensor), TchError> {
    let high = x.f_to_kind(Kind::BFloat16)?;
    let mut rest = high.f_to_kind(Kind::Float)?;
    // In place, since a chunk of logits is large: `-high + x` has the bits of `x - high`.
    let _ = rest.f_neg_()?;
    let _ = rest.f_add_(x)?;
    Ok((high, rest.f_to_kind(Kind::BFloat16)?))
}

/// Computes the product of two bf16 matrices in f32. libtorch has no such product on a CPU, where
/// the widened matrices give the same result.
fn product(a: &Tensor, b: &Tensor) -> Result<Tensor, TchError> {
    if a.device().is_cuda() {
        return a.f_mm_dtype(b, Kind::Float);
    }
    a.f_to_kind(Kind::Float)?.f_mm(&b.f_to_kind(Kind::Float)?)
}

/// Adds the product of two bf16 matrices to an f32 matrix in place.
fn add_product(sum: &Tensor, a: &Tensor, b: &Tensor) -> Result<(), TchError> {
    let mut sum = sum.shallow_clone();
    if sum.device().is_cuda() {
        let out = sum.shallow_clone();
        let _ = sum.f_addmm_dtype_out(&out, a, b, Kind::Float)?;
        return Ok(());
    }
    let _ = sum.f_addmm_(&a.f_to_kind(Kind::Float)?, &b.f_to_kind(Kind::Float)?)?;
    Ok(())
}

/// Returns the largest error of the three products on a device, relative to their largest value.
fn error(device: Device) -> Result<f64, TchError> {
    let _no_grad = tch::no_grad_guard();
    // Two operands with various bf16 numbers, and one with more digits.
    let values = |rows: i64, columns: i64, step: f64, kind| {
        let places = Tensor::f_arange(rows * columns, (Kind::Double, Device::Cpu))?;
        let values = places.f_mul_scalar(step)?.f_sin()?.f_view([rows, columns])?;
        values.f_to_kind(kind)
    };
    let x = values(24, 512, 0.37, Kind::BFloat16)?;
    let weight = values(40, 512, 0.71, Kind::BFloat16)?;
    let slopes = values(24, 40, 0.53, Kind::Float)?;
    let wide = |tensor: &Tensor| tensor.f_to_kind(Kind::Double);
    let there = |tensor: &Tensor| tensor.f_to_kind(Kind::Float)?.f_to_device(device);
    let narrow = weight.f_to_device(device)?;
    let sum = Tensor::f_ones([40, 512], (Kind::Float, device))?;
    add_outer(&sum, &there(&slopes)?, &there(&x)?)?;
    let pairs = [
        (times(&there(&x)?, &narrow)?, wide(&x)?.f_mm(&wide(&weight)?.f_tr()?)?),
        (
            times_split(&there(&slopes)?, &narrow.f_tr()?)?,
            wide(&slopes)?.f_mm(&wide(&weight)?)?,
        ),
        (sum, wide(&slopes)?.f_tr()?.f_mm(&wide(&x)?)?.f_add_scalar(1.0)?),
    ];
    let mut largest = 0f64;
    for (found, right) in pairs {
        let off = wide(&found.f_to_device(Device::Cpu)?)?
            .f_sub(&right)?
            .f_abs()?
            .f_max()?;
        largest = largest.max(off.f_double_value(&[])? / right.f_abs()?.f_max()?.f_double_value(&[])?);
    }
    Ok(largest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn split_products_keep_16_bits_and_whole_ones_are_f32() {
        let error = error(Device::Cpu).unwrap();
        assert!(error < WIDEST_ERROR, "{error:e}");
    }

    #[test]
    fn one_bf16_part_would_be_rejected() {
        let x = Tensor::arange(64, (Kind::Float, Device::Cpu)).sin().view([8, 8]);
        let weight = Tensor::eye(8, (Kind::BFloat16, Device::Cpu));
        let off = |found: Tensor| (found - &x).abs().max().double_value(&[]);
        assert!(off(times(&x, &weight).unwrap()) > 1e-3);
        assert!(off(times_split(&x, &weight).unwrap()) < 1e-5);
    }

    #[test]
    fn processors_keep_the_f32_copy() {
        assert!(!serves(Device::Cpu));
    }
}
