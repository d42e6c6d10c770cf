//! Products with weights, by the faster of libtorch's two libraries.
//!
//! libtorch computes f32 products with MKL. On AMD's processors MKL leaves half of their speed
//! unused, because it does not use AVX-512 there. oneDNN, in the same libtorch, does. libtorch's
//! own switch between them is global and makes attention over a cache several times slower. So this
//! module chooses product by product: on AMD's processors, after a test of oneDNN's accuracy, for
//! products that are large enough. The choice depends on the processor, the sizes and the need for
//! a gradient, never on a clock, so a repeated run has the same bits.
//!
//! With gradients, oneDNN keeps its own copies of input and output for the backward pass in
//! addition to libtorch's. A trained layer then needs about twice the memory, which
//! `micro_batch_tokens` bounds.

use std::sync::OnceLock;

use tch::{Device, Kind, TchError, Tensor};

use crate::shim::onednn;

/// Smaller products are not worth oneDNN's higher overhead.
const LEAST_ROWS: i64 = 8;
const LEAST_MULTIPLICATIONS: i64 = 1 << 20;
/// The least number of summed outer products for which they are computed separately and added. With
/// fewer, or where the sum is large and its memory is mapped again each time, libtorch adds in
/// place.
const LEAST_SUMMED: i64 = 128;
const MOST_ELEMENTS: i64 = 1 << 22;
/// With a gradient, each tensor is copied into oneDNN's own form and back.
const LEAST_WITH_GRADIENT: i64 = 1 << 23;

