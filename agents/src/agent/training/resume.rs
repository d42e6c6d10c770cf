//! Chooses the checkpoint to continue from. The trainer verifies it while it loads it, so that a
//! state of many gigabytes is read once.

use std::path::{Path, PathBuf};

use anyhow::Context;
use trainer::checkpoint::{self, CheckpointError};
use trainer::train::{Refusal, TrainError};

/// Gives `load` the checkpoints under `root`, newest first, until one is not damaged. Returns its
/// folder, or `None` if there is no checkpoint.
pub(super) async fn newest<T>(
    root: &Path,
    mut load: impl AsyncFnMut(&Path) -> anyhow::Result<T>,
) -> anyhow::Result<Option<PathBuf>> {
    let found = match checkpoint::complete(root) {
        Err(CheckpointError::None(_)) => return Ok(None),
        found => found.context("looking for a checkpoint")?,
    };
    let mut fault = None;
    for checkpoint in found {
        match load(&checkpoint.folder).await {
            Ok(_) => return Ok(Some(checkpoint.folder)),
            Err(error) if is_damage(&error) => {
                tracing::warn!(%error, "a checkpoint is damaged; trying an earlier one");
                fault.get_or_insert(error);
            }
            Err(error) => return Err(error),
        }
    }
    fault.map_or(Ok(None), Err)
}

fn is_damage(error: &anyhow::Error) -> bool {
    match error.downcast_ref() {
        Some(TrainError::User {
            reason: Refusal::Checkpoint(error),
            ..
        }) => error.is_damage(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use trainer::checkpoint::CheckpointStore;

    use super::*;

    /// Returns a root with checkpoints of steps 1, 2 and 3.
    fn saved() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let mut store = CheckpointStore::new(root.path(), 3);
        for step in 1..=3 {
            let saved = store.save(step, |folder| {
                folder.add("state.json", |out| write!(out, "{step}"))?;
                Ok("digest".into())
            });
            saved.unwrap();
        }
        root
    }

    /// Returns the names of the folders that were given to `load`, and the outcome.
    async fn tried(
        root: &Path,
        load: impl Fn(&Path) -> Result<(), CheckpointError>,
    ) -> (Vec<String>, anyhow::Result<Option<PathBuf>>) {
        let mut names = Vec::new();
        let outcome = newest(root, async |folder: &Path| {
            names.push(folder.file_name().unwrap().to_str().unwrap().to_owned());
            load(folder).map_err(|error| {
                let reason = error.into();
                TrainError::User { seq: 1, reason }.into()
            })
        });
        let outcome = outcome.await;
        (names, outcome)
    }

    fn verified(folder: &Path) -> Result<(), CheckpointError> {
        checkpoint::sound(folder).map(drop)
    }

    #[tokio::test]
    async fn a_damaged_checkpoint_gives_way_to_an_earlier_one() {
        let root = saved();
        std::fs::write(root.path().join("step-3/state.json"), "x").unwrap();
        let (names, outcome) = tried(root.path(), verified).await;
        assert_eq!(names, ["step-3", "step-2"]);
        assert_eq!(outcome.unwrap(), Some(root.path().join("step-2")));
        for step in [1, 2] {
            std::fs::write(root.path().join(format!("step-{step}/state.json")), "x").unwrap();
        }
        let (names, outcome) = tried(root.path(), verified).await;
        assert_eq!(names, ["step-3", "step-2", "step-1"]);
        let fault = outcome.unwrap_err().to_string();
        assert!(fault.contains("step-3") && fault.contains("it is damaged"), "{fault}");
    }

    #[tokio::test]
    async fn a_checkpoint_of_another_model_is_an_error() {
        let root = saved();
        let misfit = |folder: &Path| {
            let (path, reason) = (folder.to_owned(), "it has other layers".into());
            Err(CheckpointError::OtherModel { path, reason })
        };
        let (names, outcome) = tried(root.path(), misfit).await;
        assert_eq!(names, ["step-3"]);
        assert!(outcome.unwrap_err().to_string().contains("another model"));
    }

    /// A start reads gigabytes once: the trainer does it.
    #[tokio::test]
    async fn digests_are_left_to_the_trainer() {
        let root = saved();
        std::fs::write(root.path().join("step-3/state.json"), "x").unwrap();
        let (names, outcome) = tried(root.path(), |_| Ok(())).await;
        assert_eq!(names, ["step-3"]);
        assert_eq!(outcome.unwrap(), Some(root.path().join("step-3")));
        let empty = tempfile::tempdir().unwrap();
        let (names, outcome) = tried(empty.path(), |_| Ok(())).await;
        assert_eq!((names.len(), outcome.unwrap()), (0, None));
    }
}
