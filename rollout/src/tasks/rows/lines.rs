//! Files of JSON: an object per line, or one list of objects; plain, gzip or Zstandard.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::ops::Range;
use std::path::Path;

use broker::codec::{Parsed, explain_json, parse_exact_json};

use super::row::{Packing, Row, RowPlace, Sink, bad, unreadable};
use crate::tasks::{MARK, TasksError};

/// The most bytes of a line.
const LONGEST_LINE: u64 = 64 << 20;
/// The most bytes of a file that is one list.
const LONGEST_LIST: u64 = 2 << 30;

/// The way from a table of text to a format that is read.
pub(crate) const CONVERT: &str =
    "write JSON lines or Parquet, as pandas' to_json(PATH, orient=\"records\", lines=True) does";

/// Reads a whole file, unpacked if its name ends in `.gz` or `.zst`.
///
/// # Errors
/// The file cannot be read or unpacked.
pub fn read_unpacked(path: &Path) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    open(path, Packing::of(path))?.read_to_end(&mut text)?;
    Ok(text)
}

fn open(path: &Path, packing: Packing) -> io::Result<Box<dyn BufRead>> {
    let file = BufReader::new(File::open(path)?);
    Ok(match packing {
        Packing::Plain => Box::new(file),
        Packing::Gzip => Box::new(BufReader::new(flate2::bufread::MultiGzDecoder::new(file))),
        Packing::Zstd => Box::new(BufReader::new(zstd::stream::read::Decoder::with_buffer(file)?)),
    })
}

/// Returns true if the file begins as a list does. A file that cannot be read gives false; reading
/// it later reports the reason.
pub(super) fn is_list(path: &Path, packing: Packing) -> bool {
    let first = open(path, packing).ok().and_then(|file| {
        let mut bytes = file.bytes().map_while(Result::ok);
        // The skipped bytes of a mark begin no JSON.
        bytes.find(|byte| !byte.is_ascii_whitespace() && !MARK.as_bytes().contains(byte))
    });
    first == Some(b'[')
}

/// Calls `each` with (number from 1, offset, text) of every line that is not blank, until it
/// returns false.
fn scan(
    path: &Path,
    packing: Packing,
    mut each: impl FnMut(u64, u64, &[u8]) -> Result<bool, TasksError>,
) -> Result<(), TasksError> {
    let mut file = open(path, packing).map_err(|source| unreadable(path, source))?;
    let (mut line, mut number, mut offset) = (Vec::new(), 0, 0);
    loop {
        line.clear();
        let length = (&mut file)
            .take(LONGEST_LINE + 1)
            .read_until(b'\n', &mut line)
            .map_err(|source| unreadable(path, source))?;
        if length == 0 {
            return Ok(());
        }
        number += 1;
        if length as u64 > LONGEST_LINE {
            let message = format!("is longer than {LONGEST_LINE} bytes: each line is one task");
            return Err(bad(path, RowPlace::Line(number), message));
        }
        let text: &[u8] = if number == 1 { unmarked(&line) } else { &line };
        let start = offset + (line.len() - text.len()) as u64;
        if !text.trim_ascii().is_empty() && !each(number, start, text)? {
            return Ok(());
        }
        offset += length as u64;
    }
}

pub(super) fn count(path: &Path, packing: Packing) -> Result<u64, TasksError> {
    let mut rows = 0;
    scan(path, packing, |_, _, _| {
        rows += 1;
        Ok(true)
    })?;
    Ok(rows)
}

pub(super) fn read(path: &Path, packing: Packing, range: &Range<u64>, sink: &mut Sink<'_>) -> Result<u64, TasksError> {
    let mut rows = 0;
    scan(path, packing, |number, offset, line| {
        if range.contains(&rows) {
            let place = RowPlace::Line(number);
            let parsed = parse(line);
            if rows == 0 && begins_a_list(line, parsed.as_ref().ok()) {
                return Err(bad(path, place, LIST.into()));
            }
            let parsed = parsed.map_err(|message| bad(path, place, named(path, message)))?;
            sink(Row {
                path,
                place,
                offset,
                parsed,
            })?;
        }
        rows += 1;
        Ok(rows < range.end)
    })?;
    Ok(rows)
}

const LIST: &str = "the file is one JSON list: name it .json, or write an object per line";

/// Returns true if the first line is a whole list, or the beginning of one over several lines.
fn begins_a_list(line: &[u8], parsed: Option<&Parsed>) -> bool {
    match parsed {
        Some(parsed) => parsed.value.is_array(),
        None => [&b"["[..], b"[{"].contains(&line.trim_ascii()),
    }
}

/// Adds the reason that the file's name gives.
fn named(path: &Path, message: String) -> String {
    let extension = path.extension().and_then(|extension| extension.to_str());
    match extension {
        Some(kind @ ("csv" | "tsv")) => format!("{message}; .{kind} is not read: {CONVERT}"),
        _ => message,
    }
}

/// Returns the beginning of a file without its mark.
fn unmarked(text: &[u8]) -> &[u8] {
    text.strip_prefix(MARK.as_bytes()).unwrap_or(text)
}

/// Parses a line as JSON.
pub(crate) fn parse(line: &[u8]) -> Result<Parsed, String> {
    parse_exact_json(line).map_err(|error| match line {
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => "it begins as UTF-16 does: write the file as UTF-8".to_owned(),
        [0x1f, 0x8b, ..] => "it is gzip: name the file .gz".to_owned(),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => "it is Zstandard: name the file .zst".to_owned(),
        _ => format!("not JSON: {}", explain_json(line, &error)),
    })
}

/// Reads a whole list, which is in memory while it is read.
pub(super) fn list(path: &Path, packing: Packing) -> Result<Vec<Parsed>, TasksError> {
    let mut text = Vec::new();
    open(path, packing)
        .and_then(|file| file.take(LONGEST_LIST + 1).read_to_end(&mut text))
        .map_err(|source| unreadable(path, source))?;
    if text.len() as u64 > LONGEST_LIST {
        return Err(TasksError::Format {
            path: path.to_owned(),
            message: format!("is one list of more than {LONGEST_LIST} bytes: write an object per line (.jsonl)"),
        });
    }
    let parsed = parse_exact_json(unmarked(&text)).map_err(|error| {
        let place = RowPlace::Line(error.line() as u64);
        bad(
            path,
            place,
            format!("not a list of JSON objects: {}", explain_json(&text, &error)),
        )
    })?;
    Ok(parsed.into_list())
}

pub(super) fn read_list(
    path: &Path,
    packing: Packing,
    range: &Range<u64>,
    sink: &mut Sink<'_>,
) -> Result<u64, TasksError> {
    let rows = list(path, packing)?;
    let all = rows.len() as u64;
    for (row, parsed) in (0..).zip(rows).filter(|(row, _)| range.contains(row)) {
        sink(Row {
            path,
            place: RowPlace::Row(row),
            offset: 0,
            parsed,
        })?;
    }
    Ok(all)
}
