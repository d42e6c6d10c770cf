//! Errors of task sources.

use std::path::{Path, PathBuf};

/// The reason why a source of tasks cannot be used, or a task cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum TasksError {
    #[error("cannot read the tasks in {path}")]
    Read { path: PathBuf, source: std::io::Error },
    #[error("{path}, line {line}: {message}")]
    Line { path: PathBuf, line: u64, message: String },
    #[error("{path}, row {row} (from 0): {message}")]
    Row { path: PathBuf, row: u64, message: String },
    #[error("{path} {message}")]
    Format { path: PathBuf, message: String },
    #[error("{path} has no tasks: every line or row is one task")]
    Empty { path: PathBuf },
    #[error(
        "cannot keep the tasks of {name} in {folder}, the folder for temporary files (set TMPDIR to one with more room)"
    )]
    Spool {
        name: String,
        folder: PathBuf,
        source: std::io::Error,
    },
    #[error("{key}: {message}")]
    Config { key: String, message: String },
    #[error("{place}task {number} of {source_name}: {message}")]
    Unplayable {
        /// The file and row, with a colon after them; empty if the task is generated.
        place: String,
        number: u64,
        source_name: String,
        message: String,
    },
}

pub(crate) fn bad_line(path: &Path, line: u64, message: String) -> TasksError {
    TasksError::Line {
        path: path.to_owned(),
        line,
        message,
    }
}
