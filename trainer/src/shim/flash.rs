//! Flash attention over rows of different lengths (`flash.cpp`, in dyad's CUDA library).

use std::ffi::{c_char, c_int, c_void};
use std::sync::OnceLock;

use tch::{Device, TchError, Tensor};
use torch_sys::C_tensor;

use super::library::symbol;
use super::message::guarded;

type Flash = unsafe extern "C" fn(
    q: *const C_tensor,
    keys: *const C_tensor,
    values: *const C_tensor,
    ends: *const C_tensor,
    begins: *const C_tensor,
    used: *const C_tensor,
    longest: i64,
    out: *mut *mut C_tensor,
    sums: *mut *mut C_tensor,
    error: *mut c_char,
    room: usize,
) -> c_int;

type Serves = unsafe extern "C" fn(device: c_int) -> c_int;

#[derive(Clone, Copy)]
struct Functions {
    flash: Flash,
    serves: Serves,
}

fn functions() -> Option<Functions> {
    static FOUND: OnceLock<Option<Functions>> = OnceLock::new();
    *FOUND.get_or_init(|| {
        // SAFETY: `flash.cpp` defines the only functions of these names, with these signatures;
        // `device::cuda` opens no library of another interface.
        unsafe {
            Some(Functions {
                flash: std::mem::transmute::<*mut c_void, Flash>(symbol(c"dyad_flash")?),
                serves: std::mem::transmute::<*mut c_void, Serves>(symbol(c"dyad_flash_serves")?),
            })
        }
    })
}

/// Returns true if the kernels run on this device with heads of this size. The first call decides
/// if the library is open.
pub(crate) fn takes(device: Device, head_dim: usize) -> bool {
    let (Device::Cuda(gpu), Some(functions)) = (device, functions()) else {
        return false;
    };
    let gpu = c_int::try_from(gpu).unwrap_or(c_int::MAX);
    // SAFETY: the call only asks the driver.
    head_dim.is_multiple_of(8) && head_dim <= 256 && unsafe { (functions.serves)(gpu) } == 1
}

/// The keys that one query of each row attends over.
#[derive(Debug)]
pub(crate) struct Spans {
    /// 0, 1, ..., rows, in i32, as are the next two.
    pub(crate) ends: Tensor,
    /// The place of each row's first key, and one entry more, which the kernel demands.
    pub(crate) begins: Tensor,
    /// The number of keys of each row.
    pub(crate) used: Tensor,
    /// No row has more keys.
    pub(crate) longest: i64,
}

/// Attends with `q` (`[rows, heads, head_dim]`) over `keys` and `values`
/// (`[places, kv_heads, head_dim]`), all in bf16 on one GPU. Returns the attention in the shape of
/// `q`, and the log-sum-exp of the logits, `[heads, rows]` in f32.
pub(crate) fn attend(q: &Tensor, keys: &Tensor, values: &Tensor, spans: &Spans) -> Result<(Tensor, Tensor), TchError> {
    let functions = functions().ok_or_else(|| TchError::Torch("dyad's CUDA library is not open".into()))?;
    let (mut out, mut sums) = (std::ptr::null_mut(), std::ptr::null_mut());
    // SAFETY: all tensors outlive the call. The results are written on success only, and are owned
    // by the caller.
    unsafe {
        guarded(|error, room| {
            (functions.flash)(
                q.as_ptr(),
                keys.as_ptr(),
                values.as_ptr(),
                spans.ends.as_ptr(),
                spans.begins.as_ptr(),
                spans.used.as_ptr(),
                spans.longest,
                &raw mut out,
                &raw mut sums,
                error,
                room,
            )
        })
        .map_err(TchError::Torch)?;
        Ok((Tensor::from_ptr(out), Tensor::from_ptr(sums)))
    }
}
