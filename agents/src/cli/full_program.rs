//! Finds the full program and a libtorch for it, and becomes that program.
//!
//! The full program stands in the launcher's folder (repository, container) or in the package
//! `dyad` of the Python environment around it (wheel). In the first case it finds libtorch through
//! its own run path. In the second case its run path leads to the package `torch` in the same
//! folder of packages.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::base::fault::Usage;

/// The file name of the full program.
const FULL: &str = "dyad-full";
/// Environment variable with the path of the program that became the full program.
const LAUNCHER: &str = "DYAD_LAUNCHER";
/// Options of libtorch's allocator on GPUs. Batches differ in length, and segments of fixed size
/// would be left with gaps that fit none of them.
const ALLOCATOR: &str = "PYTORCH_ALLOC_CONF";
/// The releases of torch with the interface that dyad was compiled for.
const SERIES: &str = "2.11.";
const INSTALL: &str = "install it where dyad is installed: pip install torch==2.11.0";
/// Prints the file of the package torch without importing it.
const ASK: &str = "import importlib.util as u; print(u.find_spec('torch').origin)";

/// Becomes the full program, with the arguments of this process.
///
/// # Errors
/// Fails if the full program or its libtorch is missing, or if the program cannot be started.
pub fn exec() -> anyhow::Result<()> {
    let own = std::env::current_exe()?;
    let folder = own.parent().unwrap_or(Path::new("/"));
    let mut command = command(folder)?;
    let mut args = std::env::args_os();
    // Usage lines show the name by which the user called the launcher.
    command.arg0(args.next().unwrap_or_else(|| "dyad".into())).args(args);
    command.env(LAUNCHER, &own);
    command.env(ALLOCATOR, allocator(std::env::var_os(ALLOCATOR)));
    let error = command.exec();
    Err(anyhow::Error::from(error).context(format!("cannot start {}", command.get_program().display())))
}

/// Returns the allocator's options: the user's, if there are any.
fn allocator(given: Option<OsString>) -> OsString {
    given.unwrap_or_else(|| "expandable_segments:True".into())
}

/// Returns the program for commands that compute nothing: the launcher of this process. A full
/// program that was started without one serves them too.
///
/// # Errors
/// The path of this program is not known.
pub fn light() -> std::io::Result<PathBuf> {
    let launcher = std::env::var_os(LAUNCHER).map(PathBuf::from);
    let launcher = launcher.filter(|path| path.is_file());
    launcher.map_or_else(std::env::current_exe, Ok)
}

/// Returns the command that starts the full program for a launcher in `folder`.
fn command(folder: &Path) -> Result<Command, Usage> {
    if folder.join(FULL).is_file() {
        return Ok(Command::new(folder.join(FULL)));
    }
    let package = packages(folder)
        .into_iter()
        .find(|package| package.join(FULL).is_file());
    let package = package.ok_or_else(|| {
        Usage::new(format!("{FULL} is missing in {}", folder.display()))
            .hint("`make build` builds both programs; a wheel brings both: install it again")
    })?;
    let mut command = Command::new(package.join(FULL));
    let near = package.with_file_name("torch");
    if near.join("lib").is_dir() {
        check(&near)?;
    } else {
        // An environment that uses the packages of the system's Python.
        let torch = ask(folder).ok_or_else(|| {
            Usage::new(format!("torch is missing in {}", package.with_file_name("").display())).hint(INSTALL)
        })?;
        check(&torch)?;
        command.env("LD_LIBRARY_PATH", before(&torch.join("lib")));
    }
    Ok(command)
}

/// Returns the package `dyad` of each Python in the environment with the programs in `folder`. The
/// newest Python comes first.
pub(crate) fn packages(folder: &Path) -> Vec<PathBuf> {
    let lib = folder.with_file_name("lib");
    let found = std::fs::read_dir(&lib).into_iter().flatten().flatten();
    let mut pythons: Vec<(u32, OsString)> = found
        .filter_map(|entry| {
            let name = entry.file_name();
            let minor = name.to_str()?.strip_prefix("python3.")?.parse().ok()?;
            Some((minor, name))
        })
        .collect();
    pythons.sort_by(|a, b| b.cmp(a));
    let kinds = ["site-packages", "dist-packages"];
    pythons
        .iter()
        .flat_map(|(_, python)| kinds.map(|kind| lib.join(python).join(kind).join("dyad")))
        .collect()
}

/// Asks the Python of the environment for its package `torch`.
fn ask(folder: &Path) -> Option<PathBuf> {
    let near = folder.join("python3");
    let python = if near.is_file() { near } else { "python3".into() };
    let output = Command::new(python).args(["-c", ASK]).output().ok()?;
    let origin = String::from_utf8(output.stdout).ok()?;
    let torch = Path::new(origin.trim_end()).parent()?.to_owned();
    torch.join("lib").is_dir().then_some(torch)
}

/// Checks the version of a package `torch`.
fn check(torch: &Path) -> Result<(), Usage> {
    let version = torch_version(torch).unwrap_or_else(|| "of an unknown release".to_owned());
    if version.starts_with(SERIES) {
        return Ok(());
    }
    let message = format!("torch in {} is {version}; dyad needs 2.11", torch.display());
    Err(Usage::new(message).hint(INSTALL))
}

