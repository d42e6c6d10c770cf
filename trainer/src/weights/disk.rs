//! Publishes to engines that read weights from a folder that both processes can reach.
//!
//! Each version has its own folder: a Hugging Face model, or a PEFT adapter. It is written under
//! another name and renamed, so that readers never see half of it. The next publish removes the
//! folders that no engine needs any more, except the newest of them: an engine may already be
//! reading it.

use std::cell::RefCell;
use std::fs;
use std::path::{Path, PathBuf};

use broker::ids::WeightVersion;
use configs::Dtype;
use tch::Kind;

use super::{SinkError, WeightSink};
use crate::model::{Hashed, ModelError, ModelShape, ParamSource, SHARD_BYTES, kind_of, param_hasher, peft, save_model};

/// A version that is complete on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    pub version: WeightVersion,
    /// Absolute.
    pub folder: PathBuf,
    /// True for an adapter, false for a whole model.
    pub adapter: bool,
    /// The digest of the written values. A version alone does not identify them: a repaired or
    /// restored ledger may give the same version a second time.
    pub digest: blake3::Hash,
}

/// Announces a written version to engines.
pub type AnnounceWritten = Box<dyn FnMut(Written) + Send>;
/// Returns the oldest version that an engine may still read, or `None` while it is unknown.
pub type Oldest = Box<dyn Fn() -> Option<WeightVersion> + Send>;

/// Publishes to engines that read folders.
pub struct DiskSink {
    root: PathBuf,
    shape: ModelShape,
    dtype: Dtype,
    base: String,
    announce: AnnounceWritten,
    oldest: Oldest,
    newest: Option<WeightVersion>,
    /// The last written version. A folder of another process may hold other weights under the same
    /// version.
    last: Option<(WeightVersion, blake3::Hash)>,
}

impl DiskSink {
    /// Writes below `root`, which must have no other writer: whole models as `dtype`, adapters as
    /// f32. `base` is the model name in an adapter's configuration.
    ///
    /// # Errors
    /// The folder cannot be created.
    pub fn new(
        root: &Path,
        shape: ModelShape,
        dtype: Dtype,
        base: String,
        announce: AnnounceWritten,
        oldest: Oldest,
    ) -> std::io::Result<Self> {
        fs::create_dir_all(root)?;
        Ok(Self {
            root: fs::canonicalize(root)?,
            shape,
            dtype,
            base,
            announce,
            oldest,
            newest: None,
            last: None,
        })
    }

    /// Makes sure that `folder` holds the weights, and returns the digest of the written values.
    fn place(
        &mut self,
        weights: &dyn ParamSource,
        version: WeightVersion,
        folder: &Path,
    ) -> Result<blake3::Hash, ModelError> {
        let kind = match weights.layout().lora() {
            Some(_) => Kind::Float,
            None => kind_of(self.dtype),
        };
        // On a repeat, an existing folder is complete, because it was renamed.
        if let Some((last, digest)) = self.last
            && last == version
            && folder.exists()
            && weights.digest_as(kind)? == digest
        {
            return Ok(digest);
        }
        let hasher = RefCell::new(param_hasher());
        self.write(&Hashed::named(weights, kind, &hasher), folder)?;
        let digest = hasher.into_inner().finalize();
        self.last = Some((version, digest));
        Ok(digest)
    }

    fn write(&self, weights: &dyn ParamSource, folder: &Path) -> Result<(), ModelError> {
        let io = |doing| {
            move |source| ModelError::Io {
                doing,
                path: folder.to_owned(),
                source,
            }
        };
        let [aside, former] = ["part", "former"].map(|extension| folder.with_extension(extension));
        for left in [&aside, &former].into_iter().filter(|left| left.exists()) {
            fs::remove_dir_all(left).map_err(io("clearing"))?;
        }
        if weights.layout().lora().is_some() {
            peft::save(&aside, weights, &self.base)?;
        } else {
            save_model(weights, &self.shape, &aside, weights.kind(), SHARD_BYTES)?;
        }
        if folder.exists() {
            fs::rename(folder, &former).map_err(io("moving away"))?;
        }
        fs::rename(&aside, folder).map_err(io("naming"))?;
        if former.exists() {
            fs::remove_dir_all(&former).map_err(io("clearing"))?;
        }
        fs::File::open(&self.root)
            .and_then(|root| root.sync_all())
            .map_err(io("syncing"))
    }

