//! A file that is read while it grows, each line once.

use std::fs::{File, Metadata};
use std::io::{self, BufRead, BufReader, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The place up to which a file was read.
#[derive(Debug, Default)]
pub(crate) struct Growing {
    /// The device and the number of the file.
    file: Option<(u64, u64)>,
    /// The end of the last line that was read.
    offset: u64,
    /// The number of bytes at the file's end with which reading begins, if not with all.
    newest: Option<u64>,
}

/// The lines that were not read yet.
#[derive(Debug)]
pub(crate) struct NewLines<'a> {
    file: BufReader<File>,
    read: &'a mut Growing,
    line: Vec<u8>,
}

impl Growing {
    /// Begins with the lines in the last `bytes` bytes of a file. Earlier lines are never read.
    pub(crate) fn from_newest(bytes: u64) -> Self {
        Self {
            newest: Some(bytes),
            ..Self::default()
        }
    }

    /// Opens the file after the last line that was read. Returns `None` if the file was replaced or
    /// became shorter. What was read of it no longer counts: begin with a new [`Growing`].
    pub(crate) fn open(&mut self, path: &Path) -> io::Result<Option<NewLines<'_>>> {
        let mut file = File::open(path)?;
        let data = file.metadata()?;
        let known = *self.file.get_or_insert(identity(&data));
        if known != identity(&data) || data.len() < self.offset {
            return Ok(None);
        }
        let skipped = self.newest.take().and_then(|newest| data.len().checked_sub(newest));
        let cut = skipped.is_some_and(|bytes| bytes > 0);
        // Where the byte before ends a line, the next one begins whole.
        self.offset = skipped.map_or(self.offset, |bytes| bytes.saturating_sub(1));
        file.seek(SeekFrom::Start(self.offset))?;
        let mut lines = NewLines {
            file: BufReader::new(file),
            read: self,
            line: Vec::new(),
        };
        if cut {
            lines.next_line()?;
        }
        Ok(Some(lines))
    }
}

fn identity(data: &Metadata) -> (u64, u64) {
    (data.dev(), data.ino())
}

impl NewLines<'_> {
    /// Returns the next line. A line without its newline is still being written, and comes later.
    pub(crate) fn next_line(&mut self) -> io::Result<Option<&[u8]>> {
        self.line.clear();
        let length = self.file.read_until(b'\n', &mut self.line)?;
        if self.line.pop_if(|last| *last == b'\n').is_none() {
            return Ok(None);
        }
        self.read.offset += length as u64;
        Ok(Some(&self.line))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the new lines, or `None` if the file was replaced or became shorter.
    fn new(read: &mut Growing, path: &Path) -> Option<Vec<String>> {
        let mut lines = read.open(path).unwrap()?;
        let mut found = Vec::new();
        while let Some(line) = lines.next_line().unwrap() {
            found.push(String::from_utf8(line.to_vec()).unwrap());
        }
        Some(found)
    }

    fn some(lines: &[&str]) -> Option<Vec<String>> {
        Some(lines.iter().map(|line| (*line).to_owned()).collect())
    }

    #[test]
    fn each_line_comes_once_and_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        let mut read = Growing::default();
        std::fs::write(&path, "one\n\ntw").unwrap();
        assert_eq!(new(&mut read, &path), some(&["one", ""]));
        assert_eq!(new(&mut read, &path), some(&[]));
        std::fs::write(&path, "one\n\ntwo\nthree\n").unwrap();
        assert_eq!(new(&mut read, &path), some(&["two", "three"]));
    }

    #[test]
    fn newest_lines_of_a_file_are_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        std::fs::write(&path, "one\ntwo\nthree\n").unwrap();
        for (bytes, lines) in [
            (6, some(&["three"])),
            (7, some(&["three"])),
            (9, some(&["three"])),
            (10, some(&["two", "three"])),
            (14, some(&["one", "two", "three"])),
            (99, some(&["one", "two", "three"])),
            (3, some(&[])),
        ] {
            let mut read = Growing::from_newest(bytes);
            assert_eq!(new(&mut read, &path), lines, "{bytes}");
            assert_eq!(new(&mut read, &path), some(&[]), "{bytes}");
        }
        let mut read = Growing::from_newest(3);
        assert_eq!(new(&mut read, &path), some(&[]));
        std::fs::write(&path, "one\ntwo\nthree\nfour\n").unwrap();
        assert_eq!(new(&mut read, &path), some(&["four"]));
    }

    #[test]
    fn replaced_or_shorter_file_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        std::fs::write(&path, "one\ntwo\n").unwrap();
        let mut read = Growing::default();
        assert_eq!(new(&mut read, &path), some(&["one", "two"]));
        std::fs::write(&path, "1\n").unwrap();
        assert_eq!(new(&mut read, &path), None, "shorter");
        let mut read = Growing::default();
        assert_eq!(new(&mut read, &path), some(&["1"]));
        let other = folder.path().join("y");
        std::fs::write(&other, "a longer file\n").unwrap();
        std::fs::rename(&other, &path).unwrap();
        assert_eq!(new(&mut read, &path), None, "replaced");
    }
}
