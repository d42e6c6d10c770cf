//! A root of checkpoint folders: `step-N/` each, and `LATEST` with the name of the newest.

use std::fs;
use std::path::{Path, PathBuf};

use super::error::CheckpointError;
use super::folder::{Gate, NewFolder, sync_folder, write_synced};
use super::manifest::Manifest;

const LATEST: &str = "LATEST";
/// The prefix of folders that are being written or removed.
const HIDDEN: &str = ".step-";

/// The checkpoints of one agent. Only one writer at a time.
pub struct CheckpointStore {
    root: PathBuf,
    keep: usize,
    gate: Option<Gate>,
}

/// One finished checkpoint; its files are not yet verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    pub folder: PathBuf,
    pub manifest: Manifest,
}

impl CheckpointStore {
    /// The checkpoints under `root`, of which `keep` (at least 1) stay.
    #[must_use]
    pub fn new(root: &Path, keep: usize) -> Self {
        Self {
            root: root.to_path_buf(),
            keep: keep.max(1),
            gate: None,
        }
    }

    /// Sets a gate that may stop the writing at any act.
    #[must_use]
    pub fn with_gate(mut self, gate: Option<Gate>) -> Self {
        self.gate = gate;
        self
    }

    /// Returns the gate.
    pub fn into_gate(self) -> Option<Gate> {
        self.gate
    }

    /// Writes a checkpoint of `step` with the files that `fill` adds, moves `LATEST` to it and
    /// removes the oldest ones above the number to keep. `fill` returns the state's digest. A
    /// repeated step gets a name with a suffix: a complete checkpoint is never overwritten.
    ///
    /// # Errors
    /// [`CheckpointError`]; until the last act, the earlier checkpoints are unchanged.
    pub fn save(
        &mut self,
        step: u64,
        fill: impl FnOnce(&mut NewFolder<'_>) -> Result<String, CheckpointError>,
    ) -> Result<Checkpoint, CheckpointError> {
        fs::create_dir_all(&self.root).map_err(CheckpointError::io("making", &self.root))?;
        self.remove_hidden()?;
        let serial = self.list()?.first().map_or(1, |newest| newest.manifest.serial + 1);
        let name = self.free_name(step);
        let target = self.root.join(&name);
        let hidden = self.root.join(format!(".{name}.new"));
        let mut folder = NewFolder::begin(hidden, Manifest::new(serial, step), self.gate.as_mut())?;
        let digest = fill(&mut folder)?;
        folder.finish(digest, &target)?;
        self.point_at(&name)?;
        self.retain(&target)?;
        Ok(Checkpoint {
            manifest: Manifest::read(&target)?,
            folder: target,
        })
    }

    /// Lists every finished checkpoint, the latest save first. Folders without a readable manifest
    /// are left out.
    ///
    /// # Errors
    /// [`CheckpointError::Io`]. A missing root has no checkpoints.
    pub fn list(&self) -> Result<Vec<Checkpoint>, CheckpointError> {
        let mut found: Vec<Checkpoint> = self
            .folders()?
            .into_iter()
            .filter(|folder| name_of(folder).starts_with("step-"))
            .filter_map(|folder| {
                let manifest = Manifest::read(&folder).ok()?;
                Some(Checkpoint { folder, manifest })
            })
            .collect();
        found.sort_by_key(|checkpoint| std::cmp::Reverse(checkpoint.manifest.serial));
        Ok(found)
    }

    /// Returns the checkpoint that `LATEST` names, or the latest save without such a file. The
    /// checkpoint is not verified.
    ///
    /// # Errors
    /// [`CheckpointError::None`], [`CheckpointError::Io`], and the errors of reading its manifest.
    pub fn latest(&self) -> Result<Checkpoint, CheckpointError> {
        if let Some(folder) = self.pointed_at()? {
            return Ok(Checkpoint {
                manifest: Manifest::read(&folder)?,
                folder,
            });
        }
        let newest = self.list()?.into_iter().next();
        newest.ok_or_else(|| CheckpointError::None(self.root.clone()))
    }

    fn pointed_at(&self) -> Result<Option<PathBuf>, CheckpointError> {
        let path = self.root.join(LATEST);
        match fs::read_to_string(&path) {
            Ok(text) => Ok(Some(self.root.join(text.trim()))),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(CheckpointError::io("reading", &path)(error)),
        }
    }

    fn point_at(&mut self, name: &str) -> Result<(), CheckpointError> {
        let (path, aside) = (self.root.join(LATEST), self.root.join(".LATEST.new"));
        self.pass("LATEST")?;
        write_synced(&aside, format!("{name}\n").as_bytes())?;
        self.pass("move LATEST")?;
        fs::rename(&aside, &path).map_err(CheckpointError::io("naming", &path))?;
        sync_folder(&self.root)
    }

    /// Removes the oldest saves above the number to keep, but never `good`.
    fn retain(&mut self, good: &Path) -> Result<(), CheckpointError> {
        let surplus = self.list()?.into_iter().skip(self.keep);
        for old in surplus.filter(|old| old.folder != good) {
            self.pass("remove")?;
            // Renamed first, because a half-removed folder must not look like a checkpoint.
            let hidden = self.root.join(format!(".{}.old", name_of(&old.folder)));
            fs::rename(&old.folder, &hidden).map_err(CheckpointError::io("removing", &old.folder))?;
            fs::remove_dir_all(&hidden).map_err(CheckpointError::io("removing", &hidden))?;
        }
        Ok(())
    }

    fn remove_hidden(&self) -> Result<(), CheckpointError> {
        for folder in self.folders()?.iter().filter(|path| name_of(path).starts_with(HIDDEN)) {
            fs::remove_dir_all(folder).map_err(CheckpointError::io("removing", folder))?;
        }
        Ok(())
    }

    fn free_name(&self, step: u64) -> String {
        let mut name = format!("step-{step}");
        let mut suffix = 2;
        while self.root.join(&name).exists() {
            name = format!("step-{step}.{suffix}");
            suffix += 1;
        }
        name
    }

    fn folders(&self) -> Result<Vec<PathBuf>, CheckpointError> {
        let entries = match fs::read_dir(&self.root) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            other => other.map_err(CheckpointError::io("listing", &self.root))?,
        };
        let mut folders = Vec::new();
        for entry in entries {
            let path = entry.map_err(CheckpointError::io("listing", &self.root))?.path();
            if path.is_dir() {
                folders.push(path);
            }
        }
        Ok(folders)
    }