/// Returns the version in `version.py` of a package `torch`.
#[must_use]
pub fn torch_version(torch: &Path) -> Option<String> {
    let text = std::fs::read_to_string(torch.join("version.py")).ok()?;
    let version = text.lines().find_map(|line| line.strip_prefix("__version__ = "))?;
    Some(version.trim_matches(['\'', '"']).to_owned())
}

/// Returns the value of LD_LIBRARY_PATH with `lib` before the folders that it has now.
fn before(lib: &Path) -> OsString {
    let mut value = lib.as_os_str().to_owned();
    if let Some(now) = std::env::var_os("LD_LIBRARY_PATH").filter(|now| !now.is_empty()) {
        value.push(":");
        value.push(now);
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes an environment with the package `dyad`, and `torch` of this version.
    fn environment(torch: Option<&str>) -> tempfile::TempDir {
        let home = tempfile::tempdir().unwrap();
        let packages = home.path().join("lib/python3.11/site-packages");
        for folder in ["bin".into(), packages.join("dyad")] {
            std::fs::create_dir_all(home.path().join(folder)).unwrap();
        }
        std::fs::write(packages.join("dyad").join(FULL), "").unwrap();
        if let Some(version) = torch {
            std::fs::create_dir_all(packages.join("torch/lib")).unwrap();
            let text = format!("from x import y\n__version__ = '{version}'\n");
            std::fs::write(packages.join("torch/version.py"), text).unwrap();
        }
        home
    }

    /// A Python that knows no torch.
    fn python_without_torch(home: &Path) {
        use std::os::unix::fs::PermissionsExt;
        let python = home.join("bin/python3");
        std::fs::write(&python, "#!/bin/sh\nexit 1\n").unwrap();
        std::fs::set_permissions(python, PermissionsExt::from_mode(0o755)).unwrap();
    }

    #[test]
    fn full_program_in_the_same_folder_is_first() {
        let home = environment(None);
        std::fs::write(home.path().join("bin").join(FULL), "").unwrap();
        let command = command(&home.path().join("bin")).unwrap();
        assert_eq!(command.get_program(), home.path().join("bin").join(FULL));
    }

    #[test]
    fn torch_next_to_the_package_needs_no_variable() {
        let home = environment(Some("2.11.0+cu130"));
        let command = command(&home.path().join("bin")).unwrap();
        let program = command.get_program().to_str().unwrap();
        assert!(
            program.ends_with("python3.11/site-packages/dyad/dyad-full"),
            "{program}"
        );
        assert_eq!(command.get_envs().count(), 0);
    }

    #[test]
    fn other_or_missing_torch_is_refused_with_the_fix() {
        let other = environment(Some("2.10.1"));
        let missing = environment(None);
        python_without_torch(missing.path());
        for (home, why) in [(&other, "is 2.10.1; dyad needs 2.11"), (&missing, "torch is missing")] {
            let error = command(&home.path().join("bin")).unwrap_err();
            assert!(error.message.contains(why), "{error}");
            assert!(error.hint.unwrap().contains("pip install torch==2.11.0"));
        }
    }

    #[test]
    fn torch_of_another_folder_is_named_in_the_environment() {
        use std::os::unix::fs::PermissionsExt;
        let home = environment(None);
        let elsewhere = environment(Some("2.11.0"));
        let torch = elsewhere.path().join("lib/python3.11/site-packages/torch");
        let python = home.path().join("bin/python3");
        std::fs::write(&python, format!("#!/bin/sh\necho {}/__init__.py\n", torch.display())).unwrap();
        std::fs::set_permissions(python, PermissionsExt::from_mode(0o755)).unwrap();
        let command = command(&home.path().join("bin")).unwrap();
        let (name, value) = command.get_envs().next().unwrap();
        assert_eq!(name, "LD_LIBRARY_PATH");
        assert!(
            value
                .unwrap()
                .to_str()
                .unwrap()
                .starts_with(torch.join("lib").to_str().unwrap())
        );
    }

    #[test]
    fn allocator_has_the_options_of_the_user() {
        assert_eq!(allocator(None), "expandable_segments:True");
        assert_eq!(allocator(Some("max_split_size_mb:64".into())), "max_split_size_mb:64");
    }

    #[test]
    fn newest_python_comes_first() {
        let home = tempfile::tempdir().unwrap();
        for python in ["python3.9", "python3.11", "python3", "pkgconfig"] {
            std::fs::create_dir_all(home.path().join("lib").join(python)).unwrap();
        }
        std::fs::create_dir(home.path().join("bin")).unwrap();
        let found = packages(&home.path().join("bin"));
        let pythons: Vec<_> = found
            .iter()
            .map(|path| path.to_str().unwrap().contains("python3.11"))
            .collect();
        assert_eq!(pythons, [true, true, false, false]);
    }

    #[test]
    fn missing_full_program_is_wrong_usage() {
        let home = tempfile::tempdir().unwrap();
        let error = command(home.path()).unwrap_err();
        assert!(error.message.contains("dyad-full is missing in"), "{error}");
    }
}
