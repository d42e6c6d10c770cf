//! AdamW over lists of tensors in one kernel: `aten::_fused_adamw_`, which tch does not bind.
//!
//! It is called by its name through the stable C interface of libtorch's dispatcher (`torch/csrc/stable/c/shim.h`, since 2.10): arguments are
//! 64-bit cells in the order of the operator's schema, lists and tensors by owning handles that the call consumes. The functions are
//! looked up at run time, since older builds of libtorch lack them, and are not used of another release than this was written for.

use std::ffi::{c_char, c_void};
use std::sync::OnceLock;

use tch::{TchError, Tensor};
use torch_sys::C_tensor;

use super::library::symbol;

// Each answers 0 if all went well, but for `Version`. `AtenTensorHandle` is an `at::Tensor *`, as `C_tensor *` is.
type Call = unsafe extern "C" fn(op: *const c_char, overload: *const c_char, cells: *mut u64, version: u64) -> i32;
type Version = unsafe extern "C" fn() -> u64;
type NewList = unsafe extern "C" fn(room: usize, list: *mut *mut c_void) -> i32;
type Push = unsafe extern "C" fn(list: *mut c_void, cell: u64) -> i32;
type NewHandle = unsafe extern "C" fn(tensor: *mut C_tensor, handle: *mut *mut C_tensor) -> i32;

/// libtorch 2.11.0, which this was written for, as `torch/headeronly/version.h` packs it: a byte each for major, minor and patch from the top.
const ABI: u64 = (2 << 56) | (11 << 48);

/// Whether a libtorch of this version has the interface of [`ABI`]: major and minor are the same.
fn is_ours(version: u64) -> bool {
    version >> 48 == ABI >> 48
}

#[derive(Clone, Copy)]
struct Functions {
    call: Call,
    new_list: NewList,
    push: Push,
    new_handle: NewHandle,
}

fn functions() -> Option<Functions> {
    static FOUND: OnceLock<Option<Functions>> = OnceLock::new();
    *FOUND.get_or_init(|| {
        // SAFETY: libtorch is linked, so what is found are its functions of these names, whose signatures above are those of the headers
        // of the one libtorch that tch accepts.
        unsafe {
            let version = std::mem::transmute::<*mut c_void, Version>(symbol(c"aoti_torch_abi_version")?);
            if !is_ours(version()) {
                return None;
            }
            Some(Functions {
                call: std::mem::transmute::<*mut c_void, Call>(symbol(c"torch_call_dispatcher")?),
                new_list: std::mem::transmute::<*mut c_void, NewList>(symbol(c"torch_new_list_reserve_size")?),
                push: std::mem::transmute::<*mut c_void, Push>(symbol(c"torch_list_push_back")?),
                new_handle: std::mem::transmute::<*mut c_void, NewHandle>(symbol(c"aoti_torch_new_tensor_handle")?),
            })
        }
    })
}

/// What one call moves: as many tensors in each list, those of one place of one size, f32 and contiguous, on one device.
#[derive(Debug, Default)]
pub(crate) struct Lists {
    pub(crate) weights: Vec<Tensor>,
    pub(crate) grads: Vec<Tensor>,
    pub(crate) first: Vec<Tensor>,
    pub(crate) second: Vec<Tensor>,
}

/// The formula's numbers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Numbers {
    pub(crate) lr: f64,
    pub(crate) beta1: f64,
    pub(crate) beta2: f64,
    pub(crate) weight_decay: f64,
    pub(crate) eps: f64,
}

/// Whether this libtorch can be asked.
pub(crate) fn is_there() -> bool {
    functions().is_some()
}

/// One step of all of `lists`. `step` is the number of this step, from 1: one f32 value on their device.
pub(crate) fn step(lists: &Lists, step: &Tensor, numbers: Numbers) -> Result<(), TchError> {
    let functions = functions().ok_or_else(|| failed("this libtorch has no dispatcher that can be called by name"))?;
    let steps: Vec<Tensor> = lists.weights.iter().map(|_| step.shallow_clone()).collect();
    let float = |value: f64| value.to_bits();
    let (no, none) = (0, 0);
    let mut cells = [
        list(functions, &lists.weights)?,
        list(functions, &lists.grads)?,
        list(functions, &lists.first)?,
        list(functions, &lists.second)?,
        // max_exp_avg_sqs, of the variant that is not asked for
        list(functions, &[])?,
        list(functions, &steps)?,
        float(numbers.lr),
        float(numbers.beta1),
        float(numbers.beta2),
        float(numbers.weight_decay),
        float(numbers.eps),
        // amsgrad, maximize, grad_scale, found_inf
        no,
        no,
        none,
        none,
    ];
    // SAFETY: the names are C strings; the cells are the operator's 15 arguments in their order, and it returns nothing. The call takes the
    // lists, each of which is given to it once.
    let code = unsafe { (functions.call)(c"aten::_fused_adamw_".as_ptr(), c"".as_ptr(), cells.as_mut_ptr(), ABI) };
    match code {
        0 => Ok(()),
        _ => Err(failed("the fused AdamW step failed; libtorch said why on stderr")),
    }
}

/// An owning handle of a list of `tensors`, as a cell. Whoever gets it gives it to one call.
fn list(functions: Functions, tensors: &[Tensor]) -> Result<u64, TchError> {
    let mut made: *mut c_void = std::ptr::null_mut();
    // SAFETY: `made` is written on success only.
    if unsafe { (functions.new_list)(tensors.len(), &raw mut made) } != 0 {
        return Err(failed("no list of tensors could be made"));
    }
    for tensor in tensors {
        let mut handle: *mut C_tensor = std::ptr::null_mut();
        // SAFETY: the tensor outlives the call, which makes a second owner of what it refers to; `handle` is written on success only.
        if unsafe { (functions.new_handle)(tensor.as_ptr().cast_mut(), &raw mut handle) } != 0 {
            return Err(failed("no handle of a tensor could be made"));
        }
        // SAFETY: `made` is a list of ours, and `handle` an owner that the list takes.
        if unsafe { (functions.push)(made, handle as u64) } != 0 {
            return Err(failed("no tensor could be put into a list"));
        }
    }
    Ok(made as u64)
}

/// A list that was begun is not given back: libtorch fails here when memory is short, if ever.
fn failed(what: &str) -> TchError {
    TchError::Torch(what.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_release_is_not_called() {
        let version = |major: u64, minor: u64, patch: u64| (major << 56) | (minor << 48) | (patch << 40);
        assert!(is_ours(ABI) && is_ours(version(2, 11, 1)));
        assert!(!is_ours(version(2, 10, 0)) && !is_ours(version(2, 12, 0)) && !is_ours(version(3, 11, 0)));
    }
}
