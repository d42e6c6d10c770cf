//! Writes one checkpoint folder so that it is complete or absent.
//!
//! Each file goes to a hidden folder next to the final one, is hashed on its way and synced. The
//! manifest with the digests comes last. Then the folder is renamed. A crash at any point leaves at
//! most a hidden folder, which the next save removes.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::error::CheckpointError;
use super::file_digest;
use super::manifest::{MANIFEST, Manifest};

/// Called before each durable act with its name. An error stops the save there, as a crash would.
/// For crash tests.
pub type Gate = Box<dyn FnMut(&str) -> io::Result<()> + Send>;

/// A folder that is being written.
pub struct NewFolder<'a> {
    hidden: PathBuf,
    manifest: Manifest,
    gate: Option<&'a mut Gate>,
}

impl<'a> NewFolder<'a> {
    pub(super) fn begin(
        hidden: PathBuf,
        manifest: Manifest,
        gate: Option<&'a mut Gate>,
    ) -> Result<Self, CheckpointError> {
        fs::create_dir_all(&hidden).map_err(CheckpointError::io("making", &hidden))?;
        Ok(Self { hidden, manifest, gate })
    }

    /// Adds the file `name` (a relative path with `/` between folders) with the content that
    /// `write` produces.
    ///
    /// # Errors
    /// [`CheckpointError::Io`], also for an error of `write`.
    pub fn add(
        &mut self,
        name: &str,
        write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> Result<(), CheckpointError> {
        self.pass(name)?;
        let path = self.hidden.join(name);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(CheckpointError::io("making", parent))?;
        }
        let entry = file_digest::write(&path, write).map_err(CheckpointError::io("writing", &path))?;
        self.manifest.files.insert(name.into(), entry);
        Ok(())
    }

    /// Calls the gate.
    pub(super) fn pass(&mut self, act: &str) -> Result<(), CheckpointError> {
        broker::fail::point(&format!("checkpoint.{act}"));
        match &mut self.gate {
            Some(gate) => gate(act).map_err(CheckpointError::io("writing", &self.hidden.join(act))),
            None => Ok(()),
        }
    }

    /// Writes the manifest with the state's digest, syncs every folder and renames the whole to its
    /// final name.
    pub(super) fn finish(mut self, digest: String, target: &Path) -> Result<(), CheckpointError> {
        self.manifest.digest = digest;
        for folder in self.subfolders() {
            sync_folder(&folder)?;
        }
        self.pass(MANIFEST)?;
        write_synced(&self.hidden.join(MANIFEST), self.manifest.to_json().as_bytes())?;
        sync_folder(&self.hidden)?;
        self.pass("rename")?;
        fs::rename(&self.hidden, target).map_err(CheckpointError::io("naming", target))?;
        target.parent().map_or(Ok(()), sync_folder)
    }

    fn subfolders(&self) -> Vec<PathBuf> {
        let mut folders: Vec<PathBuf> = self
            .manifest
            .files
            .keys()
            .filter_map(|name| Path::new(name).parent().filter(|p| !p.as_os_str().is_empty()))
            .map(|parent| self.hidden.join(parent))
            .collect();
        folders.sort();
        folders.dedup();
        folders
    }
}

/// Writes a small file whole and syncs it.
pub(super) fn write_synced(path: &Path, bytes: &[u8]) -> Result<(), CheckpointError> {
    let write = || -> io::Result<()> {
        let mut file = File::create(path)?;
        file.write_all(bytes)?;
        file.sync_all()
    };
    write().map_err(CheckpointError::io("writing", path))
}

/// Makes renames and new names in a folder durable.
pub(super) fn sync_folder(path: &Path) -> Result<(), CheckpointError> {
    File::open(path)
        .and_then(|folder| folder.sync_all())
        .map_err(CheckpointError::io("syncing", path))
}
