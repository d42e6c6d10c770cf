//! Arrow files, one record batch at a time: streams, as `datasets` writes them, and files with a
//! footer.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek};
use std::ops::Range;
use std::path::Path;

use arrow_array::RecordBatch;
use arrow_ipc::reader::{FileReader, StreamReader};
use arrow_schema::{ArrowError, SchemaRef};

use super::row::{self, Row, RowPlace, Sink, bad, malformed, unreadable};
use super::{arrow_json, arrow_kinds, arrow_packed};
use crate::tasks::TasksError;

/// The first bytes of a file with a footer; a stream has none.
const MAGIC: &[u8] = b"ARROW1";

/// The batches of a file, with one in memory at a time.
struct Batches<'a> {
    path: &'a Path,
    reader: Reader,
    /// Bytes of the file.
    length: u64,
}

enum Reader {
    Stream(StreamReader<Watched<BufReader<File>>>),
    File(FileReader<BufReader<File>>),
}

/// A reader that counts the bytes taken, and notes whether it met the end.
struct Watched<R> {
    inner: R,
    taken: u64,
    ended: bool,
}

impl<R: Read> Read for Watched<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.inner.read(buffer)?;
        self.taken += length as u64;
        self.ended |= length == 0 && !buffer.is_empty();
        Ok(length)
    }
}

impl<'a> Batches<'a> {
    /// Opens the file with the columns at `columns`, or with all columns.
    fn open(path: &'a Path, columns: Option<Vec<usize>>) -> Result<Self, TasksError> {
        let (file, length, footed) = opened(path).map_err(|source| unreadable(path, source))?;
        let mut file = BufReader::new(file);
        let fault = guarded(path, || {
            let fault = arrow_packed::fault(&mut file, footed).and_then(|fault| file.rewind().map(|()| fault));
            fault.map_err(|source| unreadable(path, source))
        })?;
        if let Some(message) = fault {
            return Err(malformed(path, message));
        }
        let reader = guarded(path, || {
            let reader = if footed {
                FileReader::try_new(file, columns).map(Reader::File)
            } else {
                let file = Watched {
                    inner: file,
                    taken: 0,
                    ended: false,
                };
                StreamReader::try_new(file, columns).map(Reader::Stream)
            };
            reader.map_err(|error| broken(path, &error))
        })?;
        Ok(Self { path, reader, length })
    }

    fn schema(&self) -> SchemaRef {
        match &self.reader {
            Reader::Stream(stream) => stream.schema(),
            Reader::File(file) => file.schema(),
        }
    }

    /// Returns the next batch; `None` at a proper end.
    fn advance(&mut self) -> Result<Option<RecordBatch>, TasksError> {
        let (path, reader) = (self.path, &mut self.reader);
        let batch = guarded(path, || {
            let batch = match reader {
                Reader::Stream(stream) => stream.next(),
                Reader::File(file) => file.next(),
            };
            batch.transpose().map_err(|error| broken(path, &error))
        })?;
        if batch.is_none()
            && let Some(message) = self.unfinished()
        {
            return Err(malformed(self.path, message));
        }
        Ok(batch)
    }

    /// Returns what is wrong with the end that was met. A stream that was cut off between two
    /// batches looks complete, except that the mark at its end is missing.
    fn unfinished(&self) -> Option<String> {
        let Reader::Stream(stream) = &self.reader else {
            return None;
        };
        let watched = stream.get_ref();
        let more = self.length.saturating_sub(watched.taken);
        if watched.ended {
            Some(
                "cannot be read as Arrow: the mark at the end of its stream is missing, so it was cut off or its writer never \
                 closed it: copy or write it again"
                    .to_owned(),
            )
        } else if more > 0 {
            Some(format!(
                "cannot be read as Arrow: {more} bytes follow the mark that its stream ends with, so it is damaged or several \
                 streams in one file: write it again, each stream into a file of its own"
            ))
        } else {
            None
        }
    }
}

/// Opens the file at its beginning. Returns its length, and true if it has a footer.
fn opened(path: &Path) -> io::Result<(File, u64, bool)> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    let mut first = Vec::new();
    (&mut file).take(MAGIC.len() as u64).read_to_end(&mut first)?;
    file.rewind()?;
    Ok((file, length, first == MAGIC))
}

fn guarded<T>(path: &Path, work: impl FnOnce() -> Result<T, TasksError>) -> Result<T, TasksError> {
    row::guarded(path, "Arrow", work)
}

fn broken(path: &Path, error: &ArrowError) -> TasksError {
    let cut = matches!(error, ArrowError::IoError(_, source) if source.kind() == io::ErrorKind::UnexpectedEof);
    let reason = error.to_string();
    let message = if cut {
        "cannot be read as Arrow: it is cut off in the middle: copy or write it again".to_owned()
    } else if reason.contains("lz4") {
        "is packed with LZ4, which is not read: write it with zstd or unpacked".to_owned()
    } else {
        format!("cannot be read as Arrow ({reason}): it is cut off or damaged, or no Arrow file")
    };
    malformed(path, message)
}

/// Counts the rows; values are not read.
pub(super) fn count(path: &Path) -> Result<u64, TasksError> {
    let mut batches = Batches::open(path, Some(Vec::new()))?;
    let mut rows: u64 = 0;
    while let Some(batch) = batches.advance()? {
        rows = rows.saturating_add(batch.num_rows() as u64);
    }
    Ok(rows)
}

pub(super) fn read(path: &Path, range: &Range<u64>, sink: &mut Sink<'_>) -> Result<u64, TasksError> {
    let mut batches = Batches::open(path, None)?;
    arrow_kinds::refuse(&batches.schema()).map_err(|message| malformed(path, message))?;
    let mut first: u64 = 0;
    while first < range.end {
        let Some(batch) = batches.advance()? else { break };
        let end = first.saturating_add(batch.num_rows() as u64);
        for row in first.max(range.start)..end.min(range.end) {
            let place = RowPlace::Row(row);
            let value = guarded(path, || {
                arrow_json::row(&batch, (row - first) as usize).map_err(|message| bad(path, place, message))
            })?;
            sink(Row {
                path,
                place,
                offset: 0,
                value,
            })?;
        }
        first = end;
    }
    Ok(first)
}

#[cfg(test)]
mod tests;