    fn pass(&mut self, act: &str) -> Result<(), CheckpointError> {
        broker::fail::point(&format!("checkpoint.{act}"));
        match &mut self.gate {
            Some(gate) => gate(act).map_err(CheckpointError::io("writing", &self.root.join(act))),
            None => Ok(()),
        }
    }
}

fn name_of(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
}

/// Returns the checkpoint at `path` after verifying all its files. `path` is a checkpoint's folder,
/// or a root with a `LATEST` file. With `fall_back`, a damaged checkpoint is replaced by the latest
/// undamaged save of the same root.
///
/// # Errors
/// The fault of the requested checkpoint.
pub fn find(path: &Path, fall_back: bool) -> Result<Checkpoint, CheckpointError> {
    let error = match find_marked(path, &|| {}) {
        Ok(checkpoint) => return Ok(checkpoint),
        Err(error) => error,
    };
    if fall_back {
        for other in CheckpointStore::new(root_of(path), 1).list()? {
            if let Ok(good) = verified(other, &|| {}) {
                tracing::warn!(%error, taken = %good.folder.display(), "a checkpoint is damaged; using an earlier one");
                return Ok(good);
            }
        }
    }
    Err(error)
}

/// [`find`] without falling back. Calls `read` for each block of a file.
pub(crate) fn find_marked(path: &Path, read: &dyn Fn()) -> Result<Checkpoint, CheckpointError> {
    let root = root_of(path);
    let wanted = if root == path {
        CheckpointStore::new(root, 1).latest()
    } else {
        Manifest::read(path).map(|manifest| Checkpoint {
            folder: path.to_path_buf(),
            manifest,
        })
    };
    verified(wanted?, read)
}

/// The root of a checkpoint's folder, or `path` itself.
fn root_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if name_of(path).starts_with("step-") => parent,
        _ => path,
    }
}

/// Lists the checkpoints under `root` whose files have their recorded lengths, in the order in
/// which to try them: the one that `LATEST` names, then the latest save first. Their digests are
/// not verified.
///
/// # Errors
/// [`CheckpointError::None`] without checkpoints, and the first fault if none is left.
pub fn complete(root: &Path) -> Result<Vec<Checkpoint>, CheckpointError> {
    let store = CheckpointStore::new(root, 1);
    let whole = |checkpoint: &Checkpoint| checkpoint.manifest.check_lengths(&checkpoint.folder);
    let latest = store.latest().and_then(|latest| whole(&latest).map(|()| latest));
    let mut found = store.list()?;
    found.retain(|other| whole(other).is_ok());
    match latest {
        Ok(latest) => {
            found.retain(|other| other.folder != latest.folder);
            found.insert(0, latest);
        }
        Err(error) if found.is_empty() => return Err(error),
        Err(error) => tracing::warn!(%error, "a checkpoint is damaged; using an earlier one"),
    }
    Ok(found)
}

/// Returns the checkpoint in exactly `folder`, whatever its name, after verifying all its files.
///
/// # Errors
/// The fault of the checkpoint.
pub fn sound(folder: &Path) -> Result<Checkpoint, CheckpointError> {
    let manifest = Manifest::read(folder)?;
    let folder = folder.to_path_buf();
    verified(Checkpoint { folder, manifest }, &|| {})
}

