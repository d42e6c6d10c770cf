//! A row that was read, and the errors of files and rows.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use broker::codec::Parsed;

use crate::tasks::error::TasksError;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Packing {
    Plain,
    Gzip,
    Zstd,
}

impl Packing {
    /// Returns the packing that the file's name gives.
    pub(crate) fn of(path: &Path) -> Self {
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("gz") => Self::Gzip,
            Some("zst") => Self::Zstd,
            _ => Self::Plain,
        }
    }
}

/// Refuses columns of the same name: one of them would be lost.
pub(super) fn refuse_repeated(names: impl IntoIterator<Item = String>) -> Result<(), String> {
    let mut seen = BTreeSet::new();
    let repeated = names.into_iter().find(|name| !seen.insert(name.clone()));
    repeated.map_or(Ok(()), |name| {
        Err(format!(
            "it has several columns {name}: nothing says which is meant, so leave all but one out of the file"
        ))
    })
}

/// The place of a row in its file, for messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RowPlace {
    /// A line, counted from 1.
    Line(u64),
    /// A row, counted from 0 as data frames do.
    Row(u64),
}

impl RowPlace {
    /// Returns the file and the place in it, for messages.
    pub(crate) fn within(self, path: &Path) -> String {
        match self {
            Self::Line(line) => format!("{}, line {line}", path.display()),
            Self::Row(row) => format!("{}, row {row} (from 0)", path.display()),
        }
    }
}

/// A row that was read.
pub(crate) struct Row<'a> {
    pub(crate) path: &'a Path,
    pub(crate) place: RowPlace,
    /// The byte offset of its line in a plain file.
    pub(crate) offset: u64,
    pub(crate) parsed: Parsed,
}

/// The receiver of rows, one after the other.
pub(crate) type Sink<'a> = dyn FnMut(Row<'_>) -> Result<(), TasksError> + 'a;

/// Returns an error of a row.
pub(crate) fn bad(path: &Path, place: RowPlace, message: String) -> TasksError {
    let path = path.to_owned();
    match place {
        RowPlace::Line(line) => TasksError::Line { path, line, message },
        RowPlace::Row(row) => TasksError::Row { path, row, message },
    }
}

thread_local! {
    static READS: Cell<bool> = const { Cell::new(false) };
}

/// Returns true while this thread is in a reader that may panic on a damaged file. Then a panic is
/// no bug, and is caught.
#[must_use]
pub fn reads_a_file() -> bool {
    READS.get()
}

/// Runs a reader and turns its panic into an error of the file. Readers of damaged files panic in
/// places, because they index by lengths that they read. The partial result is dropped. A hook that
/// ends the process must call [`reads_a_file`] first.
pub(super) fn guarded<T>(
    path: &Path,
    kind: &str,
    work: impl FnOnce() -> Result<T, TasksError>,
) -> Result<T, TasksError> {
    let before = READS.replace(true);
    let outcome = catch_unwind(AssertUnwindSafe(work));
    READS.set(before);
    outcome.unwrap_or_else(|_| {
        let message = format!("cannot be read as {kind}: it is damaged where its reader does not expect it");
        Err(malformed(path, message))
    })
}

/// Returns an error of a whole file.
pub(super) fn malformed(path: &Path, message: String) -> TasksError {
    TasksError::Format {
        path: path.to_owned(),
        message,
    }
}

pub(super) fn unreadable(path: &Path, source: std::io::Error) -> TasksError {
    TasksError::Read {
        path: path.to_owned(),
        source,
    }
}
