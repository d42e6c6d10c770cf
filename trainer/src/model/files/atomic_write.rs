//! Writes files of a model as a whole.

use std::io::{self, Write};
use std::path::Path;

use broker::atomic_file;

use crate::model::error::{ModelError, Result};

/// Replaces the file. `content` may pass on a [`ModelError`] as an error of another kind.
pub(in crate::model) fn write_atomically(
    path: &Path,
    content: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<()> {
    atomic_file::replace_with(path, content)
        .map_err(|error| error.downcast::<ModelError>().unwrap_or_else(io("writing", path)))
}

pub(in crate::model) fn io<'a>(doing: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> ModelError + 'a {
    move |source| ModelError::Io {
        doing,
        path: path.to_owned(),
        source,
    }
}
