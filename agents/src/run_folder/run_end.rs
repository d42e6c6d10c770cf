//! The end of a run, recorded once in its folder: `ended.json`.

use std::fs;
use std::io;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use broker::atomic_file;
use broker::clock::rfc3339;
use serde::{Deserialize, Serialize};

use super::{FolderError, RunFolder, io_error};

const FILE: &str = "ended.json";

/// A reason and its time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndReason {
    pub reason: String,
    /// Milliseconds since 1970, UTC.
    pub at_ms: u64,
}

/// The reasons why a run ends or was stopped.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunEnd {
    /// The reason why the run takes no new tasks. The first one stays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<EndReason>,
    /// Set while the run is interrupted and may be continued.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped: Option<EndReason>,
    /// Set while the run has failed before it played. `latest` passes it over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<EndReason>,
}

impl EndReason {
    fn now(reason: &str) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            reason: reason.to_owned(),
            at_ms: u64::try_from(now.as_millis()).unwrap_or(u64::MAX),
        }
    }

    /// Returns the time to the second, in UTC.
    #[must_use]
    pub fn time(&self) -> String {
        let time = rfc3339(UNIX_EPOCH + Duration::from_millis(self.at_ms));
        format!("{} UTC", time.get(..19).unwrap_or(&time).replace('T', " "))
    }
}

impl RunFolder {
    /// Reads `ended.json`; empty if the run goes on.
    pub fn run_end(&self) -> Result<RunEnd, FolderError> {
        let path = self.path.join(FILE);
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(RunEnd::default()),
            Err(error) => return Err(io_error("read", &path)(error)),
        };
        serde_json::from_slice(&text).map_err(|e| FolderError::Broken {
            path,
            reason: e.to_string(),
        })
    }

    /// Records why the run ends. An earlier reason stays.
    pub fn set_ended(&self, reason: &str) -> Result<(), FolderError> {
        self.change_end(|end| {
            end.ended.get_or_insert_with(|| EndReason::now(reason));
        })
    }

    /// Records that an ended run goes on: it will end for another reason.
    pub fn set_reopened(&self) -> Result<(), FolderError> {
        self.change_end(|end| *end = RunEnd::default())
    }

    /// Records why the run was interrupted.
    pub fn set_stopped(&self, reason: &str) -> Result<(), FolderError> {
        self.change_end(|end| end.stopped = Some(EndReason::now(reason)))
    }

    /// Records why the run failed before it played.
    pub fn set_failed(&self, reason: &str) -> Result<(), FolderError> {
        self.change_end(|end| end.failed = Some(EndReason::now(reason)))
    }

    /// Records that an interrupted or failed run continues.
    pub fn set_continued(&self) -> Result<(), FolderError> {
        let end = self.run_end()?;
        if end.stopped.is_none() && end.failed.is_none() {
            return Ok(());
        }
        self.change_end(|end| (end.stopped, end.failed) = (None, None))
    }

    /// The new file replaces the old one as a whole: readers never see half of it.
    fn change_end(&self, change: impl FnOnce(&mut RunEnd)) -> Result<(), FolderError> {
        let path = self.path.join(FILE);
        let mut end = self.run_end()?;
        change(&mut end);
        atomic_file::replace(&path, &broker::codec::encode_json(&end)).map_err(io_error("write", &path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run_folder::tests::config_in;

    #[test]
    fn first_reason_of_an_end_stays_and_a_stop_is_lifted() {
        let base = tempfile::tempdir().unwrap();
        let folder = RunFolder::create(base.path(), &config_in(base.path()), None).unwrap();
        assert_eq!(folder.run_end().unwrap(), RunEnd::default());
        folder.set_stopped("Ctrl-C").unwrap();
        folder.set_continued().unwrap();
        folder.set_ended("run.train_steps reached at step 3").unwrap();
        folder.set_ended("`dyad drain` at step 3").unwrap();
        let end = folder.run_end().unwrap();
        assert_eq!(
            (end.ended.unwrap().reason.as_str(), end.stopped),
            ("run.train_steps reached at step 3", None)
        );
    }

    #[test]
    fn failure_is_lifted_when_the_run_continues() {
        let base = tempfile::tempdir().unwrap();
        let folder = RunFolder::create(base.path(), &config_in(base.path()), None).unwrap();
        folder.set_failed("the port is taken").unwrap();
        assert_eq!(folder.run_end().unwrap().failed.unwrap().reason, "the port is taken");
        folder.set_continued().unwrap();
        assert_eq!(folder.run_end().unwrap(), RunEnd::default());
    }

    #[test]
    fn time_of_an_end_is_shown_to_the_second() {
        let end = EndReason {
            reason: "x".into(),
            at_ms: 1_000,
        };
        assert_eq!(end.time(), "1970-01-01 00:00:01 UTC");
    }
}
