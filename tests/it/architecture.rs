//! The arrows between crates and the home of each heavy package, read from `cargo metadata`;
//! decisions that read a text; and the files that pages name.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use tests::decisions;
use tests::imports;
use tests::program::Program;

/// Crate -> our crates that it may name.
const ARROWS: [(&str, &[&str]); 7] = [
    ("configs", &[]),
    ("kernels", &[]),
    ("broker", &["configs"]),
    ("rollout", &["broker", "configs"]),
    ("trainer", &["broker", "configs", "kernels"]),
    ("agents", &["broker", "configs", "rollout", "trainer"]),
    ("tests", &["agents", "broker", "configs", "rollout"]),
];

/// Package -> the only crates of ours that may name it.
const HOMES: [(&str, &[&str]); 20] = [
    ("lapin", &["broker"]),
    ("redis", &["broker"]),
    ("rustls", &["broker"]),
    ("bincode", &["broker"]),
    ("tch", &["trainer"]),
    ("torch-sys", &["trainer"]),
    ("pulp", &["kernels"]),
    ("actix", &["agents"]),
    ("actix-web", &["agents"]),
    ("rusqlite", &["agents"]),
    ("reqwest", &["agents"]),
    ("prometheus-client", &["agents"]),
    ("prost", &["agents"]),
    ("zstd", &["trainer", "rollout"]),
    ("parquet", &["agents", "rollout"]),
    ("arrow-array", &["rollout"]),
    ("arrow-ipc", &["rollout"]),
    ("arrow-schema", &["rollout"]),
    ("tantivy", &["agents"]),
    ("jsonschema", &["rollout"]),
];

/// Returns the packages that each crate names, without the dependencies of its tests.
fn dependencies() -> BTreeMap<String, BTreeSet<String>> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(Program::root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    let packages = metadata["packages"].as_array().unwrap().iter();
    packages
        .map(|package| {
            let list = package["dependencies"].as_array().unwrap().iter();
            let names = list.filter(|d| d["kind"].is_null()).map(|d| text(&d["name"])).collect();
            (text(&package["name"]), names)
        })
        .collect()
}

#[test]
fn crates_depend_one_way() {
    let found = dependencies();
    let allowed: BTreeMap<&str, &[&str]> = ARROWS.into();
    assert_eq!(
        found.keys().map(String::as_str).collect::<BTreeSet<_>>(),
        allowed.keys().copied().collect()
    );
    for (name, packages) in &found {
        for ours in packages.iter().filter(|package| allowed.contains_key(package.as_str())) {
            assert!(
                allowed[name.as_str()].contains(&ours.as_str()),
                "{name} must not depend on {ours}"
            );
        }
    }
}

#[test]
fn heavy_packages_have_one_home() {
    for (name, packages) in dependencies() {
        for (package, homes) in HOMES {
            let allowed = homes.contains(&name.as_str());
            assert!(
                allowed || !packages.contains(package),
                "{package} belongs into {homes:?}, not into {name}"
            );
        }
    }
}

/// The pure crates see the protocol and the memory implementations alone.
#[test]
fn pure_crates_build_without_the_servers_clients() {
    for pure in ["rollout", "trainer"] {
        let output = Command::new(env!("CARGO"))
            .args(["tree", "-p", pure, "-e", "normal", "--offline", "--prefix", "none"])
            .current_dir(Program::root())
            .output()
            .unwrap();
        let tree = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            output.status.success() && tree.contains("broker"),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        for package in ["lapin", "redis", "rustls"] {
            assert!(
                !tree.lines().any(|line| line.starts_with(&format!("{package} v"))),
                "{pure} builds {package}"
            );
        }
    }
}

