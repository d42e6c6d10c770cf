//! Writes files so that a crash leaves the old or the new content, never a half: another name
//! first, synced, then renamed.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::model::error::{ModelError, Result};

/// A failure while a file's content is produced.
#[derive(Debug)]
pub(in crate::model) enum WriteError {
    Io(std::io::Error),
    Model(ModelError),
}

impl From<std::io::Error> for WriteError {
    fn from(error: std::io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<ModelError> for WriteError {
    fn from(error: ModelError) -> Self {
        Self::Model(error)
    }
}

/// Writes next to `path`, syncs, renames to `path` and syncs the folder.
pub(in crate::model) fn write_atomically(
    path: &Path,
    content: impl FnOnce(&mut dyn Write) -> std::result::Result<(), WriteError>,
) -> Result<()> {
    let mut aside = path.as_os_str().to_owned();
    aside.push(format!(".tmp-{}", std::process::id()));
    let aside = PathBuf::from(aside);
    let written = (|| {
        let mut file = std::io::BufWriter::with_capacity(1 << 20, File::create(&aside)?);
        content(&mut file)?;
        file.into_inner()
            .map_err(std::io::IntoInnerError::into_error)?
            .sync_all()?;
        fs::rename(&aside, path)?;
        if let Some(folder) = path.parent() {
            File::open(folder)?.sync_all()?;
        }
        Ok(())
    })();
    written.map_err(|error| {
        let _ = fs::remove_file(&aside);
        match error {
            WriteError::Io(source) => ModelError::Io {
                doing: "writing",
                path: path.to_owned(),
                source,
            },
            WriteError::Model(error) => error,
        }
    })
}

pub(in crate::model) fn io<'a>(doing: &'static str, path: &'a Path) -> impl FnOnce(std::io::Error) -> ModelError + 'a {
    move |source| ModelError::Io {
        doing,
        path: path.to_owned(),
        source,
    }
}
