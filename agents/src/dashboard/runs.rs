//! The run folders that the dashboard shows, and the state of a run.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use broker::ids::RunId;
use schemars::JsonSchema;
use serde::Serialize;

use super::answer::ApiError;
use crate::ledger::completion;
use crate::run_folder::{FolderError, RunEnd, RunFolder};

/// A run that wrote nothing for this long is silent: a coordinator writes every second.
const SILENT: Duration = Duration::from_secs(15);

/// The shown runs: all below a folder, or one.
#[derive(Debug)]
pub struct Runs {
    base: PathBuf,
    only: Option<RunFolder>,
}

/// The state of a run, according to its files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum State {
    Live,
    Ended,
    Stopped,
    Silent,
}

impl Runs {
    /// Shows every run below `base`.
    #[must_use]
    pub fn below(base: &Path) -> Self {
        Self {
            base: base.into(),
            only: None,
        }
    }

    /// Shows one run.
    #[must_use]
    pub fn only(folder: RunFolder) -> Self {
        Self {
            base: PathBuf::new(),
            only: Some(folder),
        }
    }

    /// Returns the folder of the only run, or the folder of all runs.
    pub(crate) fn folder(&self) -> &Path {
        self.only.as_ref().map_or(&self.base, RunFolder::path)
    }

    /// Returns the run of an id. The id is parsed before it becomes a part of a path.
    pub(crate) fn find(&self, id: &str) -> Result<RunFolder, ApiError> {
        let missing = || {
            ApiError::missing(format!(
                "there is no run {id:?}: write its whole id, as /api/runs lists it"
            ))
        };
        let run = RunId::new(id).ok_or_else(missing)?;
        match &self.only {
            Some(folder) if *folder.run() == run => Ok(folder.clone()),
            Some(_) => Err(missing()),
            None => {
                let folder = RunFolder::open(&self.base.join(run.as_str())).map_err(|_| missing())?;
                (*folder.run() == run).then_some(folder).ok_or_else(missing)
            }
        }
    }

    /// Returns all runs, in no order. A folder that cannot be opened is left out.
    pub(crate) fn all(&self) -> Vec<RunFolder> {
        if let Some(folder) = &self.only {
            return vec![folder.clone()];
        }
        let entries = fs::read_dir(&self.base).into_iter().flatten().flatten();
        let is_own = |folder: &RunFolder| {
            folder
                .path()
                .file_name()
                .is_some_and(|name| name == folder.run().as_str())
        };
        entries
            .filter_map(|entry| RunFolder::open(&entry.path()).ok())
            .filter(is_own)
            .collect()
    }
}

/// Returns the state of a run and the reason of its end.
pub(crate) fn state(folder: &RunFolder) -> Result<(State, Option<String>), FolderError> {
    let written = last_written(folder);
    let age = written.and_then(|at| SystemTime::now().duration_since(at).ok());
    let end = folder.run_end()?;
    // The ledgers are read only while they matter.
    let is_ending = end.ended.is_some() && age.is_some_and(|age| age < SILENT);
    let is_complete = is_ending && completion::all(folder, &folder.config()?.participants());
    Ok(state_of(&end, age, is_complete))
}

/// `age` counts from the last line of a process, or from the folder's creation. `is_complete` is
/// true once every agent has written its last checkpoint.
fn state_of(end: &RunEnd, age: Option<Duration>, is_complete: bool) -> (State, Option<String>) {
    if let Some(stopped) = end.stopped.as_ref().or(end.failed.as_ref()) {
        return (State::Stopped, Some(stopped.reason.clone()));
    }
    match (&end.ended, !is_complete && age.is_some_and(|age| age < SILENT)) {
        // It takes no tasks any more and finishes its work.
        (_, true) => (State::Live, None),
        (Some(ended), false) => (State::Ended, Some(ended.reason.clone())),
        (None, false) => (State::Silent, None),
    }
}

/// Returns when a file of metrics or logs last changed, or when the folder was made. The summary is
/// written after the end.
fn last_written(folder: &RunFolder) -> Option<SystemTime> {
    let files = ["metrics", "logs"].map(|part| folder.files(part).unwrap_or_default());
    let is_summary = |path: &PathBuf| path.file_stem().is_some_and(|stem| stem == "summary");
    let changed = |path: PathBuf| fs::metadata(path).and_then(|data| data.modified()).ok();
    let made = folder.path().join("run.json");
    files
        .into_iter()
        .flatten()
        .chain([made])
        .filter(|path| !is_summary(path))
        .filter_map(changed)
        .max()
}