/// Prints what the loader would load for a program.
fn libraries(program: &str) -> String {
    let mut command = Command::new(program);
    let output = command.env("LD_TRACE_LOADED_OBJECTS", "1").output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// If this fails, a light command has come to call libtorch, or `UNUSED` in
/// trainer/libtorch/link.rs is incomplete: `nm -D --undefined-only` prints the symbols.
#[test]
fn program_that_users_start_is_linked_without_libtorch() {
    assert!(libraries(crate::DYAD).contains("libtorch_cpu.so"));
    let light = libraries(crate::LIGHT);
    assert!(light.contains("libc.so") && !light.contains("libtorch"), "{light}");
    assert!(!light.contains("libc10"), "{light}");
    // Where a compiler leaves more symbols of libtorch than `UNUSED` has, the linker keeps the
    // libraries. A stand-in that they see ends the program at its start.
    let symbols = Command::new("nm").args(["-D", crate::LIGHT]).output().unwrap();
    assert!(symbols.status.success() && !symbols.stdout.is_empty());
    let symbols = String::from_utf8(symbols.stdout).unwrap();
    assert!(!symbols.contains("UndefinedTensorImpl"), "{symbols}");
}

/// Only `broker::topology` spells the names of queues and exchanges.
#[test]
fn only_topology_spells_queue_names() {
    let topology = Program::root().join("broker/src/topology");
    for folder in ["agents/src", "rollout/src", "trainer/src", "configs/src", "broker/src"] {
        for file in rust_files(&Program::root().join(folder)) {
            let home = file.ends_with("broker/src/topology.rs") || file.starts_with(&topology);
            if home || file.components().any(|c| c.as_os_str() == "store") {
                continue;
            }
            let text = std::fs::read_to_string(&file).unwrap();
            let code = text.split("#[cfg(test)]").next().unwrap();
            for (number, line) in code
                .lines()
                .enumerate()
                .filter(|(_, line)| !line.trim_start().starts_with("//"))
            {
                assert!(!line.contains("\"dyad.{"), "{}:{}: {line}", file.display(), number + 1);
            }
        }
    }
}

/// Files that read the words of another library, which has no code for the case.
const OTHER_WORDS: [&str; 2] = ["rollout/src/tasks/rows/arrow.rs", "rollout/src/text/template.rs"];

#[test]
fn no_decision_reads_the_text_of_a_failure() {
    let mut of_others = BTreeSet::new();
    for crate_name in ["configs", "broker", "rollout", "trainer", "agents"] {
        let src = Program::root().join(crate_name).join("src");
        for file in imports::read(&src).files.values() {
            let found = decisions::by_text(&std::fs::read_to_string(file).unwrap());
            match OTHER_WORDS.iter().find(|other| file.ends_with(other)) {
                Some(other) if !found.is_empty() => drop(of_others.insert(*other)),
                _ => assert!(
                    found.is_empty(),
                    "{}: {found:?} reads the text of a failure: give it a variant or a FailureCode",
                    file.display()
                ),
            }
        }
    }
    assert_eq!(of_others, OTHER_WORDS.into(), "a file left the list");
}

/// A page names a file by its whole path or by the end of it.
#[test]
fn pages_name_files_that_are_there() {
    let root = Program::root();
    let folders = ["agents", "broker", "configs", "rollout", "tests", "trainer"];
    let known: Vec<PathBuf> = folders.iter().flat_map(|folder| files(&root.join(folder))).collect();
    let is_path = |text: &str| {
        let of_ours = [".rs", ".py", ".sh", ".lua", ".toml", ".md", ".yaml", ".jinja"];
        of_ours.iter().any(|end| text.ends_with(end))
            && text.chars().all(|c| c.is_ascii_alphanumeric() || "_-./".contains(c))
    };
    let mut named = 0;
    for page in [
        "README.md",
        "ARCHITECTURE.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
        "tests/README.md",
        "GUARANTEES.md",
    ] {
        let text = std::fs::read_to_string(root.join(page)).unwrap();
        for path in text.split('`').skip(1).step_by(2).filter(|text| is_path(text)) {
            named += 1;
            let is_there = root.join(path).is_file() || known.iter().any(|file| file.ends_with(path));
            assert!(is_there, "{page} names {path}, which is not there");
        }
    }
    assert!(named > 50, "{named} files are named");
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = files(folder);
    files.retain(|file| file.extension().is_some_and(|extension| extension == "rs"));
    files
}

/// Returns all files below a folder except hidden ones.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if entry.file_name().to_string_lossy().starts_with('.') {
            continue;
        }
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.push(path);
        }
    }
    found
}