/// Computes `x W^T + b`: `x` is `[n, in]`, `weight` `[out, in]`, `bias` `[out]`. Gradients are
/// supported.
pub(crate) fn linear(x: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Result<Tensor, TchError> {
    let with_gradient = x.requires_grad() || weight.requires_grad();
    let least = if with_gradient {
        LEAST_WITH_GRADIENT
    } else {
        LEAST_MULTIPLICATIONS
    };
    if !pays(x, weight, least) {
        return x.f_linear(weight, bias);
    }
    let product = if with_gradient {
        x.f_to_mkldnn(None)?
            .f_mkldnn_linear(weight, None::<&Tensor>)?
            .f_to_dense(None, false)?
    } else {
        times(x, weight)?
    };
    match bias {
        Some(bias) => product.f_add(bias),
        None => Ok(product),
    }
}

/// Computes `x W^T` in f32 without a gradient. Both may be views with any strides, for example
/// transposed, for a product with `W` itself.
pub(crate) fn times(x: &Tensor, weight: &Tensor) -> Result<Tensor, TchError> {
    if pays(x, weight, LEAST_MULTIPLICATIONS)
        && let Some(product) = onednn::linear(x, weight)
    {
        return product;
    }
    x.f_matmul(&weight.f_tr()?)
}

/// Computes `sum += a^T b`: `a` is `[n, out]`, `b` `[n, in]`, `sum` `[out, in]`.
pub(crate) fn add_outer(sum: &mut Tensor, a: &Tensor, b: &Tensor) -> Result<(), TchError> {
    let (a, b) = (a.f_tr()?, b.f_tr()?);
    let small = a.size()[1] < LEAST_SUMMED || a.size()[0] * b.size()[0] > MOST_ELEMENTS;
    let _ = if small || !pays(&a, &b, LEAST_MULTIPLICATIONS) {
        sum.f_addmm_(&a, &b.f_tr()?)?
    } else if a.size()[0] >= b.size()[0] {
        // The longer side takes the place of the weight: oneDNN is faster that way.
        sum.f_add_(&times(&b, &a)?.f_tr()?)?
    } else {
        sum.f_add_(&times(&a, &b)?)?
    };
    Ok(())
}

fn pays(x: &Tensor, weight: &Tensor, least: i64) -> bool {
    let (&[rows, input], &[output, _]) = (x.size().as_slice(), weight.size().as_slice()) else {
        return false;
    };
    rows >= LEAST_ROWS && rows * input * output >= least && plain(x) && plain(weight) && onednn_serves()
}

fn plain(tensor: &Tensor) -> bool {
    tensor.kind() == Kind::Float && tensor.device() == Device::Cpu
}

/// Returns true if oneDNN computes this machine's f32 products. Tested once.
fn onednn_serves() -> bool {
    static SERVES: OnceLock<bool> = OnceLock::new();
    *SERVES.get_or_init(|| {
        let serves = is_amd() && accurate().unwrap_or(false);
        tracing::debug!(serves, "oneDNN for f32 products");
        serves
    })
}

fn is_amd() -> bool {
    let cpus = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    cfg!(target_arch = "x86_64")
        && cpus
            .lines()
            .any(|line| line.starts_with("vendor_id") && line.ends_with("AuthenticAMD"))
}

/// The largest accepted relative error of an f32 product. Some libraries compute f32 in fewer bits
/// (TF32, bf16), with errors of 1e-3 and more.
const WIDEST_ERROR: f64 = 1e-5;

/// Compares products and gradients of both libraries with those in f64.
fn accurate() -> Result<bool, TchError> {
    let values = |rows: i64, columns: i64, step: f64| {
        let places = Tensor::f_arange(rows * columns, (Kind::Double, Device::Cpu))?;
        places
            .f_mul_scalar(step)?
            .f_sin()?
            .f_view([rows, columns])?
            .f_to_kind(Kind::Float)
    };
    let near = |a: &Tensor, b: &Tensor| -> Result<bool, TchError> {
        let distance = a.f_to_kind(Kind::Double)?.f_sub(b)?.f_norm()?.f_div(&b.f_norm()?)?;
        Ok(distance.f_double_value(&[])? < WIDEST_ERROR)
    };
    let _no_grad = tch::no_grad_guard();
    let (x, weight) = (values(33, 160, 0.7)?, values(96, 160, 1.3)?);
    let exact = x
        .f_to_kind(Kind::Double)?
        .f_matmul(&weight.f_to_kind(Kind::Double)?.f_tr()?)?;
    let Some(direct) = onednn::linear(&x, &weight) else {
        return Ok(false);
    };
    let copied = x
        .f_to_mkldnn(None)?
        .f_mkldnn_linear(&weight, None::<&Tensor>)?
        .f_to_dense(None, false)?;
    Ok(near(&direct?, &exact)? && near(&copied, &exact)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn normal(rows: i64, columns: i64, stream: u64) -> Tensor {
        let values: Vec<f32> = (0..(rows * columns) as u64 / 2)
            .flat_map(|i| crate::rng::normal_pair(7, stream, i))
            .map(|x| x as f32)
            .collect();
        Tensor::from_slice(&values).view([rows, columns])
    }

    fn error(ours: &Tensor, exact: &Tensor) -> f64 {
        let exact = exact.to_kind(Kind::Double);
        ((ours.to_kind(Kind::Double) - &exact).norm() / exact.norm()).double_value(&[])
    }

    /// Both sides of every threshold, with the library that this machine uses.
    #[test]
    fn products_are_those_of_f64() {
        for (rows, input, output) in [(3, 64, 64), (40, 256, 512), (40, 512, 256), (300, 256, 384)] {
            let (x, weight) = (normal(rows, input, 1), normal(output, input, 2));
            let (wide_x, wide_weight) = (x.to_kind(Kind::Double), weight.to_kind(Kind::Double));
            let exact = wide_x.matmul(&wide_weight.tr());
            assert!(error(&times(&x, &weight).unwrap(), &exact) < 1e-6);
            let turned = weight.tr().contiguous();
            assert!(error(&times(&x, &turned.tr()).unwrap(), &exact) < 1e-6);
            let bias = normal(2, output, 3).get(0);
            let with_bias = &exact + bias.to_kind(Kind::Double);
            assert!(error(&linear(&x, &weight, Some(&bias)).unwrap(), &with_bias) < 1e-6);
            let mut sum = Tensor::ones([output, input], (Kind::Float, Device::Cpu));
            let upstream = normal(rows, output, 4);
            add_outer(&mut sum, &upstream, &x).unwrap();
            let outer = upstream.to_kind(Kind::Double).tr().matmul(&wide_x) + 1.0;
            assert!(error(&sum, &outer) < 1e-6);
        }
    }

    #[test]
    fn gradients_are_those_of_f64() {
        for (rows, input, output) in [(3, 64, 64), (300, 256, 384)] {
            let [x, weight, upstream] = [
                normal(rows, input, 1),
                normal(output, input, 2),
                normal(rows, output, 4),
            ];
            let bias = normal(2, output, 3).get(0);
            let run = |kind: Kind| {
                let leaf = |t: &Tensor| t.to_kind(kind).detach().copy().set_requires_grad(true);
                let leaves = [leaf(&x), leaf(&weight), leaf(&bias)];
                let y = if kind == Kind::Float {
                    linear(&leaves[0], &leaves[1], Some(&leaves[2])).unwrap()
                } else {
                    leaves[0].linear(&leaves[1], Some(&leaves[2]))
                };
                let scalar = (y * upstream.to_kind(kind)).sum(kind);
                Tensor::run_backward(&[scalar], &leaves.iter().collect::<Vec<_>>(), false, false)
            };
            for (ours, exact) in run(Kind::Float).iter().zip(run(Kind::Double)) {
                assert!(error(ours, &exact) < 1e-6);
            }
        }
    }
}