    /// Removes the folders older than the oldest needed version, except the newest of them.
    fn clear(&self, newest: WeightVersion) {
        let Some(oldest) = (self.oldest)() else { return };
        let oldest = oldest.min(newest);
        let entries = fs::read_dir(&self.root).into_iter().flatten().flatten();
        let older = |path: PathBuf| Some((version_of(&path)?, path)).filter(|(version, _)| *version < oldest);
        let older: Vec<(WeightVersion, PathBuf)> = entries.filter_map(|entry| older(entry.path())).collect();
        let whole = |(version, path): &(WeightVersion, PathBuf)| path.extension().is_none().then_some(*version);
        let spare = older.iter().filter_map(whole).max();
        for (version, path) in &older {
            let kept = Some(*version) == spare && path.extension().is_none();
            if !kept && let Err(error) = fs::remove_dir_all(path) {
                tracing::warn!(%error, path = %path.display(), "old weights cannot be removed");
            }
        }
    }
}

/// `LINEAGE-STEP`, without a dot: readers take the part after a dot for a file extension.
fn name_of(version: WeightVersion) -> String {
    format!("{}-{}", version.lineage, version.step)
}

/// The version in a folder's name, finished or not.
fn version_of(folder: &Path) -> Option<WeightVersion> {
    let (lineage, step) = folder.file_stem()?.to_str()?.split_once('-')?;
    Some(WeightVersion {
        lineage: lineage.parse().ok()?,
        step: step.parse().ok()?,
    })
}

