//! Why a checkpoint could not be written, or is rejected.

use std::path::{Path, PathBuf};

/// Names the file and its fault.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    #[error("{doing} {}: {source}", path.display())]
    Io {
        doing: &'static str,
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("there is no checkpoint in {}", .0.display())]
    None(PathBuf),
    #[error("{} is not a checkpoint: it has no manifest, so its writing never finished", .0.display())]
    Unfinished(PathBuf),
    #[error("{} has no {file}", folder.display())]
    Missing { folder: PathBuf, file: String },
    #[error("{} has {found} bytes, its manifest says {expected}: it is truncated or was changed", path.display())]
    Length { path: PathBuf, found: u64, expected: u64 },
    #[error("{} does not have the digest of its manifest: it is damaged or was changed", path.display())]
    Digest { path: PathBuf },
    #[error("{}: {reason}", path.display())]
    Content { path: PathBuf, reason: String },
    #[error("the checkpoint in {} belongs to another model: {reason}", path.display())]
    OtherModel { path: PathBuf, reason: String },
}

impl CheckpointError {
    /// Returns true if the files are not those that were saved, or cannot be read. An earlier
    /// checkpoint may be undamaged.
    #[must_use]
    pub fn is_damage(&self) -> bool {
        match self {
            Self::Io { .. } | Self::Unfinished(_) | Self::Missing { .. } => true,
            Self::Length { .. } | Self::Digest { .. } => true,
            Self::None(_) | Self::Content { .. } | Self::OtherModel { .. } => false,
        }
    }

    /// Returns a function for `map_err`.
    pub(crate) fn io(doing: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| Self::Io { doing, path, source }
    }

    pub(crate) fn content(path: &Path, reason: impl Into<String>) -> Self {
        Self::Content {
            path: path.to_path_buf(),
            reason: reason.into(),
        }
    }
}
