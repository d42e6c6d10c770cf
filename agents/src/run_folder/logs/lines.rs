//! Lines of a growing file, by offset: from the end backwards, and new ones.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

/// The smallest part that is read at once.
const CHUNK: u64 = 64 << 10;
/// The most new bytes that are read at once.
const MOST: u64 = 128 << 10;

/// A line and the offset of its first byte.
pub(crate) type Line = (u64, Vec<u8>);

/// Reads whole lines from an offset back to the beginning of the file. The last line counts if it
/// ends with a newline.
#[derive(Debug)]
pub(crate) struct Backward {
    file: File,
    /// The offset of the buffer's first byte.
    start: u64,
    /// Bytes that were read and not returned; they end with a newline once `is_whole`.
    buffer: Vec<u8>,
    is_whole: bool,
}

impl Backward {
    /// Begins before `before`, the offset of a line, or at the end of the file.
    pub(crate) fn open(path: &Path, before: Option<u64>) -> io::Result<Self> {
        let file = File::open(path)?;
        let length = file.metadata()?.len();
        Ok(Self {
            file,
            start: before.unwrap_or(length).min(length),
            buffer: Vec::new(),
            is_whole: false,
        })
    }

    /// Returns the offset up to which lines are still to come.
    pub(crate) fn offset(&self) -> u64 {
        self.start + self.buffer.len() as u64
    }

    /// Returns the line before those returned so far.
    pub(crate) fn next_line(&mut self) -> io::Result<Option<Line>> {
        loop {
            if !self.is_whole {
                // A line that is still being written has no newline yet.
                if let Some(end) = self.buffer.iter().rposition(|byte| *byte == b'\n') {
                    self.buffer.truncate(end + 1);
                    self.is_whole = true;
                }
            }
            if self.is_whole
                && let Some(text) = self.buffer.len().checked_sub(1)
            {
                let newline = self
                    .buffer
                    .get(..text)
                    .and_then(|part| part.iter().rposition(|byte| *byte == b'\n'));
                if newline.is_some() || self.start == 0 {
                    let begin = newline.map_or(0, |at| at + 1);
                    let mut line = self.buffer.split_off(begin);
                    line.pop();
                    return Ok(Some((self.start + begin as u64, line)));
                }
            }
            if self.start == 0 {
                return Ok(None);
            }
            self.fill()?;
        }
    }

    /// Reads the part before the buffer. It doubles, so that a long line is not copied too often.
    fn fill(&mut self) -> io::Result<()> {
        let size = CHUNK.max(self.buffer.len() as u64).min(self.start);
        self.start -= size;
        self.file.seek(SeekFrom::Start(self.start))?;
        let mut part = vec![0; usize::try_from(size).unwrap_or(usize::MAX)];
        self.file.read_exact(&mut part)?;
        part.append(&mut self.buffer);
        self.buffer = part;
        Ok(())
    }
}

/// Returns the offset after the last complete line.
pub(crate) fn end(path: &Path) -> io::Result<u64> {
    let last = Backward::open(path, None)?.next_line()?;
    Ok(last.map_or(0, |(at, line)| at + line.len() as u64 + 1))
}

/// Returns the whole lines that begin at `after` or later, and the offset behind them. A file that
/// became shorter is read from its start.
pub(crate) fn forward(path: &Path, after: u64) -> io::Result<(Vec<Line>, u64)> {
    let mut file = File::open(path)?;
    let begin = if file.metadata()?.len() < after { 0 } else { after };
    file.seek(SeekFrom::Start(begin))?;
    let mut text = Vec::new();
    let mut file = BufReader::new(file);
    file.by_ref().take(MOST).read_to_end(&mut text)?;
    if text.len() as u64 == MOST && !text.contains(&b'\n') {
        // One line is longer: the lines behind it come after it.
        file.read_until(b'\n', &mut text)?;
    }
    let Some(end) = text.iter().rposition(|byte| *byte == b'\n') else {
        return Ok((Vec::new(), begin));
    };
    text.truncate(end);
    let mut at = begin;
    let mut lines = Vec::new();
    for line in text.split(|byte| *byte == b'\n') {
        lines.push((at, line.to_vec()));
        at += line.len() as u64 + 1;
    }
    Ok((lines, at))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(reader: &mut Backward) -> Vec<(u64, String)> {
        std::iter::from_fn(|| reader.next_line().unwrap())
            .map(|(at, line)| (at, String::from_utf8(line).unwrap()))
            .collect()
    }

    #[test]
    fn lines_come_backwards_with_their_offsets() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        std::fs::write(&path, "one\n\nthree\nunfini").unwrap();
        let found = all(&mut Backward::open(&path, None).unwrap());
        assert_eq!(found, [(5, "three".into()), (4, String::new()), (0, "one".into())]);
        let found = all(&mut Backward::open(&path, Some(5)).unwrap());
        assert_eq!(found, [(4, String::new()), (0, "one".into())]);
        std::fs::write(&path, "unfini").unwrap();
        assert!(all(&mut Backward::open(&path, None).unwrap()).is_empty());
    }

    #[test]
    fn long_lines_are_whole_and_both_directions_agree() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        let lines: Vec<String> = (0..50).map(|i| "ab".repeat(i * i * 40)).collect();
        std::fs::write(&path, lines.join("\n") + "\n").unwrap();
        let mut back = all(&mut Backward::open(&path, None).unwrap());
        back.reverse();
        let (mut ahead, mut end) = forward(&path, 0).unwrap();
        assert!(end < std::fs::metadata(&path).unwrap().len(), "one call reads a part");
        loop {
            let (more, next) = forward(&path, end).unwrap();
            if more.is_empty() {
                break;
            }
            ahead.extend(more);
            end = next;
        }
        let ahead: Vec<(u64, String)> = ahead
            .into_iter()
            .map(|(at, line)| (at, String::from_utf8(line).unwrap()))
            .collect();
        assert_eq!(back, ahead);
        assert_eq!(end, std::fs::metadata(&path).unwrap().len());
        assert_eq!(back.iter().map(|(_, line)| line.clone()).collect::<Vec<_>>(), lines);
    }

    #[test]
    fn new_lines_come_once_and_a_shorter_file_begins_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        std::fs::write(&path, "one\ntw").unwrap();
        assert_eq!(forward(&path, 0).unwrap(), (vec![(0, b"one".to_vec())], 4));
        assert_eq!(end(&path).unwrap(), 4);
        std::fs::write(&path, "one\ntwo\n").unwrap();
        assert_eq!(forward(&path, 4).unwrap(), (vec![(4, b"two".to_vec())], 8));
        assert_eq!(forward(&path, 8).unwrap(), (vec![], 8));
        std::fs::write(&path, "new\n").unwrap();
        assert_eq!(forward(&path, 8).unwrap().0, [(0, b"new".to_vec())]);
    }
}
