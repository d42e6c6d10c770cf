//! Build script of the crates with binaries (`build = "../trainer/libtorch/link.rs"`). It writes
//! the path of the linked libtorch into a binary, so that a copy of it runs from any folder of this
//! machine. It keeps libtorch out of the program `dyad`, and says what a program was built from.

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

/// Parts of the repository that a program is built from.
const SOURCES: [&str; 7] = [
    "agents",
    "broker",
    "configs",
    "rollout",
    "trainer",
    "Cargo.toml",
    "Cargo.lock",
];

pub(crate) fn main() {
    println!("cargo::rerun-if-env-changed=LIBTORCH");
    if let Ok(libtorch) = std::env::var("LIBTORCH") {
        println!("cargo::rustc-link-arg=-Wl,-rpath,{libtorch}/lib");
    }
    let package = std::env::var("CARGO_PKG_NAME").unwrap_or_default();
    if package == "agents" {
        println!("cargo::rustc-env=DYAD_BUILD_COMMIT={}", commit());
        println!("cargo::rustc-env=DYAD_BUILD_LIBTORCH={}", libtorch());
    }
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

/// Returns the commit of the sources, with `+changes` if they differ from it; empty outside git.
/// DYAD_COMMIT replaces it where git is missing, as in a container. Development builds ask git for
/// nothing: each commit would build this package again.
fn commit() -> String {
    println!("cargo::rerun-if-env-changed=DYAD_COMMIT");
    match std::env::var("DYAD_COMMIT") {
        Ok(given) if !given.is_empty() => return given,
        _ => {}
    }
    if std::env::var("PROFILE").is_ok_and(|profile| profile != "release") {
        return String::new();
    }
    let Some(commit) = git(&["rev-parse", "HEAD"]) else {
        return String::new();
    };
    let references = ["HEAD", "logs/HEAD"].map(|name| git(&["rev-parse", "--git-path", name]));
    let sources = SOURCES.map(|part| Some(format!("../{part}")));
    for path in references.into_iter().chain(sources).flatten() {
        // Cargo would run this script each time for a path that is missing.
        if std::path::Path::new(&path).exists() {
            println!("cargo::rerun-if-changed={path}");
        }
    }
    let mut status = vec!["-C", "..", "status", "--porcelain", "--untracked-files=no", "--"];
    status.extend(SOURCES);
    match git(&status) {
        Some(changes) if !changes.is_empty() => format!("{commit}+changes"),
        _ => commit,
    }
}

/// Returns what git prints, or `None` if it fails.
fn git(arguments: &[&str]) -> Option<String> {
    let output = std::process::Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    output.status.success().then_some(text)
}

/// Returns the release of the linked libtorch, which the set-up records next to it; else nothing.
fn libtorch() -> String {
    let Ok(libtorch) = std::env::var("LIBTORCH") else {
        return String::new();
    };
    let release = std::fs::read_to_string(format!("{libtorch}/build-version"));
    release.unwrap_or_default().trim().to_owned()
}
