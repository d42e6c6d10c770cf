//! Opens libraries at run time.

use std::ffi::{CStr, CString, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Opens a library for the life of the process, with its symbols visible to all others.
///
/// # Errors
/// The loader's message.
pub(crate) fn open_globally(path: &Path) -> Result<(), String> {
    let name = CString::new(path.as_os_str().as_bytes()).map_err(|error| error.to_string())?;
    // SAFETY: `name` is a C string that outlives the call. The library's initialisers register CUDA
    // with the libtorch that is loaded already (the same soname, so it is not loaded twice);
    // RTLD_GLOBAL makes their symbols visible to each other. The handle is never closed. `dlerror`
    // returns a C string that stays valid until the next call on this thread.
    unsafe {
        if !libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL).is_null() {
            return Ok(());
        }
        let error = libc::dlerror();
        let reason = if error.is_null() {
            "unknown error".into()
        } else {
            CStr::from_ptr(error).to_string_lossy()
        };
        Err(reason.into_owned())
    }
}

/// The number of the interface of dyad's CUDA library (`guarded.hpp`), or `None` if it is not open.
pub(crate) fn own_interface() -> Option<i32> {
    type Interface = unsafe extern "C" fn() -> i32;
    let found = symbol(c"dyad_cuda_interface")?;
    // SAFETY: `flash.cpp` defines the only function of this name, with this signature.
    Some(unsafe { std::mem::transmute::<*mut c_void, Interface>(found)() })
}

/// Finds a function of the process's libraries by its name.
pub(super) fn symbol(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: the name is a C string; the lookup changes nothing.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!found.is_null()).then_some(found)
}
