//! Build script of the crates with binaries (`build = "../trainer/libtorch/link.rs"`). It writes
//! the path of the linked libtorch into a binary, so that a copy of it runs from any folder of this
//! machine. It keeps libtorch out of the program `dyad`.

/// Packages and names of the program without libtorch.
const LIGHT: [(&str, &str); 2] = [("agents", "dyad"), ("tests", "dyad-light-under-test")];

/// Symbols of libtorch that remain in a program that calls nothing of it. The linker drops unused
/// functions, but not the exception tables of unused C++ functions, and these name some symbols.
/// Defining them lets the linker drop the libraries too. A program that calls libtorch needs more
/// symbols, so the linker keeps the libraries. `tests/it/architecture.rs` checks this.
///
/// The symbols are local to the program: where a compiler leaves more of them than these, the
/// linker keeps the libraries, and they must find their own definitions.
const UNUSED: [&str; 8] = [
    "_ZN3c1019UndefinedTensorImpl10_singletonE",
    "_ZN3c106detail23torchInternalAssertFailEPKcS2_jS2_RKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE",
    "_ZN3c106detail23torchInternalAssertFailEPKcS2_jS2_S2_",
    "_ZN5torch3jit6tracer12TracingStateD1Ev",
    "_ZNK3c1010TensorImpl15decref_pyobjectEv",
    "_ZNK3c1010TensorImpl15incref_pyobjectEv",
    "_ZNK3c106IValue12isTensorListEv",
    "_ZTIN3c105ErrorE",
];

pub(crate) fn main() {
    println!("cargo::rerun-if-env-changed=LIBTORCH");
    if let Ok(libtorch) = std::env::var("LIBTORCH") {
        println!("cargo::rustc-link-arg=-Wl,-rpath,{libtorch}/lib");
    }
    let package = std::env::var("CARGO_PKG_NAME").unwrap_or_default();
    // Packages of other workspaces use this script too.
    let here = std::path::Path::new("../trainer/libtorch/link.rs").is_file();
    for (_, light) in LIGHT.iter().filter(|(of, _)| here && *of == package) {
        let argument = |text: &str| println!("cargo::rustc-link-arg-bin={light}=-Wl,{text}");
        for symbol in UNUSED {
            argument(&format!("--defsym={symbol}=0"));
        }
        argument(&format!("--version-script={}", local_symbols()));
    }
}

/// Writes the linker's list of symbols that no library may see, and returns its path.
fn local_symbols() -> String {
    let folder = std::env::var("OUT_DIR").expect("cargo sets OUT_DIR");
    let path = format!("{folder}/local_symbols");
    std::fs::write(&path, format!("{{ local: {}; }};\n", UNUSED.join("; "))).expect("OUT_DIR can be written");
    path
}
