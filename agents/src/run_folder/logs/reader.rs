//! Reads JSON lines: a whole file, or a file that grows.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;

/// Returns every line of the file that parses as a `T`. Other lines (of another kind, or still
/// being written) are skipped.
pub fn read_json_lines<T: DeserializeOwned>(path: &Path) -> io::Result<Vec<T>> {
    let text = std::fs::read(path)?;
    Ok(text
        .split(|byte| *byte == b'\n')
        .filter_map(|line| serde_json::from_slice(line).ok())
        .collect())
}

/// A file that is read while it grows, in whole lines.
#[derive(Debug)]
pub struct Tail {
    path: PathBuf,
    offset: u64,
    rest: Vec<u8>,
}

impl Tail {
    /// Starts at the beginning of the file, which may not exist yet.
    #[must_use]
    pub fn new(path: PathBuf) -> Self {
        Self {
            path,
            offset: 0,
            rest: Vec::new(),
        }
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the lines completed since the last call. A file that became shorter is read from its
    /// start.
    pub fn lines(&mut self) -> io::Result<Vec<String>> {
        let mut file = match File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        if file.metadata()?.len() < self.offset {
            self.offset = 0;
            self.rest.clear();
        }
        file.seek(SeekFrom::Start(self.offset))?;
        self.offset += file.read_to_end(&mut self.rest)? as u64;
        let Some(end) = self.rest.iter().rposition(|byte| *byte == b'\n') else {
            return Ok(Vec::new());
        };
        let rest = self.rest.split_off(end + 1);
        let whole = std::mem::replace(&mut self.rest, rest);
        Ok(String::from_utf8_lossy(&whole).lines().map(str::to_owned).collect())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_tail_returns_whole_lines_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        let mut tail = Tail::new(path.clone());
        assert!(tail.lines().unwrap().is_empty());
        let mut file = File::create(&path).unwrap();
        write!(file, "one\ntw").unwrap();
        assert_eq!(tail.lines().unwrap(), ["one"]);
        write!(file, "o\nthree\n").unwrap();
        assert_eq!(tail.lines().unwrap(), ["two", "three"]);
        assert!(tail.lines().unwrap().is_empty());
        std::fs::write(&path, "new\n").unwrap();
        assert_eq!(tail.lines().unwrap(), ["new"], "a file that was written again");
    }
}
