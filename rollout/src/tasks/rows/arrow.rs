//! Reads Arrow files, one record batch at a time. A file is either a stream, which Hugging Face's
//! `datasets` writes, or it has a footer.

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

/// The first bytes of a file with a footer. A stream begins with its first message.
const MAGIC: &[u8] = b"ARROW1";

/// The record batches of a file. One is in memory at a time.
struct Batches<'a> {
    path: &'a Path,
    reader: Reader,
    /// The size of the file in bytes.
    length: u64,
}

enum Reader {
    Stream(StreamReader<CountingReader<BufReader<File>>>),
    File(FileReader<BufReader<File>>),
}

/// Counts the bytes that are read, and records that the end of the file was reached.
struct CountingReader<R> {
    inner: R,
    bytes_read: u64,
    at_end: bool,
}

impl<R: Read> Read for CountingReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.inner.read(buffer)?;
        self.bytes_read += length as u64;
        self.at_end |= length == 0 && !buffer.is_empty();
        Ok(length)
    }
}

impl<'a> Batches<'a> {
    /// Opens the file to read the columns with these indices, or all columns for `None`.
    fn open(path: &'a Path, columns: Option<Vec<usize>>) -> Result<Self, TasksError> {
        let (file, length, has_footer) = open_file(path).map_err(|source| unreadable(path, source))?;
        let mut file = BufReader::new(file);
        // Before the library allocates the lengths that a damaged file claims.
        let fault = guarded(path, || {
            let checked = arrow_packed::fault(&mut file, has_footer).and_then(|fault| file.rewind().map(|()| fault));
            checked.map_err(|source| unreadable(path, source))
        })?;
        if let Some(message) = fault {
            return Err(malformed(path, message));
        }
        let reader = guarded(path, || {
            let reader = if has_footer {
                FileReader::try_new(file, columns).map(Reader::File)
            } else {
                let file = CountingReader {
                    inner: file,
                    bytes_read: 0,
                    at_end: false,
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

    /// Returns the next batch; `None` after the last.
    ///
    /// # Errors
    /// The file is damaged or cut off, or bytes follow its end.
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
            && let Some(message) = self.wrong_end()
        {
            return Err(malformed(self.path, message));
        }
        Ok(batch)
    }

    /// Returns an error text if a stream ended in the wrong place; `None` if its end is right. A
    /// stream that was cut off between two batches looks complete: only its end mark is missing.
    fn wrong_end(&self) -> Option<String> {
        let Reader::Stream(stream) = &self.reader else {
            return None;
        };
        let file = stream.get_ref();
        let more = self.length.saturating_sub(file.bytes_read);
        if file.at_end {
            Some(
                "cannot be read as Arrow: its stream has no end mark. It was cut off, or its writer did not close it: copy or \
                 write it again"
                    .to_owned(),
            )
        } else if more > 0 {
            Some(format!(
                "cannot be read as Arrow: {more} bytes follow the mark at the end of its stream. It is damaged, or holds several \
                 streams: write each stream to a separate file"
            ))
        } else {
            None
        }
    }
}

/// Opens the file at its beginning. Returns its length, and true if it has a footer.
fn open_file(path: &Path) -> io::Result<(File, u64, bool)> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    let mut beginning = Vec::new();
    (&mut file).take(MAGIC.len() as u64).read_to_end(&mut beginning)?;
    file.rewind()?;
    Ok((file, length, beginning == MAGIC))
}

fn guarded<T>(path: &Path, work: impl FnOnce() -> Result<T, TasksError>) -> Result<T, TasksError> {
    row::guarded(path, "Arrow", work)
}

fn broken(path: &Path, error: &ArrowError) -> TasksError {
    let cut = matches!(error, ArrowError::IoError(_, source) if source.kind() == io::ErrorKind::UnexpectedEof);
    let reason = error.to_string();
    let message = if cut {
        "cannot be read as Arrow: it is cut off; copy or write it again".to_owned()
    } else if reason.contains("lz4") {
        "is packed with LZ4, which is not read: write it with zstd or without compression".to_owned()
    } else {
        format!("cannot be read as Arrow ({reason}): it is cut off, damaged, or not an Arrow file")
    };
    malformed(path, message)
}

/// Counts the rows without reading their values.
pub(super) fn count(path: &Path) -> Result<u64, TasksError> {
    let mut batches = Batches::open(path, Some(Vec::new()))?;
    let mut rows: u64 = 0;
    while let Some(batch) = batches.advance()? {
        rows = rows.saturating_add(batch.num_rows() as u64);
    }
    Ok(rows)
}

/// Passes the rows in `range` to `sink`. Returns the number of rows in the batches that were read.
pub(super) fn read(path: &Path, range: &Range<u64>, sink: &mut Sink<'_>) -> Result<u64, TasksError> {
    let mut batches = Batches::open(path, None)?;
    arrow_kinds::refuse(&batches.schema()).map_err(|message| malformed(path, message))?;
    let mut batch_start: u64 = 0;
    while batch_start < range.end {
        let Some(batch) = batches.advance()? else { break };
        let batch_end = batch_start.saturating_add(batch.num_rows() as u64);
        for row in batch_start.max(range.start)..batch_end.min(range.end) {
            let place = RowPlace::Row(row);
            let value = guarded(path, || {
                arrow_json::row(&batch, (row - batch_start) as usize).map_err(|message| bad(path, place, message))
            })?;
            sink(Row {
                path,
                place,
                offset: 0,
                parsed: value.into(),
            })?;
        }
        batch_start = batch_end;
    }
    Ok(batch_start)
}

#[cfg(test)]
mod tests;
