//! Weights and states of an external trainer. The program writes and reads plain safetensors; this
//! side turns them into checkpoints, which are those of the built-in trainer, and publishes them.

use std::fs;
use std::path::Path;

use broker::ids::WeightVersion;
use broker::protocol::train::TrainReply;
use tch::Kind;

use super::messages::{Message, Reply};
use super::{External, Fault};
use crate::checkpoint::moments::OPTIMIZER;
use crate::checkpoint::state::dtype_name;
use crate::checkpoint::{CheckpointError, CheckpointStore, TrainerState, find_marked};
use crate::model::{ModelError, ParamSource, StoredParams, kind_of};
use crate::train::error::Refusal;
use crate::train::model_files::{self, ModelFiles};
use crate::train::state_files::{REFERENCE, StateTensors};

/// The file in which the program writes a model's weights.
const WEIGHTS: &str = "model.safetensors";

/// The tensors of the trainer's state, in the files that the program has written.
struct Written {
    weights: StoredParams,
    moments: [StoredParams; 2],
    reference: Option<StoredParams>,
}

impl External {
    /// Writes a checkpoint under the root `path`.
    pub(super) fn save(&mut self, seq: u64, path: &Path, meta: &str) -> Result<TrainReply, Fault> {
        if self.state.pending > 0 {
            return Err(Refusal::PendingGradient.into());
        }
        self.clear_exchange()?;
        let message = Message::Save {
            seq,
            folder: &self.exchange,
        };
        match self.line.ask(&message).map_err(Fault::Lost)? {
            Reply::Saved => {}
            other => return Err(other.into()),
        }
        let digest = self.keep(seq, path, meta)?;
        self.clear_exchange()?;
        Ok(TrainReply::Saved { digest })
    }

    /// Turns the written files into a checkpoint, and returns its digest.
    fn keep(&self, seq: u64, path: &Path, meta: &str) -> Result<String, Fault> {
        let written = self.written().map_err(failed)?;
        let [first, second] = &written.moments;
        let reference = written.reference.as_ref();
        let tensors = StateTensors {
            weights: &written.weights,
            moments: [first, second],
            reference: reference.map(|reference| reference as &dyn ParamSource),
            average: None,
        };
        let state = TrainerState {
            optimizer_steps: self.state.optimizer_steps,
            skipped_steps: self.state.skipped,
            seq,
            published: self.state.published,
            dtype: dtype_name(self.options.dtype).into(),
            ..TrainerState::new(self.state.version, meta)
        };
        let files = ModelFiles::of(&self.shape, &self.options);
        let mut store = CheckpointStore::new(path, self.options.keep_checkpoints);
        let saved = store.save(state.step, |folder| {
            tensors.add_to(folder, &files, state, self.line.pulse())
        });
        saved.map(|saved| saved.manifest.digest).map_err(failed)
    }

    fn written(&self) -> Result<Written, ModelError> {
        let open = |file: &str, prefix, kind| -> Result<StoredParams, ModelError> {
            let pulse = self.line.pulse().clone();
            let params = StoredParams::open(&self.exchange.join(file), &self.layout, prefix, kind)?;
            Ok(params.on_read(move || pulse.mark()))
        };
        let reference = format!("{REFERENCE}/{WEIGHTS}");
        let has_reference = self.state.reference;
        Ok(Written {
            weights: open(WEIGHTS, "", Kind::Float)?,
            moments: [
                open(OPTIMIZER, "exp_avg.", Kind::Float)?,
                open(OPTIMIZER, "exp_avg_sq.", Kind::Float)?,
            ],
            reference: has_reference
                .then(|| open(&reference, "", kind_of(self.options.dtype)))
                .transpose()?,
        })
    }

    /// Loads the checkpoint at `path`, which this or the built-in trainer wrote.
    pub(super) fn load(&mut self, seq: u64, path: &Path) -> Result<TrainReply, Fault> {
        let folder = find_marked(path, &|| self.line.pulse().mark())?.folder;
        let state = TrainerState::read(&folder)?;
        let dtype = dtype_name(self.options.dtype);
        if state.dtype != dtype {
            let reason = format!("it was trained in {}, this trainer computes in {dtype}", state.dtype);
            return Err(CheckpointError::OtherModel { path: folder, reason }.into());
        }
        if state.base.is_some() {
            return Err(Refusal::NotExternal { what: "adapters" }.into());
        }
        model_files::check_shape(&folder, &self.shape)?;
        let message = Message::Load {
            seq,
            folder: &folder,
            steps: state.optimizer_steps,
            reference: state.reference,
        };
        match self.line.ask(&message).map_err(Fault::Lost)? {
            Reply::Loaded => {}
            other => return Err(other.into()),
        }
        self.state.pending = 0;
        self.state.optimizer_steps = state.optimizer_steps;
        self.state.skipped = state.skipped_steps;
        self.state.version = state.version.map(|(lineage, step)| WeightVersion { lineage, step });
        self.state.published = state.published && self.state.version.is_some();
        self.state.reference = state.reference;
        Ok(TrainReply::Loaded { meta: state.meta })
    }

    /// Hands the weights to the sinks.
    pub(super) fn publish(&mut self, seq: u64, version: WeightVersion) -> Result<TrainReply, Fault> {
        self.clear_exchange()?;
        let reference = version.step == 0 && self.options.keep_reference;
        let message = Message::Publish {
            seq,
            folder: &self.exchange,
            reference,
        };
        match self.line.ask(&message).map_err(Fault::Lost)? {
            Reply::Published => {}
            other => return Err(other.into()),
        }
        self.state.reference |= reference;
        let pulse = self.line.pulse().clone();
        let (kind, mark) = (kind_of(self.options.dtype), move || pulse.mark());
        let weights = StoredParams::of_model_marked(&self.shape, &self.exchange, kind, mark);
        let weights = weights.map_err(|error| match error {
            ModelError::NotFinite { tensor, .. } => Refusal::NotFinite { version, tensor }.into(),
            other => failed(other),
        })?;
        for sink in &mut self.sinks {
            sink.publish(&weights, version).map_err(failed)?;
        }
        drop(weights);
        self.clear_exchange()?;
        self.state.version = Some(version);
        self.state.published = true;
        Ok(TrainReply::Published)
    }

    /// Empties the exchange folder: its files are as large as the model.
    fn clear_exchange(&self) -> Result<(), Fault> {
        let folder = &self.exchange;
        let gone = match fs::remove_dir_all(folder) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
            other => other,
        };
        let made = gone.and_then(|()| fs::create_dir_all(folder));
        made.map_err(|error| Fault::Failed(format!("emptying {}: {error}", folder.display())))
    }
}

fn failed(error: impl std::fmt::Display) -> Fault {
    Fault::Failed(error.to_string())
}