impl WeightSink for DiskSink {
    fn publish(&mut self, weights: &dyn ParamSource, version: WeightVersion) -> Result<(), SinkError> {
        if let Some(newest) = self.newest.filter(|newest| *newest > version) {
            return Err(SinkError::Stale { version, newest });
        }
        let folder = self.root.join(name_of(version));
        let placed = self.place(weights, version, &folder);
        let digest = placed.map_err(|source| SinkError::Write {
            version,
            folder: self.root.display().to_string(),
            source,
        })?;
        self.newest = Some(version);
        self.clear(version);
        let written = Written {
            version,
            folder,
            adapter: weights.layout().lora().is_some(),
            digest,
        };
        (self.announce)(written);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::model::test_shape as tiny;
    use crate::model::{Init, LoraShape, Module, Weights};

    fn version(lineage: u32, step: u64) -> WeightVersion {
        WeightVersion { lineage, step }
    }

    fn random() -> Weights {
        seeded(1)
    }

    fn seeded(seed: u64) -> Weights {
        let init = Init {
            embedding_std: 1.0,
            matrix_std: 0.2,
        };
        Weights::random(&tiny(), init, seed).unwrap()
    }

    struct Bench {
        sink: DiskSink,
        written: Arc<Mutex<Vec<Written>>>,
        oldest: Arc<Mutex<Option<WeightVersion>>>,
    }

    fn sink(root: &Path, dtype: Dtype) -> Bench {
        let (written, oldest) = (Arc::<Mutex<Vec<Written>>>::default(), Arc::<Mutex<_>>::default());
        let (tell, ask) = (written.clone(), oldest.clone());
        let announce = Box::new(move |one| {
            tell.lock().unwrap().push(one);
        });
        let oldest_of = Box::new(move || *ask.lock().unwrap());
        let sink = DiskSink::new(root, tiny(), dtype, "base".into(), announce, oldest_of).unwrap();
        Bench { sink, written, oldest }
    }

    fn names(root: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(root)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn what_is_announced_can_be_loaded_and_the_trainer_may_go_on() {
        let root = tempfile::tempdir().unwrap();
        let mut bench = sink(root.path(), Dtype::F32);
        let weights = random();
        let digest = weights.digest().unwrap();
        bench.sink.publish(&weights, version(1, 0)).unwrap();
        let _ = weights.flat().shallow_clone().fill_(0.0);
        let written = bench.written.lock().unwrap()[0].clone();
        assert!(written.folder.is_absolute() && !written.adapter);
        let shape = ModelShape::load(&written.folder).unwrap();
        assert_eq!(
            Weights::load(&shape, &written.folder).unwrap().digest().unwrap(),
            digest
        );
    }

    #[test]
    fn adapters_are_written_as_adapters() {
        let root = tempfile::tempdir().unwrap();
        let mut bench = sink(root.path(), Dtype::Bf16);
        let lora = LoraShape {
            rank: 2,
            alpha: 4.0,
            targets: [Module::Query].into_iter().collect(),
        };
        let adapter = Weights::adapter(&tiny(), &lora, 3).unwrap();
        bench.sink.publish(&adapter, version(1, 0)).unwrap();
        let written = bench.written.lock().unwrap()[0].clone();
        assert!(written.adapter);
        let (_, loaded) = peft::load(&written.folder, &tiny()).unwrap();
        assert_eq!(loaded.digest().unwrap(), adapter.digest().unwrap());
    }

    #[test]
    fn folders_stay_while_an_engine_may_read_them() {
        let root = tempfile::tempdir().unwrap();
        let mut bench = sink(root.path(), Dtype::F32);
        let weights = random();
        for step in 0..3 {
            bench.sink.publish(&weights, version(1, step)).unwrap();
        }
        assert_eq!(
            names(root.path()),
            ["1-0", "1-1", "1-2"],
            "no engine has bench what it serves"
        );
        *bench.oldest.lock().unwrap() = Some(version(1, 1));
        fs::create_dir(root.path().join("1-0.part")).unwrap();
        bench.sink.publish(&weights, version(1, 2)).unwrap();
        assert_eq!(names(root.path()), ["1-0", "1-1", "1-2"], "one more, and nothing half");
        *bench.oldest.lock().unwrap() = Some(version(1, 2));
        bench.sink.publish(&weights, version(1, 2)).unwrap();
        assert_eq!(names(root.path()), ["1-1", "1-2"]);
        // A lineage that begins at a lower step is still newer.
        *bench.oldest.lock().unwrap() = Some(version(2, 0));
        bench.sink.publish(&weights, version(2, 0)).unwrap();
        assert_eq!(names(root.path()), ["1-2", "2-0"]);
        let stale = bench.sink.publish(&weights, version(1, 9));
        assert!(matches!(stale, Err(SinkError::Stale { .. })));
    }

    /// This happens after the ledger was repaired or an older ledger restored.
    #[test]
    fn a_repeated_version_holds_the_last_published_weights() {
        let root = tempfile::tempdir().unwrap();
        let held = |written: &Written| {
            let shape = ModelShape::load(&written.folder).unwrap();
            Weights::load(&shape, &written.folder).unwrap().digest().unwrap()
        };
        let mut before = sink(root.path(), Dtype::F32);
        before.sink.publish(&seeded(1), version(1, 3)).unwrap();
        fs::create_dir(root.path().join("1-3.former")).unwrap();
        let mut after = sink(root.path(), Dtype::F32);
        // A second publication by the same sink, too.
        for seed in [2, 3] {
            let weights = seeded(seed);
            after.sink.publish(&weights, version(1, 3)).unwrap();
            let written = after.written.lock().unwrap().pop().unwrap();
            assert_eq!(held(&written), weights.digest().unwrap());
            assert_eq!(written.digest, weights.digest().unwrap());
            assert_eq!(names(root.path()), ["1-3"]);
        }
        // An equal repeat is not written again.
        fs::remove_file(root.path().join("1-3/config.json")).unwrap();
        after.sink.publish(&seeded(3), version(1, 3)).unwrap();
        assert!(!root.path().join("1-3/config.json").exists());
        fs::remove_dir_all(root.path().join("1-3")).unwrap();
        after.sink.publish(&seeded(3), version(1, 3)).unwrap();
        assert_eq!(names(root.path()), ["1-3"], "but where it is gone");
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_named() {
        let root = tempfile::tempdir().unwrap();
        let mut bench = sink(root.path(), Dtype::F32);
        let path = fs::canonicalize(root.path()).unwrap();
        fs::remove_dir_all(&path).unwrap();
        fs::write(&path, b"in the way").unwrap();
        let error = bench.sink.publish(&random(), version(1, 0)).unwrap_err().to_string();
        assert!(
            error.contains(path.to_str().unwrap()) && error.contains("1.0"),
            "{error}"
        );
        assert!(bench.written.lock().unwrap().is_empty());
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
    }
}
