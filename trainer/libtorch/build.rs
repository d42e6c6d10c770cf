//! Build script of this crate: what [`link`] does, and the C++ side of `src/shim/group.rs`.

use std::path::{Path, PathBuf};

#[path = "link.rs"]
mod link;

const SHIM: &str = "src/shim/group.cpp";
const HEADER: &str = "src/shim/guarded.hpp";
/// Headers that libtorch's own headers name and that it does not ship.
const STUBS: &str = "src/shim/gloo_stubs";

fn main() {
    link::main();
    println!("cargo::rerun-if-changed={SHIM}");
    println!("cargo::rerun-if-changed={HEADER}");
    println!("cargo::rerun-if-changed={STUBS}");
    let include = libtorch().join("include");
    cc::Build::new()
        .cpp(true)
        .std("c++17")
        .pic(true)
        // The code only calls libtorch. Optimising its headers takes longer than it can save.
        .opt_level(1)
        .define("USE_C10D_GLOO", None)
        .define("_GLIBCXX_USE_CXX11_ABI", "1")
        .include(STUBS)
        .flag("-isystem")
        .flag(include.display().to_string())
        .flag("-isystem")
        .flag(include.join("torch/csrc/api/include").display().to_string())
        .file(SHIM)
        .compile("dyad_group");
}

/// The folder of libtorch: `LIBTORCH`, else the parent of the library folder that torch-sys links.
fn libtorch() -> PathBuf {
    if let Ok(folder) = std::env::var("LIBTORCH") {
        return folder.into();
    }
    let libraries = std::env::var("DEP_TCH_LIBTORCH_LIB").unwrap_or_default();
    Path::new(&libraries)
        .parent()
        .map(Path::to_path_buf)
        .unwrap_or_default()
}
