//! The log files of a process.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use crate::run_folder::logs::Appender;

/// The process's own log, and those of the parts of a run that it holds.
#[derive(Debug, Clone)]
pub(crate) struct LogFiles {
    own: Appender,
    /// Set if this process holds a whole run.
    parts: Option<Arc<Parts>>,
}

#[derive(Debug)]
struct Parts {
    folder: PathBuf,
    open: Mutex<BTreeMap<String, Appender>>,
}

impl LogFiles {
    /// Opens the process's own log. If `whole_run`, the logs of parts are opened at their first
    /// line, in the same folder.
    pub(crate) fn open(path: &Path, whole_run: bool) -> io::Result<Self> {
        let parts = || {
            Arc::new(Parts {
                folder: path.parent().unwrap_or(Path::new("")).to_owned(),
                open: Mutex::default(),
            })
        };
        Ok(Self {
            own: Appender::open(path)?,
            parts: whole_run.then(parts),
        })
    }

    /// Returns true if each part of a run has a log of its own.
    pub(crate) fn has_parts(&self) -> bool {
        self.parts.is_some()
    }

    /// Appends a line to a part's log, or to the process's own.
    pub(crate) fn line(&self, part: Option<&str>, line: Vec<u8>) {
        match (&self.parts, part) {
            (Some(parts), Some(part)) => parts.appender(part).unwrap_or_else(|| self.own.clone()).line(line),
            _ => self.own.line(line),
        }
    }

    /// Returns when every line queued before is in its file. Blocks the thread.
    pub(crate) fn flush(&self) {
        self.own.flush();
        if let Some(parts) = &self.parts {
            let open = parts.open.lock().unwrap_or_else(PoisonError::into_inner).clone();
            open.values().for_each(Appender::flush);
        }
    }
}

impl Parts {
    /// Returns a part's log, or `None` if it cannot be opened.
    fn appender(&self, part: &str) -> Option<Appender> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(appender) = open.get(part) {
            return Some(appender.clone());
        }
        let appender = Appender::open(&self.folder.join(format!("{part}.jsonl"))).ok()?;
        open.insert(part.to_owned(), appender.clone());
        Some(appender)
    }
}
