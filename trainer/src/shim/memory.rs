//! The memory of a GPU (`memory.cpp`, in dyad's CUDA library).

use std::ffi::{c_char, c_int, c_void};

use super::library::symbol;
use super::message::guarded;

type Memory = unsafe extern "C" fn(device: c_int, bytes: *mut u64, error: *mut c_char, room: usize) -> c_int;

/// Returns bytes of a GPU: in tensors, the most so far, taken by the allocator, and all there are.
/// None if the library is not open, or the process does not use this GPU.
pub(crate) fn of_gpu(gpu: usize) -> Option<[u64; 4]> {
    let found = symbol(c"dyad_cuda_memory")?;
    // SAFETY: `memory.cpp` defines the only function of this name, with this signature.
    let memory = unsafe { std::mem::transmute::<*mut c_void, Memory>(found) };
    let (gpu, mut bytes) = (c_int::try_from(gpu).ok()?, [0; 4]);
    // SAFETY: the function writes four numbers.
    let read = guarded(|error, room| unsafe { memory(gpu, bytes.as_mut_ptr(), error, room) });
    read.is_ok().then_some(bytes)
}