/// Milliseconds since 1970, UTC.
pub(crate) fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::iter::repeat_with;

    use super::*;
    use crate::run_folder::EndReason;
    use crate::run_folder::tests::config_in;

    /// Makes an endless series of paths, the same each time. Each has up to six parts: some of
    /// `names`, and parts that could lead out of a folder.
    pub(crate) fn odd_paths(names: &[&str]) -> impl Iterator<Item = String> + use<> {
        let parts = ["..", ".", "/", "\\", "%2e", "%2f", "\0", "\u{202e}", " ", "//"];
        let parts: Vec<String> = parts.iter().chain(names).map(|part| (*part).to_owned()).collect();
        let mut seed = 7_u64;
        let mut next = move |below: usize| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) as usize % below
        };
        repeat_with(move || (0..=next(6)).map(|_| parts[next(parts.len())].as_str()).collect())
    }

    #[test]
    fn only_ids_of_runs_lead_to_folders() {
        let base = tempfile::tempdir().unwrap();
        let folder = RunFolder::create(base.path(), &config_in(base.path()), None).unwrap();
        let other = RunFolder::create(base.path(), &config_in(base.path()), None).unwrap();
        let runs = Runs::below(base.path());
        assert_eq!(runs.find(folder.run().as_str()).unwrap(), folder);
        assert_eq!(runs.all().len(), 2);
        let traversal = format!("../{}", base.path().file_name().unwrap().to_string_lossy());
        for wrong in [
            "",
            "..",
            ".",
            "/etc",
            traversal.as_str(),
            "a/b",
            "a%2fb",
            "no-such-run",
            "A",
        ] {
            assert_eq!(runs.find(wrong).unwrap_err().status, 404, "{wrong}");
        }
        let one = Runs::only(folder.clone());
        assert_eq!(one.all(), [folder]);
        assert_eq!(one.find(other.run().as_str()).unwrap_err().status, 404);
    }

    #[test]
    fn hundred_thousand_paths_lead_to_no_other_folder() {
        let base = tempfile::tempdir().unwrap();
        let shown = base.path().join("shown");
        let inside = RunFolder::create(&shown, &config_in(base.path()), None).unwrap();
        let outside = RunFolder::create(base.path(), &config_in(base.path()), None).unwrap();
        let runs = Runs::below(&shown);
        for path in odd_paths(&["a", outside.run().as_str()]).take(100_000) {
            assert!(runs.find(&path).is_err(), "{path:?}");
        }
        assert_eq!(runs.find(inside.run().as_str()).unwrap(), inside);
    }

    #[test]
    fn new_run_is_live_before_its_first_line() {
        let base = tempfile::tempdir().unwrap();
        let folder = RunFolder::create(base.path(), &config_in(base.path()), None).unwrap();
        assert_eq!(state(&folder).unwrap(), (State::Live, None));
    }

    #[test]
    fn state_follows_the_recorded_end_and_the_last_line() {
        let reason = |text: &str| {
            Some(EndReason {
                reason: text.into(),
                at_ms: 0,
            })
        };
        let (new, old) = (Some(Duration::from_secs(1)), Some(Duration::from_secs(60)));
        let state = |ended, stopped, age| {
            let end = RunEnd {
                ended,
                stopped,
                ..RunEnd::default()
            };
            state_of(&end, age, false)
        };
        assert_eq!(state(None, None, new).0, State::Live);
        assert_eq!(state(None, None, old).0, State::Silent);
        assert_eq!(state(None, None, None).0, State::Silent);
        assert_eq!(state(reason("steps"), None, new).0, State::Live);
        assert_eq!(state(reason("steps"), None, old), (State::Ended, Some("steps".into())));
        assert_eq!(
            state(None, reason("Ctrl-C"), new),
            (State::Stopped, Some("Ctrl-C".into()))
        );
        let complete = RunEnd {
            ended: reason("steps"),
            ..RunEnd::default()
        };
        assert_eq!(
            state_of(&complete, new, true).0,
            State::Ended,
            "every agent has finished"
        );
        let failed = reason("the port is taken");
        let end = RunEnd {
            failed,
            ..RunEnd::default()
        };
        assert_eq!(
            state_of(&end, new, false),
            (State::Stopped, Some("the port is taken".into()))
        );
    }
}
