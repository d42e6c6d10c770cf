//! Keeps the model of a checkpoint when the checkpoint itself is removed.

use std::fs;
use std::path::Path;

use super::base_note::{BASE, keep_base};
use super::error::CheckpointError;
use super::folder::{sync_folder, write_synced};
use super::manifest::{MANIFEST, Manifest};

/// Files that a trainer needs to continue and an engine does not.
const OF_TRAINING: [&str; 2] = ["optimizer.safetensors", "state.json"];

/// Makes `target` a folder with the checkpoint's model or adapter, its tokenizer and a separate
/// manifest. The folder is complete and verified, or absent. Files are hard links, which need no
/// space while the checkpoint exists, or copies where links are impossible.
///
/// # Errors
/// [`CheckpointError`], also for a damaged checkpoint; then `target` does not exist.
pub fn keep_model(folder: &Path, target: &Path) -> Result<(), CheckpointError> {
    let mut manifest = Manifest::read(folder)?;
    manifest
        .files
        .retain(|name, _| !OF_TRAINING.contains(&name.as_str()) && !name.contains('/'));
    let aside = target.with_extension("new");
    if aside.is_dir() {
        fs::remove_dir_all(&aside).map_err(CheckpointError::io("removing", &aside))?;
    }
    fs::create_dir_all(&aside).map_err(CheckpointError::io("making", &aside))?;
    for name in manifest.files.keys() {
        let (from, to) = (folder.join(name), aside.join(name));
        if fs::hard_link(&from, &to).is_err() {
            fs::copy(&from, &to).map_err(CheckpointError::io("copying", &from))?;
            let copy = fs::File::open(&to).map_err(CheckpointError::io("opening", &to))?;
            copy.sync_all().map_err(CheckpointError::io("syncing", &to))?;
        }
    }
    if let Some(entry) = keep_base(folder, &aside)? {
        manifest.files.insert(BASE.into(), entry);
    }
    manifest.verify(&aside)?;
    write_synced(&aside.join(MANIFEST), manifest.to_json().as_bytes())?;
    sync_folder(&aside)?;
    fs::rename(&aside, target).map_err(CheckpointError::io("naming", target))?;
    target.parent().map_or(Ok(()), sync_folder)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::{CheckpointStore, sound};

    #[test]
    fn the_model_stays_whole_when_its_checkpoint_goes() {
        let root = tempfile::tempdir().unwrap();
        let mut store = CheckpointStore::new(&root.path().join("checkpoints"), 1);
        let mut save = |step: u64| {
            store.save(step, |folder| {
                for name in [
                    "model.safetensors",
                    "optimizer.safetensors",
                    "state.json",
                    "reference/model.safetensors",
                ] {
                    folder.add(name, |out| write!(out, "{name} {step}"))?;
                }
                Ok("digest".into())
            })
        };
        let first = save(0).unwrap().folder;
        let kept = root.path().join("a");
        // Leftovers of a crash do not prevent the next attempt.
        fs::create_dir_all(kept.with_extension("new")).unwrap();
        keep_model(&first, &kept).unwrap();
        save(1).unwrap();
        assert!(!first.exists());
        let found = sound(&kept).unwrap();
        assert_eq!(found.manifest.files.keys().collect::<Vec<_>>(), ["model.safetensors"]);
        assert_eq!(
            fs::read_to_string(kept.join("model.safetensors")).unwrap(),
            "model.safetensors 0"
        );
        fs::write(kept.join("model.safetensors"), "model.safetensors 1").unwrap();
        assert!(sound(&kept).is_err(), "damage is found");
        let second = root.path().join("checkpoints/step-1");
        fs::write(second.join("model.safetensors"), "model.safetensors 2").unwrap();
        let other = root.path().join("b");
        assert!(matches!(
            keep_model(&second, &other),
            Err(CheckpointError::Digest { .. })
        ));
        assert!(!other.exists(), "what is damaged is not kept");
    }
}
