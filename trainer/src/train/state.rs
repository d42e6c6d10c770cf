//! Saves and restores a trainer.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use broker::ids::WeightVersion;
use broker::protocol::train::TrainReply;
use tch::{Kind, Tensor};

use super::compute_weights::ComputeWeights;
use super::error::Refusal;
use super::model_files::{self, ModelFiles};
use super::pieces::{Buffer, Pieces};
use super::reference::Reference;
use super::source::Source;
use super::state_files::{AVERAGE, REFERENCE, StateTensors};
use super::stop::Stop;
use super::trainer::Trainer;
use crate::checkpoint::state::dtype_name;
use crate::checkpoint::{AdaptedBase, CheckpointError, CheckpointStore, TrainerState, find_marked, moments};
use crate::model::{ModelError, ParamSource, StoredParams, peft};

/// A verified checkpoint, open for reading.
struct Read {
    state: TrainerState,
    weights: Source,
    /// First and second.
    moments: [StoredParams; 2],
    reference: Option<Source>,
    average: Option<Source>,
}

impl Trainer {
    /// Writes `step-N` under the root `path`; N is the step of the last published version.
    pub(super) fn save(&mut self, seq: u64, path: &str, meta: &str) -> Result<TrainReply, Stop> {
        if self.pending > 0 {
            return Err(Refusal::PendingGradient.into());
        }
        let mut store = CheckpointStore::new(Path::new(path), self.options.keep_checkpoints);
        store = store.with_gate(self.gate.take());
        let saved = self.on_first(|pieces| {
            let written = self.write(pieces, &mut store, seq, meta);
            written.map_err(Stop::Failed)
        });
        self.gate = store.into_gate();
        // The reply of another rank has no reader.
        let digest = saved?.unwrap_or_default();
        Ok(TrainReply::Saved { digest })
    }

    /// Writes a checkpoint and returns its digest, or the reason why there is none.
    fn write(&self, pieces: &Pieces<'_>, store: &mut CheckpointStore, seq: u64, meta: &str) -> Result<String, String> {
        let stored = |buffer| pieces.stored(buffer);
        let (masters, first, second) = (stored(Buffer::Masters), stored(Buffer::First), stored(Buffer::Second));
        let average = self.owned.average.as_ref().map(|_| stored(Buffer::Average));
        let reference = self.reference.as_ref().filter(|_| !self.follows_average());
        let reference = reference.map(|_| stored(Buffer::Reference));
        let tensors = StateTensors {
            weights: &masters,
            moments: [&first, &second],
            reference: reference.as_ref().map(|reference| reference as &dyn ParamSource),
            average: average.as_ref().map(|average| average as &dyn ParamSource),
        };
        let state = TrainerState {
            optimizer_steps: self.owned.optimizer.steps(),
            skipped_steps: self.skipped,
            seq,
            published: self.published,
            base: self.adapted().map_err(|error| error.to_string())?,
            dtype: dtype_name(self.options.dtype).into(),
            ..TrainerState::new(self.version, meta)
        };
        let files = ModelFiles::of(&self.shape, &self.options);
        let saved = store.save(state.step, |folder| {
            tensors.add_to(folder, &files, state, self.ranks.pulse())
        });
        saved
            .map(|saved| saved.manifest.digest)
            .map_err(|error| error.to_string())
    }

    /// Loads the checkpoint at `path` (its folder, or a root with `LATEST`). Nothing changes until
    /// all ranks have verified it. Each then copies its parts from the files to their places.
    pub(super) fn load(&mut self, path: &str) -> Result<TrainReply, Stop> {
        let folder = self.find(path)?;
        let (read, met) = self.ranks.together(Duration::ZERO, || self.read(&folder));
        met.map_err(Stop::Ended)?;
        let read = self.ranks.agree(read)?;
        self.take_over(&read)?;
        Ok(TrainReply::Loaded { meta: read.state.meta })
    }

    /// Rank 0 verifies the folder for all.
    fn find(&self, path: &str) -> Result<PathBuf, Stop> {
        let mark = || self.ranks.pulse().mark();
        let found = self.on_first(|_| Ok(find_marked(Path::new(path), &mark)?.folder));
        let found = self.ranks.agree(found)?.unwrap_or_default();
        let bytes = self.ranks.of_first(Ok(found.into_os_string().into_vec()))?;
        Ok(OsString::from_vec(bytes).into())
    }