fn verified(checkpoint: Checkpoint, read: &dyn Fn()) -> Result<Checkpoint, CheckpointError> {
    checkpoint.manifest.verify_marked(&checkpoint.folder, read)?;
    Ok(checkpoint)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    use crate::checkpoint::TrainerState;

    fn save(store: &mut CheckpointStore, step: u64) -> Result<Checkpoint, CheckpointError> {
        store.save(step, |folder| {
            for name in ["state.json", "reference/model.safetensors"] {
                folder.add(name, |out| write!(out, "{name} {step}"))?;
            }
            Ok("digest".into())
        })
    }

    fn stop_at(act: usize) -> Option<Gate> {
        let mut left = act;
        Some(Box::new(move |_| {
            left = left.checked_sub(1).ok_or_else(|| io::Error::other("stopped"))?;
            Ok(())
        }))
    }

    #[test]
    fn a_crash_at_any_act_leaves_a_loadable_checkpoint() {
        let mut outcomes = Vec::new();
        for act in 0.. {
            let root = tempfile::tempdir().unwrap();
            save(&mut CheckpointStore::new(root.path(), 1), 1).unwrap();
            let mut store = CheckpointStore::new(root.path(), 1).with_gate(stop_at(act));
            let result = save(&mut store, 2);
            let found = find(root.path(), false).unwrap();
            outcomes.push((found.manifest.step, result.is_ok()));
            // The next start saves normally.
            save(&mut CheckpointStore::new(root.path(), 1), 3).unwrap();
            assert_eq!(find(root.path(), false).unwrap().manifest.step, 3);
            assert_eq!(
                fs::read_dir(root.path()).unwrap().count(),
                2,
                "LATEST and one folder after act {act}"
            );
            if result.is_ok() {
                break;
            }
        }
        // Two files, manifest, rename, and writing LATEST leave step 1. Moving LATEST leaves step
        // 2; the removal of step 1 follows.
        let expected = [[(1, false); 6].as_slice(), &[(2, false), (2, true)]].concat();
        assert_eq!(outcomes, expected);
    }

    #[test]
    fn the_newest_are_kept_by_save_and_not_by_step() {
        let root = tempfile::tempdir().unwrap();
        let mut store = CheckpointStore::new(root.path(), 2);
        for step in [10, 20, 12, 12] {
            save(&mut store, step).unwrap();
        }
        let names: Vec<String> = store
            .list()
            .unwrap()
            .iter()
            .map(|c| name_of(&c.folder).into())
            .collect();
        assert_eq!(
            names,
            ["step-12.2", "step-12"],
            "a branch that was left behind goes first"
        );
        assert_eq!(name_of(&store.latest().unwrap().folder), "step-12.2");
    }

    #[test]
    fn damage_is_named_and_falls_back_only_when_allowed() {
        let root = tempfile::tempdir().unwrap();
        let mut store = CheckpointStore::new(root.path(), 3);
        save(&mut store, 1).unwrap();
        let file = save(&mut store, 2).unwrap().folder.join("state.json");
        let whole = fs::read(&file).unwrap();
        let error = || find(root.path(), false).unwrap_err();
        fs::write(&file, &whole[1..]).unwrap();
        assert!(matches!(error(), CheckpointError::Length { .. }));
        fs::write(&file, [b"x", &whole[1..]].concat()).unwrap();
        assert!(matches!(error(), CheckpointError::Digest { .. }));
        fs::remove_file(&file).unwrap();
        assert!(matches!(error(), CheckpointError::Missing { .. }));
        assert_eq!(find(root.path(), true).unwrap().manifest.step, 1);
        fs::remove_file(root.path().join("step-2/manifest.json")).unwrap();
        assert!(matches!(error(), CheckpointError::Unfinished(_)));
        assert_eq!(find(&root.path().join("step-2"), true).unwrap().manifest.step, 1);
        let empty = tempfile::tempdir().unwrap();
        assert!(matches!(
            find(empty.path(), true).unwrap_err(),
            CheckpointError::None(_)
        ));
    }

    #[test]
    fn complete_checkpoints_are_listed_without_their_digests() {
        let root = tempfile::tempdir().unwrap();
        assert!(matches!(complete(root.path()), Err(CheckpointError::None(_))));
        let mut store = CheckpointStore::new(root.path(), 4);
        for step in [1, 2, 3, 4] {
            save(&mut store, step).unwrap();
        }
        let file = |step: u64| root.path().join(format!("step-{step}/state.json"));
        let steps = || -> Vec<u64> {
            let found = complete(root.path()).unwrap();
            found.iter().map(|checkpoint| checkpoint.manifest.step).collect()
        };
        // Step 4 has its lengths and other content, step 2 is cut off, and step 1 is the latest.
        fs::write(file(4), vec![b'x'; fs::read(file(4)).unwrap().len()]).unwrap();
        fs::write(file(2), "").unwrap();
        assert_eq!(steps(), [4, 3, 1]);
        let state = TrainerState::verified(&complete(root.path()).unwrap()[0]);
        assert!(matches!(state, Err(CheckpointError::Digest { .. })), "{state:?}");
        store.point_at("step-1").unwrap();
        assert_eq!(steps(), [1, 4, 3]);
        fs::remove_file(file(1)).unwrap();
        assert_eq!(steps(), [4, 3]);
        [3, 4].iter().for_each(|step| fs::remove_file(file(*step)).unwrap());
        assert!(matches!(complete(root.path()), Err(CheckpointError::Missing { .. })));
    }
}
