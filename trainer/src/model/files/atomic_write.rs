//! Writes files so that a crash leaves the old or the new content, never a half: another name
//! first, synced, then renamed.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::model::error::{ModelError, Result};

/// Writes next to `path`, syncs, renames to `path` and syncs the folder. `content` may pass on a
/// [`ModelError`] as an error of another kind.
pub(in crate::model) fn write_atomically(
    path: &Path,
    content: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<()> {
    let mut aside = path.as_os_str().to_owned();
    aside.push(format!(".tmp-{}", std::process::id()));
    let aside = PathBuf::from(aside);
    let write = || -> io::Result<()> {
        let mut file = io::BufWriter::with_capacity(1 << 20, File::create(&aside)?);
        content(&mut file)?;
        file.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
        fs::rename(&aside, path)?;
        if let Some(folder) = path.parent() {
            File::open(folder)?.sync_all()?;
        }
        Ok(())
    };
    write().map_err(|error| {
        let _ = fs::remove_file(&aside);
        let io = |source| ModelError::Io {
            doing: "writing",
            path: path.to_owned(),
            source,
        };
        error.downcast::<ModelError>().unwrap_or_else(io)
    })
}

pub(in crate::model) fn io<'a>(doing: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> ModelError + 'a {
    move |source| ModelError::Io {
        doing,
        path: path.to_owned(),
        source,
    }
}
