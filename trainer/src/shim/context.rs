//! Switches of libtorch's global context that tch does not bind.

use std::ffi::c_void;

use super::library::symbol;

// Members of `at::Context` (`ATen/Context.h`) under their Itanium names: the object is the first
// argument.
type Global = unsafe extern "C" fn() -> *mut c_void;
type SetBool = unsafe extern "C" fn(context: *mut c_void, on: bool);

/// Turns off cuDNN's attention. libtorch 2.11 prefers it on an H100 and builds a plan for each new
/// shape: 0.4 s were measured for one, and each step of decoding has a new shape. Other fused
/// kernels remain. Returns false if this libtorch has no such switch.
pub(crate) fn turn_off_cudnn_attention() -> bool {
    set_cudnn_attention(false)
}

fn set_cudnn_attention(on: bool) -> bool {
    let (Some(global), Some(set)) = (
        symbol(c"_ZN2at13globalContextEv"),
        symbol(c"_ZN2at7Context14setSDPUseCuDNNEb"),
    ) else {
        return false;
    };
    // SAFETY: libtorch is linked, so the lookups found its functions with these names, of the
    // header of the one libtorch that tch accepts. `globalContext` returns a static object. The
    // setter writes a bool that only attention on a GPU reads, and no tensor is on a GPU before the
    // library is open.
    unsafe {
        let global = std::mem::transmute::<*mut c_void, Global>(global);
        let set = std::mem::transmute::<*mut c_void, SetBool>(set);
        set(global(), on);
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    type GetBool = unsafe extern "C" fn(context: *mut c_void) -> bool;

    fn is_on() -> bool {
        let (global, get) = (
            symbol(c"_ZN2at13globalContextEv").unwrap(),
            symbol(c"_ZNK2at7Context19userEnabledCuDNNSDPEv").unwrap(),
        );
        // SAFETY: as above; the getter only reads.
        unsafe {
            let global = std::mem::transmute::<*mut c_void, Global>(global);
            std::mem::transmute::<*mut c_void, GetBool>(get)(global())
        }
    }

    #[test]
    fn cudnn_attention_is_off_after_the_call() {
        assert!(tch::get_num_threads() > 0, "keeps libtorch linked");
        assert!(set_cudnn_attention(true) && is_on());
        assert!(turn_off_cudnn_attention());
        assert!(!is_on());
    }
}
