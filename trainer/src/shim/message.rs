//! Messages of failed calls into the C++ sources.

use std::ffi::{CStr, c_char, c_int};

/// The longest message that an exception leaves, in bytes.
const LONGEST: usize = 2048;

/// Makes a call that returns 0, or writes a message. Returns the message's first line.
pub(super) fn guarded(call: impl FnOnce(*mut c_char, usize) -> c_int) -> Result<(), String> {
    let mut message = [0u8; LONGEST];
    if call(message.as_mut_ptr().cast(), LONGEST) == 0 {
        return Ok(());
    }
    let text = CStr::from_bytes_until_nul(&message)
        .unwrap_or_default()
        .to_string_lossy();
    Err(text.lines().next().unwrap_or_default().to_owned())
}
