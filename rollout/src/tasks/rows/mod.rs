//! Rows of data sets, as JSON: lines and lists of JSON, packed or not, Parquet and Arrow.

mod arrow;
mod arrow_json;
mod arrow_kinds;
mod arrow_packed;
mod lines;
mod parquet;
mod parquet_json;
mod values;

use std::cell::Cell;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use serde_json::Value;

pub(super) use lines::parse;

use super::TasksError;

/// How a file holds its rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    /// An object per line; blank lines are no rows.
    Lines(Packing),
    /// One list of objects.
    List(Packing),
    Parquet,
    /// A stream of record batches, or a file of them: what it is stands at its beginning.
    Arrow,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Packing {
    Plain,
    Gzip,
    Zstd,
}

/// One file of a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Shard {
    pub(super) path: PathBuf,
    pub(super) format: Format,
}

/// Where a row stands in its file, for messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// A line, from 1.
    Line(u64),
    /// A row, from 0 as data frames count.
    Row(u64),
}

/// A row that was read.
pub(super) struct Row<'a> {
    pub(super) path: &'a Path,
    pub(super) place: Place,
    /// Where its line begins in a plain file, in bytes.
    pub(super) offset: u64,
    pub(super) value: Value,
}

/// Takes one row after the other.
pub(super) type Sink<'a> = dyn FnMut(Row<'_>) -> Result<(), TasksError> + 'a;

impl Shard {
    /// The file at `path`, by its name. The error says which names are known.
    pub(super) fn of(path: PathBuf) -> Result<Self, String> {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let (stem, packing) = match name.rsplit_once('.') {
            Some((stem, "gz")) => (stem, Packing::Gzip),
            Some((stem, "zst")) => (stem, Packing::Zstd),
            _ => (name.as_str(), Packing::Plain),
        };
        let format = match stem.rsplit_once('.').map(|(_, extension)| extension) {
            Some("parquet") if packing == Packing::Plain => Format::Parquet,
            Some("arrow") if packing == Packing::Plain => Format::Arrow,
            Some("jsonl" | "ndjson") => Format::Lines(packing),
            Some("json") if lines::is_list(&path, packing) => Format::List(packing),
            Some("json") => Format::Lines(packing),
            _ => {
                return Err(format!(
                    "{} is of no kind that is read: .parquet, .arrow, .jsonl, .json, the last two also with .gz or .zst",
                    path.display()
                ));
            }
        };
        Ok(Self { path, format })
    }

    /// The file at `path` as lines of JSON, whatever its name but for `.gz`, `.zst` and a `.json` that is a list.
    pub(super) fn lines(path: PathBuf) -> Self {
        let packing = match path.extension().and_then(|extension| extension.to_str()) {
            Some("gz") => Packing::Gzip,
            Some("zst") => Packing::Zstd,
            _ => Packing::Plain,
        };
        let known = Self::of(path.clone()).ok().map(|shard| shard.format);
        let format = known.filter(|format| !matches!(format, Format::Parquet | Format::Arrow));
        Self {
            path,
            format: format.unwrap_or(Format::Lines(packing)),
        }
    }

    /// Its rows.
    fn count(&self) -> Result<u64, TasksError> {
        match self.format {
            Format::Lines(packing) => lines::count(&self.path, packing),
            Format::List(packing) => Ok(lines::list(&self.path, packing)?.len() as u64),
            Format::Parquet => parquet::count(&self.path),
            Format::Arrow => arrow::count(&self.path),
        }
    }

    /// Gives those of its rows that are in `range` to `sink`, in order; how many rows it has or, where it was not read to its
    /// end, at least `range.end`.
    fn read(&self, range: &Range<u64>, sink: &mut Sink<'_>) -> Result<u64, TasksError> {
        match self.format {
            Format::Lines(packing) => lines::read(&self.path, packing, range, sink),
            Format::List(packing) => lines::read_list(&self.path, packing, range, sink),
            Format::Parquet => parquet::read(&self.path, range, sink),
            Format::Arrow => arrow::read(&self.path, range, sink),
        }
    }
}

/// Rows of all files.
pub(super) fn count(shards: &[Shard]) -> Result<u64, TasksError> {
    shards.iter().map(Shard::count).sum()
}

/// Gives the rows in `range`, counted over all files, to `sink`.
pub(super) fn read(shards: &[Shard], range: &Range<u64>, sink: &mut Sink<'_>) -> Result<(), TasksError> {
    let mut before = 0;
    for shard in shards {
        if before >= range.end {
            break;
        }
        let own = range.start.saturating_sub(before)..range.end - before;
        before = before.saturating_add(shard.read(&own, sink)?);
    }
    Ok(())
}

/// An error of a row.
pub(super) fn bad(path: &Path, place: Place, message: String) -> TasksError {
    let path = path.to_owned();
    match place {
        Place::Line(line) => TasksError::Line { path, line, message },
        Place::Row(row) => TasksError::Row { path, row, message },
    }
}

thread_local! {
    static READS: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread reads a file of others in a reader that may panic on a damaged one: then a panic is no bug, and is caught.
#[must_use]
pub fn reads_a_file() -> bool {
    READS.get()
}

/// Damaged files make readers panic in places (they index by lengths that they read): that is a bad file, not a bug of ours. What was
/// being read is dropped. A hook that ends the process asks [`reads_a_file`] first.
fn guarded<T>(path: &Path, kind: &str, work: impl FnOnce() -> Result<T, TasksError>) -> Result<T, TasksError> {
    let before = READS.replace(true);
    let outcome = catch_unwind(AssertUnwindSafe(work));
    READS.set(before);
    outcome.unwrap_or_else(|_| {
        let message = format!("cannot be read as {kind}: it is damaged where its reader does not expect it");
        Err(malformed(path, message))
    })
}

/// An error of a whole file.
fn malformed(path: &Path, message: String) -> TasksError {
    TasksError::Format {
        path: path.to_owned(),
        message,
    }
}

fn unreadable(path: &Path, source: std::io::Error) -> TasksError {
    TasksError::Read {
        path: path.to_owned(),
        source,
    }
}

#[cfg(test)]
mod tests;
