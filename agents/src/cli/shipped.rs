//! Finds the shipped configurations, and the files that they read.
//!
//! A wheel has them in its package, a repository in `configs/`. They name their data and programs
//! as `configs/data/...` and `configs/programs/...`, relative to the current folder.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::builder::{OsStringValueParser, TypedValueParser};

use crate::base::fault::Usage;

/// A shipped configuration.
#[derive(Debug)]
pub struct Shipped {
    pub name: String,
    pub path: PathBuf,
    pub text: String,
}

impl Shipped {
    /// Returns the first sentence of the file's comment.
    #[must_use]
    pub fn about(&self) -> String {
        let head = self.text.lines().map_while(|line| line.strip_prefix('#'));
        let text: Vec<&str> = head.map(str::trim).collect();
        let text = text.join(" ");
        text.split(". ")
            .next()
            .unwrap_or_default()
            .trim_end_matches('.')
            .to_owned()
    }

    /// Returns the files of the folder `configs` that the configuration reads, as it names them.
    /// A folder stands for all files in it.
    #[must_use]
    pub fn needs(&self) -> Vec<PathBuf> {
        let Some(home) = self.path.parent() else {
            return Vec::new();
        };
        let lines = self.text.lines().filter(|line| !line.trim_start().starts_with('#'));
        let values = lines.flat_map(|line| line.split(['"', '\'']).skip(1).step_by(2));
        let paths = values.filter_map(|value| value[value.find("configs/")?..].strip_prefix("configs/"));
        let mut files: Vec<PathBuf> = paths
            .flat_map(|path| files(&home.join(path)))
            .filter_map(|file| Some(Path::new("configs").join(file.strip_prefix(home).ok()?)))
            .collect();
        files.sort();
        files.dedup();
        files
    }

    /// Returns the shipped file that the configuration names as `configs/...`.
    #[must_use]
    pub fn source(&self, need: &Path) -> PathBuf {
        let below: PathBuf = need.components().skip(1).collect();
        self.path.with_file_name(below)
    }
}

/// Returns the file, or all files below the folder.
fn files(path: &Path) -> Vec<PathBuf> {
    if path.is_file() {
        return vec![path.to_owned()];
    }
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    entries.flat_map(|entry| files(&entry.path())).collect()
}

/// Returns the folder of the shipped configurations.
///
/// # Errors
/// Fails if this program was installed without them.
pub fn folder() -> Result<PathBuf, Usage> {
    let own = std::env::current_exe().unwrap_or_default();
    let own = own.parent().unwrap_or(Path::new("/"));
    places(own).into_iter().find(|place| place.is_dir()).ok_or_else(|| {
        let message = format!(
            "there are no shipped configurations for the program in {}",
            own.display()
        );
        Usage::new(message).hint("take them from the folder configs/ of the repository")
    })
}

/// Returns the places to look in, for a program in the folder `own`.
fn places(own: &Path) -> Vec<PathBuf> {
    let mut places = vec![own.join("configs")];
    places.extend(
        super::full_program::packages(own)
            .iter()
            .map(|package| package.join("configs")),
    );
    // A program of `cargo build` is two folders below its repository. A project with a Python
    // environment in it may have its own configs/.
    let repositories = ["../configs", "../../configs"].map(|place| own.join(place));
    places.extend(
        repositories
            .into_iter()
            .filter(|place| place.join("src/check.rs").is_file()),
    );
    places
}

/// Returns all configurations of the folder, in order of names.
///
/// # Errors
/// Fails if a file cannot be read.
pub fn all(folder: &Path) -> std::io::Result<Vec<Shipped>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_stem().and_then(|stem| stem.to_str()).map(str::to_owned);
        if path.extension().is_some_and(|extension| extension == "toml")
            && let Some(name) = name
            && name != "Cargo"
        {
            let text = std::fs::read_to_string(&path)?;
            found.push(Shipped { name, path, text });
        }
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

/// Reads the argument CONFIG of a command: a file, or the name of a shipped configuration.
pub fn parser() -> impl TypedValueParser<Value = PathBuf> {
    OsStringValueParser::new().try_map(|given: OsString| {
        let here = std::env::current_dir().unwrap_or_default();
        resolve(PathBuf::from(given), folder().ok().as_deref(), &here)
    })
}

