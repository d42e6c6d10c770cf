//! The files of a state in a checkpoint. Each tensor is read once: for its file, the file's digest
//! and the state's digest.

use super::model_files::ModelFiles;
use crate::checkpoint::state::{STATE, StateDigest};
use crate::checkpoint::{CheckpointError, NewFolder, TrainerState, moments};
use crate::model::ParamSource;
use crate::pulse::Pulse;

pub(super) const REFERENCE: &str = "reference";
/// A complete Hugging Face or PEFT folder that other tools can load.
pub(super) const AVERAGE: &str = "ema";

/// The tensors of a state, wherever they are.
pub(super) struct StateTensors<'a> {
    pub(super) weights: &'a dyn ParamSource,
    /// First and second.
    pub(super) moments: [&'a dyn ParamSource; 2],
    pub(super) reference: Option<&'a dyn ParamSource>,
    pub(super) average: Option<&'a dyn ParamSource>,
}

impl StateTensors<'_> {
    /// Adds all files, and marks `pulse` after each: a disk may take long for one. Returns the
    /// digest of the state.
    pub(super) fn add_to(
        &self,
        folder: &mut NewFolder<'_>,
        files: &ModelFiles<'_>,
        mut state: TrainerState,
        pulse: &Pulse,
    ) -> Result<String, CheckpointError> {
        let digest = StateDigest::new();
        digest.weights(self.weights, |weights| files.add_model(folder, "", weights))?;
        pulse.mark();
        let [first, second] = self.moments.map(|moment| digest.moment(moment));
        let optimizer = moments::file([&first, &second]);
        folder.add(&optimizer.name, |out| optimizer.write(out))?;
        pulse.mark();
        if let Some(reference) = self.reference {
            files.add_model(folder, REFERENCE, reference)?;
            pulse.mark();
        }
        files.add_tokenizer(folder, "")?;
        if let Some(average) = self.average {
            digest.weights(average, |average| files.add_model(folder, AVERAGE, average))?;
            pulse.mark();
            files.add_tokenizer(folder, AVERAGE)?;
        }
        state.reference = self.reference.is_some();
        state.average = self.average.is_some();
        state.digest = digest.finish(state.optimizer_steps, &state.meta);
        folder.add(STATE, |out| state.write(out))?;
        Ok(state.digest)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::ops::Range;
    use std::sync::Arc;

    use blake3::Hasher;
    use tch::{Kind, Tensor};

    use super::*;
    use crate::checkpoint::{CheckpointStore, find};
    use crate::model::{Init, Layout, ModelError, Weights, test_shape};
    use crate::train::TrainerOptions;

    /// Weights that count the values read of them.
    struct Counted {
        weights: Weights,
        read: Cell<usize>,
    }

    impl ParamSource for Counted {
        fn layout(&self) -> &Arc<Layout> {
            self.weights.layout()
        }

        fn kind(&self) -> Kind {
            self.weights.kind()
        }

        fn copy(&self, range: &Range<i64>, target: &Tensor) -> Result<(), ModelError> {
            self.read.set(self.read.get() + (range.end - range.start) as usize);
            self.weights.copy(range, target)
        }
    }

    /// The state's digest as checkpoints of earlier builds have it.
    fn defined([weights, first, second, average]: [&Weights; 4], steps: u64, deterministic: &str) -> String {
        let mut hasher = Hasher::new_derive_key("dyad trainer state v1");
        hasher.update(weights.digest().unwrap().as_bytes());
        for moment in [first, second] {
            for spec in moment.params() {
                hasher.update(&moment.bytes_as(spec, Kind::Float).unwrap());
            }
        }
        hasher.update(average.digest().unwrap().as_bytes());
        hasher.update(&steps.to_le_bytes());
        hasher.update(deterministic.as_bytes());
        hasher.finalize().to_hex().to_string()
    }

    #[test]
    fn a_save_reads_each_tensor_once_for_file_and_digests() {
        let shape = test_shape();
        let init = Init {
            embedding_std: 1.0,
            matrix_std: 0.2,
        };
        let counted = |seed| Counted {
            weights: Weights::random(&shape, init, seed).unwrap(),
            read: Cell::new(0),
        };
        let all: [Counted; 5] = [1, 2, 3, 4, 5].map(counted);
        let [weights, first, second, reference, average] = &all;
        let tensors = StateTensors {
            weights,
            moments: [first, second],
            reference: Some(reference),
            average: Some(average),
        };
        for shard_bytes in [u64::MAX, 6000] {
            all.iter().for_each(|tensors| tensors.read.set(0));
            let options = TrainerOptions {
                shard_bytes,
                ..TrainerOptions::default()
            };
            let root = tempfile::tempdir().unwrap();
            let state = TrainerState {
                optimizer_steps: 3,
                ..TrainerState::new(None, r#"{"deterministic":7}"#)
            };
            let mut store = CheckpointStore::new(root.path(), 1);
            let files = ModelFiles::of(&shape, &options);
            let saved = store
                .save(0, |folder| tensors.add_to(folder, &files, state, &Pulse::default()))
                .unwrap();
            for tensors in &all {
                assert_eq!(tensors.read.get(), tensors.layout().numel());
            }
            let of_state = [weights, first, second, average].map(|tensors| &tensors.weights);
            assert_eq!(saved.manifest.digest, defined(of_state, 3, "7"));
            assert_eq!(TrainerState::read(&saved.folder).unwrap().digest, saved.manifest.digest);
            assert_eq!(find(root.path(), false).unwrap(), saved, "the digests of the files");
        }
    }
}
