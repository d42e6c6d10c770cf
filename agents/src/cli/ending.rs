//! What a person is told at the end of a run.

use crate::folder::RunFolder;

/// Prints where the run's folder is.
pub fn tell(folder: &RunFolder) -> anyhow::Result<()> {
    println!("run folder: {}", folder.path().display());
    Ok(())
}
