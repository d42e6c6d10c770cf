//! c10d's Gloo group: several processes that add and exchange tensors in step (`group.cpp`).

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::NonNull;
use std::time::Duration;

use tch::Tensor;
use torch_sys::C_tensor;

/// The longest message that an exception leaves, in bytes.
const MESSAGE: usize = 2048;

unsafe extern "C" {
    fn dyad_group_join(
        file: *const c_char,
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

/// The place where the ranks of a group meet.
pub(crate) struct Meeting<'a> {
    /// The store: a file that all ranks can write.
    pub(crate) file: &'a Path,
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

// SAFETY: a c10d group may be used from any thread; `Group` is not `Sync`, so from one at a time.
unsafe impl Send for Group {}

impl Group {
    /// Waits for the other ranks.
    ///
    /// # Errors
    /// The message of c10d or Gloo.
    pub(crate) fn join(meeting: &Meeting<'_>) -> Result<Self, String> {
        let text = |bytes: &[u8]| CString::new(bytes).map_err(|error| error.to_string());
        let file = text(meeting.file.as_os_str().as_bytes())?;
        let (prefix, address) = (text(meeting.prefix.as_bytes())?, text(meeting.address.as_bytes())?);
        let mut group: *mut c_void = std::ptr::null_mut();
        // SAFETY: the three strings end with zero and outlive the call, which copies them. `group`
        // is written on success only.
        guarded(|error, room| unsafe {
            dyad_group_join(
                file.as_ptr(),
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

    /// Runs one operation and waits for its end. Every rank must make the same call, with dense
    /// tensors of the same kind and size on the CPU. `out` is written; `input` may be a part of it.
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
        // the call, and a null one is not read: `collective::gloo` passes the tensors that the
        // operation needs. The call returns when c10d no longer uses the tensors' memory, or with
        // an error; c10d itself then keeps what it still uses.
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

/// Makes a call that returns 0, or writes a message. Returns the message's first line.
fn guarded(call: impl FnOnce(*mut c_char, usize) -> c_int) -> Result<(), String> {
    let mut message = [0u8; MESSAGE];
    if call(message.as_mut_ptr().cast(), MESSAGE) == 0 {
        return Ok(());
    }
    let text = CStr::from_bytes_until_nul(&message)
        .unwrap_or_default()
        .to_string_lossy();
    Err(text.lines().next().unwrap_or_default().to_owned())
}
