//! `manifest.json` lists every file of a checkpoint with its length and digest. It is written last,
//! so its presence proves that the folder is complete.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::error::CheckpointError;
use super::file_digest;

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
    /// The digest of the state, as `StateDigest` defines it. Equal training gives an equal digest,
    /// because paths, times and run ids do not enter it.
    pub digest: String,
    pub files: BTreeMap<String, FileEntry>,
}

/// The length and digest of one file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileEntry {
    pub bytes: u64,
    pub blake3: String,
}

impl Manifest {
    /// A manifest without files and digest.
    pub(super) fn new(serial: u64, step: u64) -> Self {
        Self {
            format: FORMAT,
            serial,
            step,
            digest: String::new(),
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
        self.verify_marked(folder, &|| {})
    }

    /// [`Self::verify`] that calls `read` for each block of a file.
    pub(super) fn verify_marked(&self, folder: &Path, read: &dyn Fn()) -> Result<(), CheckpointError> {
        self.check_lengths(folder)?;
        self.files
            .keys()
            .try_for_each(|name| self.verify_file(folder, name, read))
    }

    /// Checks the digest of one file. Calls `read` for each block of it.
    pub(super) fn verify_file(&self, folder: &Path, name: &str, read: &dyn Fn()) -> Result<(), CheckpointError> {
        let path = folder.join(name);
        let found = file_digest::of(&path, read).map_err(CheckpointError::io("reading", &path))?;
        if self.files.get(name) != Some(&found) {
            return Err(CheckpointError::Digest { path });
        }
        Ok(())
    }

    /// Checks that every file exists with its recorded length, without reading it.
    pub(super) fn check_lengths(&self, folder: &Path) -> Result<(), CheckpointError> {
        for (name, entry) in &self.files {
            let (path, expected) = (folder.join(name), entry.bytes);
            let found = match fs::metadata(&path) {
                Ok(metadata) if metadata.is_file() => metadata.len(),
                _ => {
                    return Err(CheckpointError::Missing {
                        folder: folder.to_path_buf(),
                        file: name.clone(),
                    });
                }
            };
            if found != expected {
                return Err(CheckpointError::Length { path, found, expected });
            }
        }
        Ok(())
    }
}
