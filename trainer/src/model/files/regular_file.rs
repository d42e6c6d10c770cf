//! Faults of a file that a model's folder should have: it is missing, a broken link, a folder, or a
//! pointer of Git LFS.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use super::atomic_write::io;
use crate::model::error::{ModelError, Result};

/// The start of the text that Git stores in place of a large file.
pub(super) const POINTER: &str = "version https://git-lfs";

/// Checks that `path` is a file, or a link to one.
///
/// # Errors
/// [`ModelError::Format`] with the fault and the fix; [`ModelError::Io`] for other failures.
pub(super) fn require(path: &Path) -> Result<()> {
    let reason = match fs::metadata(path) {
        Ok(found) if found.is_file() => return Ok(()),
        Ok(found) if found.is_dir() => "it is a folder in place of a file: fetch the file".to_owned(),
        Ok(_) => "it is not a regular file: fetch the file".to_owned(),
        Err(error) => match fs::read_link(path) {
            Ok(target) => format!(
                "it is a link to {}, which cannot be opened ({error}): fetch the file again",
                target.display()
            ),
            Err(_) if error.kind() == ErrorKind::NotFound => {
                "there is no such file: fetch it from the repository that the other files came from".to_owned()
            }
            Err(_) => return Err(io("opening", path)(error)),
        },
    };
    Err(format(path, reason))
}

/// Returns the error for a Git LFS pointer in place of the file.
pub(super) fn pointer(path: &Path) -> ModelError {
    format(
        path,
        "it is a Git LFS pointer, not the file: run `git lfs pull` in its folder",
    )
}

pub(super) fn format(path: &Path, reason: impl Into<String>) -> ModelError {
    ModelError::Format {
        path: path.to_owned(),
        reason: reason.into(),
    }
}
