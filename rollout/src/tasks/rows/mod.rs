//! Rows of data sets, as JSON: lines and lists of JSON, packed or not, Parquet and Arrow.

mod arrow;
mod arrow_json;
mod arrow_kinds;
mod arrow_packed;
mod lines;
mod parquet;
mod parquet_json;
mod row;
mod values;

use std::ops::Range;
use std::path::PathBuf;

pub use lines::read_unpacked;
pub(super) use lines::{CONVERT, parse};
pub use row::reads_a_file;
pub(super) use row::{Packing, Row, RowPlace, Sink, bad};

use super::error::TasksError;

/// The format of a file's rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    /// An object per line; blank lines are no rows.
    Lines(Packing),
    /// One list of objects.
    List(Packing),
    Parquet,
    /// A stream of record batches, or a file of them; the file's first bytes tell which.
    Arrow,
}

/// One file of a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Shard {
    pub(super) path: PathBuf,
    pub(super) format: Format,
}

impl Shard {
    /// Returns the file at `path`, with the format of its name. The error lists the known names.
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

    /// Returns the file at `path` as lines of JSON, whatever its name, apart from `.gz`, `.zst` and
    /// a `.json` that is a list.
    pub(super) fn lines(path: PathBuf) -> Self {
        let packing = Packing::of(&path);
        let known = Self::of(path.clone()).ok().map(|shard| shard.format);
        let format = known.filter(|format| !matches!(format, Format::Parquet | Format::Arrow));
        Self {
            path,
            format: format.unwrap_or(Format::Lines(packing)),
        }
    }

    /// Counts its rows.
    fn count(&self) -> Result<u64, TasksError> {
        match self.format {
            Format::Lines(packing) => lines::count(&self.path, packing),
            Format::List(packing) => Ok(lines::list(&self.path, packing)?.len() as u64),
            Format::Parquet => parquet::count(&self.path),
            Format::Arrow => arrow::count(&self.path),
        }
    }

    /// Passes its rows in `range` to `sink`, in order. Returns its number of rows or, where it was
    /// not read to its end, at least `range.end`.
    fn read(&self, range: &Range<u64>, sink: &mut Sink<'_>) -> Result<u64, TasksError> {
        match self.format {
            Format::Lines(packing) => lines::read(&self.path, packing, range, sink),
            Format::List(packing) => lines::read_list(&self.path, packing, range, sink),
            Format::Parquet => parquet::read(&self.path, range, sink),
            Format::Arrow => arrow::read(&self.path, range, sink),
        }
    }
}

/// Counts the rows of all files.
pub(super) fn count(shards: &[Shard]) -> Result<u64, TasksError> {
    shards.iter().map(Shard::count).sum()
}

/// Passes the rows in `range`, counted over all files, to `sink`.
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

#[cfg(test)]
mod tests;
