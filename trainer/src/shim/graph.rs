//! CUDA graphs (`graph.cpp`, in dyad's CUDA library).

use std::ffi::{c_char, c_int, c_void};
use std::ptr::NonNull;
use std::sync::OnceLock;

use tch::TchError;

use super::library::symbol;
use super::message::guarded;

type Work = unsafe extern "C" fn(data: *mut c_void) -> c_int;
type Record = unsafe extern "C" fn(
    device: c_int,
    sibling: *mut c_void,
    work: Work,
    data: *mut c_void,
    made: *mut *mut c_void,
    error: *mut c_char,
    room: usize,
) -> c_int;
type Replay = unsafe extern "C" fn(graph: *mut c_void, error: *mut c_char, room: usize) -> c_int;
type Free = unsafe extern "C" fn(graph: *mut c_void);

#[derive(Clone, Copy)]
struct Functions {
    record: Record,
    replay: Replay,
    free: Free,
}

fn functions() -> Option<Functions> {
    static FOUND: OnceLock<Option<Functions>> = OnceLock::new();
    *FOUND.get_or_init(|| {
        // SAFETY: `graph.cpp` defines the only functions of these names, with these signatures.
        unsafe {
            Some(Functions {
                record: std::mem::transmute::<*mut c_void, Record>(symbol(c"dyad_graph_record")?),
                replay: std::mem::transmute::<*mut c_void, Replay>(symbol(c"dyad_graph_replay")?),
                free: std::mem::transmute::<*mut c_void, Free>(symbol(c"dyad_graph_free")?),
            })
        }
    })
}

/// Returns true if the library is open. The first call decides.
pub(crate) fn is_there() -> bool {
    functions().is_some()
}

/// Recorded kernels. They read and write the memory that they had while they were recorded, so its
/// tensors must live as long as the graph.
pub(crate) struct Graph {
    graph: NonNull<c_void>,
    functions: Functions,
}

// SAFETY: a graph belongs to no thread.
unsafe impl Send for Graph {}

impl std::fmt::Debug for Graph {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Graph")
    }
}

impl Graph {
    /// Calls `work` twice: once to set libraries up, and once to record its kernels, which do not
    /// run then. Both calls must do the same on the GPU, and must not wait for it. Memory is shared
    /// with `sibling`; do not replay the two at the same time.
    ///
    /// # Errors
    /// The first failure of `work`, or CUDA's.
    pub(crate) fn record(
        gpu: usize,
        sibling: Option<&Self>,
        mut work: impl FnMut() -> Result<(), TchError>,
    ) -> Result<Self, TchError> {
        let functions = functions().ok_or_else(|| TchError::Torch("dyad's CUDA library is not open".into()))?;
        let mut failure = None;
        let mut call = || match work() {
            Ok(()) => 0,
            Err(error) => {
                failure.get_or_insert(error);
                1
            }
        };
        let mut made = std::ptr::null_mut();
        let recorded = with_callback(&mut call, |work, data| {
            let device = c_int::try_from(gpu).unwrap_or(c_int::MAX);
            let sibling = sibling.map_or(std::ptr::null_mut(), |graph| graph.graph.as_ptr());
            // SAFETY: `sibling` is null or a graph of this library; `data` is the closure that
            // `work` calls, and outlives the call; `made` is written on success only.
            guarded(|error, room| unsafe {
                (functions.record)(device, sibling, work, data, &raw mut made, error, room)
            })
        });
        if let Some(error) = failure {
            return Err(error);
        }
        recorded.map_err(TchError::Torch)?;
        let graph = NonNull::new(made).ok_or_else(|| TchError::Torch("no graph was made".into()))?;
        Ok(Self { graph, functions })
    }

    /// Starts the kernels, in order with the others of this thread's stream.
    ///
    /// # Errors
    /// CUDA's.
    pub(crate) fn replay(&self) -> Result<(), TchError> {
        // SAFETY: the graph lives as long as `self`.
        guarded(|error, room| unsafe { (self.functions.replay)(self.graph.as_ptr(), error, room) })
            .map_err(TchError::Torch)
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: the pointer came from `dyad_graph_record` and is freed here only.
        unsafe { (self.functions.free)(self.graph.as_ptr()) }
    }
}

/// Passes a closure to `call` as a C function and its data.
fn with_callback<F: FnMut() -> c_int, T>(work: &mut F, call: impl FnOnce(Work, *mut c_void) -> T) -> T {
    unsafe extern "C" fn run<F: FnMut() -> c_int>(data: *mut c_void) -> c_int {
        // SAFETY: `data` is the closure below, which nothing else uses during the call.
        let work = unsafe { &mut *data.cast::<F>() };
        work()
    }
    call(run::<F>, std::ptr::from_mut(work).cast())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_callback_calls_its_closure() {
        let mut calls = 0;
        let mut work = || {
            calls += 1;
            calls
        };
        // SAFETY: `data` is the closure's.
        let last = with_callback(&mut work, |work, data| unsafe { work(data) + 10 * work(data) });
        assert_eq!((last, calls), (21, 2));
    }
}
