//! oneDNN's linear layer on dense tensors: `mkldnn::_linear_pointwise`, which ATen's own functions,
//! and therefore tch, do not offer.
//!
//! libtorch exports it with a C interface for compiled models
//! (`torch/csrc/inductor/aoti_torch/c/shim_cpu.h`). It is looked up at run time, because builds of
//! libtorch without oneDNN do not have it.

use std::ffi::{c_char, c_void};
use std::sync::OnceLock;

use tch::{TchError, Tensor};
use torch_sys::C_tensor;

use super::library::symbol;

/// `AtenTensorHandle` is an `at::Tensor *`, as `C_tensor *` is. Returns 0 on success.
type LinearPointwise = unsafe extern "C" fn(
    x: *mut C_tensor,
    weight: *mut C_tensor,
    bias: *mut *mut C_tensor,
    attr: *const c_char,
    scalars: *const *const f64,
    scalars_len: i64,
    algorithm: *const *const c_char,
    out: *mut *mut C_tensor,
) -> i32;

fn function() -> Option<LinearPointwise> {
    static FOUND: OnceLock<Option<LinearPointwise>> = OnceLock::new();
    *FOUND.get_or_init(|| {
        // SAFETY: libtorch is linked, so the lookup finds its function with this name. The
        // signature above is that of the header of the one libtorch that tch accepts.
        unsafe {
            symbol(c"aoti_torch_cpu__linear_pointwise")
                .map(|found| std::mem::transmute::<*mut c_void, LinearPointwise>(found))
        }
    })
}

/// Computes `x W^T`: `x` is `[n, in]`, `weight` `[out, in]`, f32 on the CPU, with any strides
/// except 0. Records no gradient. Returns `None` if this libtorch has no oneDNN.
pub(crate) fn linear(x: &Tensor, weight: &Tensor) -> Option<Result<Tensor, TchError>> {
    let call = function()?;
    let mut out: *mut C_tensor = std::ptr::null_mut();
    // SAFETY: both handles are tensors that outlive the call, which only reads them. There is no
    // bias, no scalar and no algorithm, for which the header requires null and 0. On success `out`
    // is a new tensor that this code owns; on failure it is not touched.
    let code = unsafe {
        call(
            x.as_ptr().cast_mut(),
            weight.as_ptr().cast_mut(),
            std::ptr::null_mut(),
            c"none".as_ptr(),
            std::ptr::null(),
            0,
            std::ptr::null(),
            &raw mut out,
        )
    };
    if code != 0 || out.is_null() {
        let sizes = (x.size(), weight.size());
        return Some(Err(TchError::Torch(format!(
            "oneDNN's linear layer failed on {sizes:?}"
        ))));
    }
    // SAFETY: this code owns `out`, which the new `Tensor` frees.
    Some(Ok(unsafe { Tensor::from_ptr(out) }))
}
