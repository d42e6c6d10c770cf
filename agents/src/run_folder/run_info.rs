//! The identity of a run folder, and the search for one.

use std::fs;
use std::path::{Path, PathBuf};

use broker::ids::RunId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::logs::one_line;
use super::{FolderError, RunFolder, io_error};

/// The content of `run.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RunInfo {
    pub run: String,
    pub name: String,
    pub seed: u64,
    /// dyad's release.
    pub version: String,
    /// dyad's commit, with `+changes` if its sources differed from it; empty if it is unknown.
    #[serde(default)]
    pub commit: String,
    /// Commit of the working tree that it was started in, with `+changes` if it differed; empty
    /// outside of a working tree. It is the commit of the user's experiment, not dyad's.
    #[serde(default)]
    pub git: String,
    /// The configuration file it was started with.
    #[serde(default)]
    pub source: Option<PathBuf>,
    /// Milliseconds since 1970, UTC.
    pub created_ms: u64,
}

impl RunFolder {
    /// Finds the run for `which`: a folder, `latest`, a run id below `base`, or a unique prefix of
    /// one. `latest` is the newest run that did not fail before it played, if there is one.
    pub fn find(base: &Path, which: &str) -> Result<Self, FolderError> {
        Self::find_by(base, which, latest)
    }

    /// Finds the run for `which` like [`RunFolder::find`], but `latest` is the newest run, played
    /// or not.
    pub fn find_newest(base: &Path, which: &str) -> Result<Self, FolderError> {
        Self::find_by(base, which, |runs| Ok(newest_first(runs)?.into_iter().next()))
    }

    fn find_by(
        base: &Path,
        which: &str,
        latest: impl Fn(Vec<(RunInfo, PathBuf)>) -> Result<Option<Self>, FolderError>,
    ) -> Result<Self, FolderError> {
        let path = Path::new(which);
        if path.join("run.json").is_file() {
            return Self::open(path);
        }
        let mut runs = list(base);
        let not_found = || FolderError::NotFound {
            base: base.into(),
            which: which.into(),
        };
        if which == "latest" {
            return latest(runs)?.ok_or_else(not_found);
        }
        runs.retain(|(info, _)| info.run.starts_with(which));
        if let Some((_, path)) = runs.iter().find(|(info, _)| info.run == which) {
            return Self::open(path);
        }
        match runs.as_slice() {
            [] => Err(not_found()),
            [(_, path)] => Self::open(path),
            many => Err(FolderError::Ambiguous {
                base: base.into(),
                which: which.into(),
                runs: many
                    .iter()
                    .map(|(info, _)| info.run.as_str())
                    .collect::<Vec<_>>()
                    .join(", "),
            }),
        }
    }
}

/// Returns the newest run that did not fail before it played, else the newest. Prints a note if a
/// newer one failed: the user may mean that one.
fn latest(runs: Vec<(RunInfo, PathBuf)>) -> Result<Option<RunFolder>, FolderError> {
    let folders = newest_first(runs)?;
    let failure = |folder: &RunFolder| folder.run_end().ok().and_then(|end| end.failed);
    let Some(newest) = folders.first() else {
        return Ok(None);
    };
    let chosen = folders
        .iter()
        .find(|folder| failure(folder).is_none())
        .unwrap_or(newest);
    if let Some(failed) = failure(newest).filter(|_| chosen != newest) {
        eprintln!(
            "note: `latest` is {}; the newer run {} failed at {} before it played: {}",
            chosen.run(),
            newest.run(),
            failed.time(),
            one_line(&failed.reason)
        );
    }
    Ok(Some(chosen.clone()))
}

fn newest_first(mut runs: Vec<(RunInfo, PathBuf)>) -> Result<Vec<RunFolder>, FolderError> {
    runs.sort_by_key(|(info, _)| std::cmp::Reverse(info.created_ms));
    runs.iter().map(|(_, path)| RunFolder::open(path)).collect()
}