/// Returns the file that `given` means. A path stays as it is: its reader reports it.
pub(super) fn resolve(given: PathBuf, folder: Option<&Path>, here: &Path) -> Result<PathBuf, String> {
    let name = given.to_str().filter(|name| !name.contains(['/', '.']));
    let (Some(name), Some(folder)) = (name, folder) else {
        return Ok(given);
    };
    if here.join(&given).is_file() {
        return Ok(given);
    }
    let known = all(folder).unwrap_or_default();
    let Some(shipped) = known.iter().find(|shipped| shipped.name == name) else {
        let near = configs::nearest(name, known.iter().map(|shipped| shipped.name.as_str()));
        let meant = near.map_or(String::new(), |near| format!(" (did you mean {near}?)"));
        return Err(format!(
            "it is neither a file here nor a shipped configuration{meant}; `dyad init` lists those"
        ));
    };
    match shipped.needs().iter().find(|need| !here.join(need).is_file()) {
        None => Ok(shipped.path.clone()),
        Some(need) => Err(format!(
            "it reads {}, which is not in this folder: `dyad init {name}` copies both here",
            need.display()
        )),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The folder `configs` of the repository.
    pub(crate) fn repository() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs")
    }

    pub(crate) fn shipped(name: &str) -> Shipped {
        let all = all(&repository()).unwrap();
        all.into_iter().find(|shipped| shipped.name == name).unwrap()
    }

    #[test]
    fn every_shipped_configuration_says_what_it_is() {
        let all = all(&repository()).unwrap();
        assert!(all.len() > 25, "{}", all.len());
        for shipped in all {
            assert!(shipped.about().len() > 20, "{}: {}", shipped.name, shipped.about());
        }
        let about = shipped("signal").about();
        assert_eq!(
            about,
            "The signal game: agent a sees one of 16 objects and writes one of 24 symbols"
        );
    }

    #[test]
    fn needed_files_are_those_that_values_name() {
        let needs = |name| {
            let files = shipped(name).needs();
            files.iter().map(|file| file.display().to_string()).collect::<Vec<_>>()
        };
        assert!(needs("signal").is_empty());
        assert_eq!(needs("adversarial"), ["configs/data/go.jsonl"]);
        assert_eq!(needs("programs"), ["configs/programs/solve_verify.py"]);
        assert_eq!(needs("doctor-patient-8b"), ["configs/programs/patient_judge.jinja"]);
        let research = needs("deep-research");
        assert!(
            research.contains(&"configs/data/stones/more.jsonl".to_owned()),
            "{research:?}"
        );
    }

    #[test]
    fn name_resolves_to_the_shipped_file_unless_a_file_is_here() {
        let (here, folder) = (tempfile::tempdir().unwrap(), repository());
        let resolve = |given: &str| resolve(given.into(), Some(&folder), here.path());
        assert_eq!(resolve("signal").unwrap(), folder.join("signal.toml"));
        for other in ["signal.toml", "./signal"] {
            assert_eq!(resolve(other).unwrap(), Path::new(other));
        }
        let why = resolve("sgnal").unwrap_err();
        assert!(why.contains("(did you mean signal?); `dyad init` lists"), "{why}");
        assert!(resolve("nothing").unwrap_err().contains("neither a file here nor"));
        std::fs::write(here.path().join("signal"), "").unwrap();
        assert_eq!(resolve("signal").unwrap(), Path::new("signal"));
    }

    #[test]
    fn name_without_its_files_here_is_refused() {
        let (here, folder) = (tempfile::tempdir().unwrap(), repository());
        let resolve = || resolve("adversarial".into(), Some(&folder), here.path());
        let why = resolve().unwrap_err();
        assert!(
            why.contains("configs/data/go.jsonl") && why.contains("dyad init adversarial"),
            "{why}"
        );
        std::fs::create_dir_all(here.path().join("configs/data")).unwrap();
        std::fs::write(here.path().join("configs/data/go.jsonl"), "").unwrap();
        assert_eq!(resolve().unwrap(), folder.join("adversarial.toml"));
    }

    #[test]
    fn configs_of_a_project_around_the_environment_are_ignored() {
        let project = tempfile::tempdir().unwrap();
        let own = project.path().join("venv/bin");
        std::fs::create_dir_all(project.path().join("configs")).unwrap();
        std::fs::create_dir_all(&own).unwrap();
        assert!(places(&own).iter().all(|place| !place.is_dir()));
    }
}
