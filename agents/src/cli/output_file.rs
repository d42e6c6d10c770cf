//! Files that a command names at its start and writes when its work is done.

use std::io;
use std::path::{Path, PathBuf};

use crate::base::fault::Usage;

/// A file that is written as a whole. An earlier file stays until then, and a reader of it never
/// sees half of the new one.
pub(super) struct OutputFile {
    path: PathBuf,
    /// The place to write to until the file is complete.
    partial: PathBuf,
}

impl OutputFile {
    /// Checks that the file can be written, before hours of work.
    ///
    /// # Errors
    /// It cannot.
    pub(super) fn new(path: &Path) -> Result<Self, Usage> {
        let file = Self {
            path: path.to_owned(),
            partial: partial_path(path),
        };
        // Only opened: a pipe or a terminal is written directly, and must keep its content.
        let mut open = std::fs::OpenOptions::new();
        let made = match path.is_dir() {
            true => Err(io::ErrorKind::IsADirectory.into()),
            false => open.append(true).create(true).open(&file.partial),
        };
        made.map(drop).map_err(|error| file.unwritable(&error))?;
        Ok(file)
    }

    /// Writes the file.
    ///
    /// # Errors
    /// It cannot be written any more.
    pub(super) fn write(self, bytes: &[u8]) -> Result<(), Usage> {
        let written = std::fs::write(&self.partial, bytes);
        let written = written.and_then(|()| match self.is_direct() {
            true => Ok(()),
            false => std::fs::rename(&self.partial, &self.path),
        });
        written.map_err(|error| self.unwritable(&error))
    }

    fn is_direct(&self) -> bool {
        self.partial == self.path
    }

    fn unwritable(&self, error: &io::Error) -> Usage {
        Usage::new(format!("cannot write {}: {error}", self.path.display()))
            .hint("name a file in a folder that exists and that you may write to")
    }
}

impl Drop for OutputFile {
    fn drop(&mut self) {
        // After a failure only an empty or partial file is there; after a success none.
        if !self.is_direct() {
            let _ = std::fs::remove_file(&self.partial);
        }
    }
}

/// Returns the path to write to until the file is complete.
fn partial_path(path: &Path) -> PathBuf {
    if path.exists() && !path.is_file() {
        return path.to_owned();
    }
    let mut name = path.as_os_str().to_owned();
    name.push(".partial");
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn earlier_file_stays_until_the_new_one_is_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("good.json");
        std::fs::write(&path, "earlier").unwrap();
        let text = || std::fs::read_to_string(&path).unwrap();
        drop(OutputFile::new(&path).unwrap());
        assert_eq!(text(), "earlier");
        OutputFile::new(&path).unwrap().write(b"new").unwrap();
        assert_eq!(text(), "new");
        assert_eq!(
            std::fs::read_dir(folder.path()).unwrap().count(),
            1,
            "nothing is left over"
        );
        for bad in [folder.path().join("none/x.json"), folder.path().to_owned()] {
            let error = OutputFile::new(&bad).err().unwrap();
            assert!(error.message.contains(&bad.display().to_string()), "{error}");
        }
    }
}
