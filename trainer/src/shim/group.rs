//! c10d's groups: several processes that add and exchange tensors in step (`group.cpp`).

use std::ffi::{CString, c_char, c_int, c_void};
use std::net::TcpListener;
use std::os::fd::IntoRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::NonNull;
use std::time::Duration;

use tch::Tensor;
use torch_sys::C_tensor;

use super::library::symbol;
use super::message::guarded;

unsafe extern "C" {
    fn dyad_group_join(
        file: *const c_char,
        host: *const c_char,
        port: u16,
        listener: c_int,
        prefix: *const c_char,
        address: *const c_char,
        rank: c_int,
        world_size: c_int,
        start_ms: i64,
        timeout_ms: i64,
        group: *mut *mut c_void,
        error: *mut c_char,
        room: usize,
    ) -> c_int;
    fn dyad_group_add_gpu(
        group: *mut c_void,
        new_nccl: *mut c_void,
        interface: *const c_char,
        rank: c_int,
        world_size: c_int,
        timeout_ms: i64,
        device: c_int,
        error: *mut c_char,
        room: usize,
    ) -> c_int;
    fn dyad_group_run(
        group: *mut c_void,
        operation: c_int,
        out: *mut C_tensor,
        input: *mut C_tensor,
        root: c_int,
        timeout_ms: i64,
        error: *mut c_char,
        room: usize,
    ) -> c_int;
    fn dyad_group_leave(group: *mut c_void);
}

/// An operation of a group. The numbers are those of `group.cpp`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum Operation {
    AllReduce = 0,
    ReduceScatter = 1,
    AllGather = 2,
    Broadcast = 3,
    Barrier = 4,
}

/// The store where the ranks of a group meet.
#[derive(Debug)]
pub(crate) enum Store<'a> {
    /// A file that all ranks can write.
    File(&'a Path),
    /// A server. One rank is it, with a socket that listens at this address.
    Server {
        host: &'a str,
        port: u16,
        listener: Option<TcpListener>,
    },
}

/// The place where the ranks of a group meet.
pub(crate) struct Meeting<'a> {
    pub(crate) store: Store<'a>,
    /// Ranks with different prefixes never meet.
    pub(crate) prefix: &'a str,
    /// The address that this rank listens on.
    pub(crate) address: &'a str,
    pub(crate) rank: usize,
    pub(crate) world_size: usize,
    /// The time in which all ranks must have come.
    pub(crate) start: Duration,
    /// The time that an operation may wait for other ranks.
    pub(crate) timeout: Duration,
}

/// This process's member of a group.
pub(crate) struct Group(NonNull<c_void>);

/// NCCL's part of a group.
pub(crate) struct Gpu {
    pub(crate) index: usize,
    /// The network interface of its connections, unless the user has named one.
    pub(crate) interface: String,
    pub(crate) rank: usize,
    pub(crate) world_size: usize,
    pub(crate) timeout: Duration,
}

// SAFETY: a c10d group may be used from any thread; `Group` is not `Sync`, so from one at a time.
unsafe impl Send for Group {}

impl Group {
    /// Waits for the other ranks. The group takes tensors in host memory.
    ///
    /// # Errors
    /// The message of c10d or Gloo.
    pub(crate) fn join(meeting: Meeting<'_>) -> Result<Self, String> {
        let text = |bytes: &[u8]| CString::new(bytes).map_err(|error| error.to_string());
        let (prefix, address) = (text(meeting.prefix.as_bytes())?, text(meeting.address.as_bytes())?);
        let (file, host, port, listener) = match meeting.store {
            Store::File(file) => (Some(text(file.as_os_str().as_bytes())?), CString::default(), 0, None),
            Store::Server { host, port, listener } => (None, text(host.as_bytes())?, port, listener),
        };
        let file = file.as_ref().map_or(std::ptr::null(), |file| file.as_ptr());
        // The store closes the socket.
        let listener = listener.map_or(-1, IntoRawFd::into_raw_fd);
        let mut group: *mut c_void = std::ptr::null_mut();
        // SAFETY: the strings end with zero and outlive the call, which copies them; `file` may be
        // null. `listener` is -1 or a socket that the call takes over. `group` is written on
        // success only.
        guarded(|error, room| unsafe {
            dyad_group_join(
                file,
                host.as_ptr(),
                port,
                listener,
                prefix.as_ptr(),
                address.as_ptr(),
                number(meeting.rank),
                number(meeting.world_size),
                milliseconds(meeting.start),
                milliseconds(meeting.timeout),
                &raw mut group,
                error,
                room,
            )
        })?;
        NonNull::new(group).map(Self).ok_or_else(|| "no group was made".into())
    }

    /// Makes the group take tensors on a GPU too. All ranks make this call, or none.
    ///
    /// # Errors
    /// The message of c10d or NCCL, or dyad's CUDA library is not open.
    pub(crate) fn add_gpu(&mut self, gpu: &Gpu) -> Result<(), String> {
        let new_nccl = symbol(c"dyad_nccl_new").ok_or("libdyad_cuda.so is not open")?;
        let interface = CString::new(gpu.interface.as_bytes()).map_err(|error| error.to_string())?;
        // SAFETY: the group lives as long as `self`. `new_nccl` is `dyad_nccl_new`, with the
        // signature of `NewNccl` in group.cpp: both come from the same sources. The string ends
        // with zero and outlives the call, which copies it.
        guarded(|error, room| unsafe {
            dyad_group_add_gpu(
                self.0.as_ptr(),
                new_nccl,
                interface.as_ptr(),
                number(gpu.rank),
                number(gpu.world_size),
                milliseconds(gpu.timeout),
                number(gpu.index),
                error,
                room,
            )
        })
    }

    /// Runs one operation and waits for its end. Every rank must make the same call, with dense
    /// tensors of the same kind and size, on the CPU or all on the group's GPU. `out` is written;
    /// `input` may be a part of it.
    ///
    /// # Errors
    /// The message of c10d or Gloo. The group is of no use afterwards.
    pub(crate) fn run(
        &self,
        operation: Operation,
        out: Option<&mut Tensor>,
        input: Option<&Tensor>,
        root: usize,
        timeout: Duration,
    ) -> Result<(), String> {
        let out = out.map_or(std::ptr::null_mut(), |tensor| tensor.as_mut_ptr());
        let input = input.map_or(std::ptr::null_mut(), |tensor| tensor.as_ptr().cast_mut());
        // SAFETY: the group lives as long as `self`. Both pointers are null or tensors that outlive
        // the call, and a null one is not read: `collective::c10d` passes the tensors that the
        // operation needs. The call returns when c10d no longer uses the tensors' memory, or with
        // an error; c10d itself then keeps what it still uses. An NCCL operation may go on: it is
        // in order with the default stream, and c10d keeps its memory until its end.
        guarded(|error, room| unsafe {
            let (operation, root) = (operation as c_int, number(root));
            let timeout = milliseconds(timeout);
            dyad_group_run(self.0.as_ptr(), operation, out, input, root, timeout, error, room)
        })
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // SAFETY: the pointer came from `dyad_group_join` and is freed here only.
        unsafe { dyad_group_leave(self.0.as_ptr()) }
    }
}

fn number(value: usize) -> c_int {
    c_int::try_from(value).unwrap_or(c_int::MAX)
}

fn milliseconds(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}