    fn read(&self, folder: &Path) -> Result<Read, Stop> {
        self.ranks.pulse().mark();
        let state = TrainerState::read(folder)?;
        let dtype = dtype_name(self.options.dtype);
        if state.dtype != dtype {
            let reason = format!("it was trained in {}, this trainer computes in {dtype}", state.dtype);
            let path = folder.to_path_buf();
            return Err(CheckpointError::OtherModel { path, reason }.into());
        }
        self.check_base(folder, &state)?;
        let weights = self.read_model(folder)?;
        self.ranks.pulse().mark();
        let moments = moments::open(&folder.join(moments::OPTIMIZER), &self.layout)?;
        let moments = moments.map(|moment| moment.on_read(self.ranks.on_read()));
        let reference = if state.reference {
            Some(self.read_model(&folder.join(REFERENCE))?)
        } else {
            None
        };
        let average = if state.average && self.owned.average.is_some() {
            Some(self.read_model(&folder.join(AVERAGE))?)
        } else {
            None
        };
        Ok(Read {
            state,
            weights,
            moments,
            reference,
            average,
        })
    }

    fn take_over(&mut self, read: &Read) -> Result<(), Stop> {
        self.weights_move();
        let (taken, met) = self.ranks.together(Duration::ZERO, || self.take_state(read));
        met.map_err(Stop::Ended)?;
        self.owned.optimizer.set_steps(read.state.optimizer_steps);
        let followed = self.model.follow(&self.weights).and_then(|()| self.model.clear());
        let taken = taken.and_then(|reference| followed.map(|()| reference).map_err(Stop::from));
        let reference = self.ranks.agree(taken)?;
        let reference = if self.follows_average() {
            Some(self.copy_as_reference()?)
        } else {
            reference
        };
        self.set_reference(reference);
        let state = &read.state;
        self.pending = 0;
        self.skipped = state.skipped_steps;
        self.version = state.version.map(|(lineage, step)| WeightVersion { lineage, step });
        self.published = state.published && self.version.is_some();
        Ok(())
    }

    /// Takes this rank's part of a checkpoint. Returns its reference policy.
    fn take_state(&self, read: &Read) -> Result<Option<Reference>, Stop> {
        let weights = &read.weights;
        let take =
            |source: &dyn ParamSource, own: &Tensor| self.parts.take(own, |range, part| source.copy(range, part));
        let reference = match &read.reference {
            Some(source) => Some(self.reference_from(source.params())?),
            None => None,
        };
        if self.owned.is_apart() {
            take(weights.params(), &self.owned.masters)?;
        }
        match &self.computing {
            ComputeWeights::Whole(room) => drop(weights.copied_into(room)?),
            ComputeWeights::Window { window, own } => {
                window.fill(weights.params())?;
                let masters = self.owned.masters.f_detach().map_err(ModelError::from)?;
                let mut own = own.f_detach().map_err(ModelError::from)?;
                own.f_copy_(&masters).map_err(ModelError::from)?;
            }
        }
        if let Some(average) = &self.owned.average {
            // A run that begins to average continues from the current weights.
            take(read.average.as_ref().unwrap_or(weights).params(), average)?;
        }
        let (first, second) = self.owned.optimizer.moments();
        for (stored, own) in read.moments.iter().zip([first, second]) {
            take(stored, own)?;
        }
        Ok(reference)
    }

    /// The frozen base of the weights, if they are an adapter.
    fn adapted(&self) -> Result<Option<AdaptedBase>, ModelError> {
        let base = self.base.as_ref().map(|base| AdaptedBase::of(&self.shape, base));
        self.ranks.pulse().mark();
        base.transpose()
    }

    /// Compares the bases, because an adapter's files fit every base of equal widths.
    fn check_base(&self, folder: &Path, state: &TrainerState) -> Result<(), Stop> {
        let Some(recorded) = &state.base else {
            return Ok(());
        };
        let ours = self.adapted().map_err(|e| Stop::Failed(e.to_string()))?;
        match ours.and_then(|ours| recorded.unlike(&ours)) {
            Some(reason) => {
                let path = folder.to_path_buf();
                Err(CheckpointError::OtherModel { path, reason }.into())
            }
            None => Ok(()),
        }
    }

    fn read_model(&self, folder: &Path) -> Result<Source, CheckpointError> {
        let other = |reason: String| CheckpointError::OtherModel {
            path: folder.to_path_buf(),
            reason,
        };
        if let Some(lora) = self.layout.lora() {
            let (found, adapter) = peft::load(folder, &self.shape).map_err(|error| other(error.to_string()))?;
            if found != *lora {
                return Err(other(format!("it is {found:?}, this trainer has {lora:?}")));
            }
            return Ok(adapter.into());
        }
        model_files::check_shape(folder, &self.shape)?;
        let files = StoredParams::of_model_marked(&self.shape, folder, Kind::Float, self.ranks.on_read())
            .map_err(|error| CheckpointError::content(folder, error.to_string()))?;
        Ok(files.into())
    }
}
