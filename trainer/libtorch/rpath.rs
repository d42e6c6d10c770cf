//! Build script of the crates whose binaries use libtorch (`build = "../trainer/libtorch/rpath.rs"`): writes the folder
//! that libtorch was linked from into the binary, so that it runs from wherever it is copied to on this machine.

fn main() {
    println!("cargo::rerun-if-env-changed=LIBTORCH");
    if let Ok(libtorch) = std::env::var("LIBTORCH") {
        println!("cargo::rustc-link-arg=-Wl,-rpath,{libtorch}/lib");
    }
}