pub(crate) fn read_info(path: &Path) -> Result<RunInfo, FolderError> {
    let text = fs::read(path.join("run.json")).map_err(io_error("read", &path.join("run.json")))?;
    serde_json::from_slice(&text).map_err(|e| FolderError::Broken {
        path: path.into(),
        reason: format!("run.json: {e}"),
    })
}

fn list(base: &Path) -> Vec<(RunInfo, PathBuf)> {
    let entries = fs::read_dir(base).into_iter().flatten();
    entries
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            Some((read_info(&path).ok()?, path))
        })
        .collect()
}

/// Returns the name, narrowed to the alphabet of run ids, and eight random characters.
pub(crate) fn new_run_id(name: &str) -> RunId {
    let narrow: String = name
        .to_lowercase()
        .chars()
        .map(|c| {
            if c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_' {
                c
            } else {
                '-'
            }
        })
        .take(39)
        .collect();
    let narrow = narrow.trim_matches(['-', '_']);
    let name = if narrow.is_empty() { "run" } else { narrow };
    let random: String = uuid::Uuid::new_v4()
        .as_bytes()
        .iter()
        // Bytes 6 and 8 hold the UUID's version and variant.
        .take(6)
        .flat_map(|byte| [byte & 15, byte >> 4])
        .take(8)
        .map(|digit| char::from(b"0123456789abcdef"[usize::from(digit)]))
        .collect();
    match RunId::new(&format!("{name}-{random}")) {
        Some(run) => run,
        None => unreachable!("a narrowed name and hexadecimal digits are a run id"),
    }
}

pub(crate) fn git_commit() -> String {
    let git = |arguments: &[&str]| -> Option<String> {
        let output = std::process::Command::new("git").args(arguments).output().ok()?;
        output
            .status
            .success()
            .then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let Some(commit) = git(&["rev-parse", "HEAD"]) else {
        return String::new();
    };
    match git(&["status", "--porcelain", "--untracked-files=no"]) {
        Some(changes) if !changes.is_empty() => format!("{commit}+changes"),
        _ => commit,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run_folder::tests::config_in;

    #[test]
    fn a_folder_is_made_found_and_read_back() {
        let base = tempfile::tempdir().unwrap();
        let config = config_in(base.path());
        let first = RunFolder::create(base.path(), &config, None).unwrap();
        assert!(first.run().as_str().starts_with("signal-game-"), "{}", first.run());
        assert_eq!(first.run().as_str().len(), "signal-game-".len() + 8);
        std::thread::sleep(std::time::Duration::from_millis(3));
        let second = RunFolder::create(base.path(), &config, None).unwrap();
        assert_ne!(first.run(), second.run());

        let find = |which: &str| RunFolder::find(base.path(), which).map(|f| f.run().clone());
        assert_eq!(find("latest").unwrap(), *second.run());
        assert_eq!(find(first.run().as_str()).unwrap(), *first.run());
        assert_eq!(find(&first.path().display().to_string()).unwrap(), *first.run());
        assert!(matches!(find("signal"), Err(FolderError::Ambiguous { .. })));
        assert!(matches!(find("other"), Err(FolderError::NotFound { .. })));

        second.set_failed("the port is taken").unwrap();
        assert_eq!(find("latest").unwrap(), *first.run(), "the newest that played");
        let newest = RunFolder::find_newest(base.path(), "latest").unwrap();
        assert_eq!(newest.run(), second.run(), "played or not");
        first.set_failed("the port is taken").unwrap();
        assert_eq!(find("latest").unwrap(), *second.run(), "none has played");
        second.set_continued().unwrap();
        assert_eq!(find("latest").unwrap(), *second.run());

        let resolved = first.config().unwrap();
        assert_eq!(toml::to_string(&resolved).unwrap(), toml::to_string(&config).unwrap());
        assert_eq!(first.info().unwrap().seed, 7);
    }
}
