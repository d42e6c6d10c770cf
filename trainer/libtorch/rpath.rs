//! Build script of the crates with binaries that use libtorch
//! (`build = "../trainer/libtorch/rpath.rs"`). It writes the path of the linked libtorch into the
//! binary, so that a copy of the binary runs from any folder of this machine.

pub(crate) fn main() {
    println!("cargo::rerun-if-env-changed=LIBTORCH");
    if let Ok(libtorch) = std::env::var("LIBTORCH") {
        println!("cargo::rustc-link-arg=-Wl,-rpath,{libtorch}/lib");
    }
}
