//! AdamW over lists of tensors in one kernel: `aten::_fused_adamw_`, which tch does not bind.
//!
//! The call goes by name through the stable C interface of libtorch's dispatcher
//! (`torch/csrc/stable/c/shim.h`, since 2.10). Arguments are 64-bit cells in the order of the
//! operator's schema; lists and tensors are owning handles that the call consumes. The functions
//! are looked up at run time, because older builds of libtorch do not have them. They are used only
//! with the release that this code was written for.

use std::ffi::{c_char, c_void};
use std::sync::OnceLock;

use tch::{TchError, Tensor};
use torch_sys::C_tensor;

use super::library::symbol;

// Each function except `Version` returns 0 on success. `AtenTensorHandle` is an `at::Tensor *`, as
// `C_tensor *` is.
type Call = unsafe extern "C" fn(op: *const c_char, overload: *const c_char, cells: *mut u64, version: u64) -> i32;
type Version = unsafe extern "C" fn() -> u64;
type NewList = unsafe extern "C" fn(room: usize, list: *mut *mut c_void) -> i32;
type Push = unsafe extern "C" fn(list: *mut c_void, cell: u64) -> i32;
type NewHandle = unsafe extern "C" fn(tensor: *mut C_tensor, handle: *mut *mut C_tensor) -> i32;

/// libtorch 2.11.0, for which this code was written, packed as in `torch/headeronly/version.h`: a
/// byte each for major, minor and patch from the top.
const ABI: u64 = (2 << 56) | (11 << 48);

/// Returns true if a libtorch of this version has the interface of [`ABI`]: major and minor are the
/// same.
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
        // SAFETY: libtorch is linked, so the lookups find its functions with these names. The
        // signatures above are those of the headers of the one libtorch that tch accepts.
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

/// The tensors of one call: lists of equal length. Tensors at the same place have the same size;
/// all are f32, contiguous and on one device.
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

/// Returns true if this libtorch has the kernel.
pub(crate) fn is_there() -> bool {
    functions().is_some()
}

/// Takes one step of all of `lists`. `step` is the number of this step, from 1: one f32 value on
/// their device.
pub(crate) fn step(lists: &Lists, step: &Tensor, numbers: Numbers) -> Result<(), TchError> {
    let functions = functions().ok_or_else(|| failed("this libtorch has no dispatcher for calls by name"))?;
    let steps: Vec<Tensor> = lists.weights.iter().map(|_| step.shallow_clone()).collect();
    let float = |value: f64| value.to_bits();
    let (no, none) = (0, 0);
    let mut cells = [
        list(functions, &lists.weights)?,
        list(functions, &lists.grads)?,
        list(functions, &lists.first)?,
        list(functions, &lists.second)?,
        // max_exp_avg_sqs, which only the unused variant needs
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
    // SAFETY: the names are C strings; the cells are the operator's 15 arguments in their order,
    // and it returns nothing. The call consumes the lists; each is passed to it once.
    let code = unsafe { (functions.call)(c"aten::_fused_adamw_".as_ptr(), c"".as_ptr(), cells.as_mut_ptr(), ABI) };
    match code {
        0 => Ok(()),
        _ => Err(failed("the fused AdamW step failed; see libtorch's message on stderr")),
    }
}

/// Returns an owning handle of a list of `tensors`, as a cell. The caller must pass it to exactly
/// one call.
fn list(functions: Functions, tensors: &[Tensor]) -> Result<u64, TchError> {
    let mut made: *mut c_void = std::ptr::null_mut();
    // SAFETY: `made` is written on success only.
    if unsafe { (functions.new_list)(tensors.len(), &raw mut made) } != 0 {
        return Err(failed("no list of tensors could be made"));
    }
    for tensor in tensors {
        let mut handle: *mut C_tensor = std::ptr::null_mut();
        // SAFETY: the tensor outlives the call, which adds a second owner of its data; `handle` is
        // written on success only.
        if unsafe { (functions.new_handle)(tensor.as_ptr().cast_mut(), &raw mut handle) } != 0 {
            return Err(failed("no handle of a tensor could be made"));
        }
        // SAFETY: `made` is a list created above, and the list takes over the owner `handle`.
        if unsafe { (functions.push)(made, handle as u64) } != 0 {
            return Err(failed("no tensor could be put into a list"));
        }
    }
    Ok(made as u64)
}

/// A list that was begun leaks here: libtorch fails here only when memory is short.
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
