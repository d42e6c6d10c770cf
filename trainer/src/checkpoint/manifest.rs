//! `manifest.json` lists every file of a checkpoint with its length and digest. It is written last,
//! so its presence proves that the folder is complete.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::error::CheckpointError;

pub(super) const MANIFEST: &str = "manifest.json";
const FORMAT: u32 = 1;

/// The content of a checkpoint folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    pub format: u32,
    /// The number of this save among the saves in the same root folder. A larger number is a later
    /// save, even if its `step` is smaller.
    pub serial: u64,
    pub step: u64,
    /// The digest of the state, as [`super::state_digest`] defines it. Equal training gives an
    /// equal digest, because paths, times and run ids do not enter it.
    pub digest: String,
    pub files: BTreeMap<String, FileEntry>,
}

/// The length and digest of one file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileEntry {
    pub bytes: u64,
    pub blake3: String,
}

impl FileEntry {
    pub(super) fn of(path: &Path) -> Result<Self, CheckpointError> {
        let read = || -> io::Result<Self> {
            let mut hasher = blake3::Hasher::new();
            let bytes = io::copy(&mut File::open(path)?, &mut hasher)?;
            Ok(Self {
                bytes,
                blake3: hasher.finalize().to_hex().to_string(),
            })
        };
        read().map_err(CheckpointError::io("reading", path))
    }
}

impl Manifest {
    pub(super) fn new(serial: u64, step: u64, digest: &str) -> Self {
        Self {
            format: FORMAT,
            serial,
            step,
            digest: digest.into(),
            files: BTreeMap::new(),
        }
    }

    pub(super) fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }

    /// Reads the manifest of a folder without checking its files.
    ///
    /// # Errors
    /// [`CheckpointError::Unfinished`] if the folder has no manifest, [`CheckpointError::Content`]
    /// if the manifest cannot be parsed or has another format, [`CheckpointError::Io`] if it cannot
    /// be read.
    pub fn read(folder: &Path) -> Result<Self, CheckpointError> {
        let path = folder.join(MANIFEST);
        let text = match fs::read_to_string(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && folder.is_dir() => {
                return Err(CheckpointError::Unfinished(folder.to_path_buf()));
            }
            other => other.map_err(CheckpointError::io("reading", &path))?,
        };
        let manifest: Self =
            serde_json::from_str(&text).map_err(|error| CheckpointError::content(&path, error.to_string()))?;
        if manifest.format != FORMAT {
            let reason = format!("it has format {}, this build reads {FORMAT}", manifest.format);
            return Err(CheckpointError::content(&path, reason));
        }
        Ok(manifest)
    }

    /// Checks the length and digest of every file that the manifest lists.
    ///
    /// # Errors
    /// [`CheckpointError::Missing`], [`CheckpointError::Length`] or [`CheckpointError::Digest`] for
    /// the first file that differs, [`CheckpointError::Io`] if a file cannot be read.
    pub fn verify(&self, folder: &Path) -> Result<(), CheckpointError> {
        for (name, expected) in &self.files {
            let path = folder.join(name);
            let found = match fs::metadata(&path) {
                Ok(metadata) if metadata.is_file() => metadata.len(),
                _ => {
                    return Err(CheckpointError::Missing {
                        folder: folder.to_path_buf(),
                        file: name.clone(),
                    });
                }
            };
            if found != expected.bytes {
                return Err(CheckpointError::Length {
                    path,
                    found,
                    expected: expected.bytes,
                });
            }
            if FileEntry::of(&path)? != *expected {
                return Err(CheckpointError::Digest { path });
            }
        }
        Ok(())
    }
}
