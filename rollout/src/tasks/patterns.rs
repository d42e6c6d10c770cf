//! Patterns of file names.

use std::path::{Path, PathBuf};

/// Returns the files that match a pattern, in the order of their names.
pub(super) fn matching(pattern: &Path) -> Result<Vec<PathBuf>, String> {
    let text = pattern.to_string_lossy();
    let found = glob::glob(&text).map_err(|error| format!("{text:?} is no pattern of files: {error}"))?;
    let mut files = Vec::new();
    for file in found {
        let file = file.map_err(|error| format!("cannot look for {text}: {error}"))?;
        if file.is_file() {
            files.push(file);
        }
    }
    files.sort();
    if files.is_empty() {
        let here = std::env::current_dir().unwrap_or_default();
        let what = if text.contains(['*', '?']) {
            "means no file"
        } else {
            "is not a file"
        };
        return Err(format!(
            "{text} {what} here: paths count from the working directory, {}",
            here.display()
        ));
    }
    Ok(files)
}
