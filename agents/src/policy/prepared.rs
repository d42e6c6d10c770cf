//! A policy ready to serve and to train.

use std::path::PathBuf;
use std::sync::Arc;

use configs::AgentConfig;
use rollout::text::TextCodec;
use trainer::device::Device;
use trainer::model::{ModelShape, StoredParams, Weights, kind_of};
use trainer::train::Source;
use trainer::transfer::Form;

use super::form;

/// A policy ready to serve and to train.
pub struct Prepared {
    pub folder: PathBuf,
    pub shape: ModelShape,
    /// The weights that are trained and served: the model, or an adapter of `base`.
    pub(super) own: FirstWeights,
    /// The frozen model below an adapter, as it computes, on its device. Agents that name the same
    /// folder share it. None if only servers have it.
    pub base: Option<Weights>,
    pub text: Arc<TextCodec>,
    /// The device of its engine and its trainer.
    pub device: Device,
    pub settings: AgentConfig,
}

/// The first weights of an agent.
pub(super) enum FirstWeights {
    /// An adapter or a warm start's result, in f32 on the CPU; or a model that is not trained, in
    /// the served dtype, on the agent's device, or on the CPU if engines elsewhere serve it.
    Memory(Weights),
    /// A model that is trained. Trainer and engine read what they hold.
    Files(StoredParams),
    /// A trainer has taken them.
    Handed,
    /// Only servers have them ([`crate::run_folder::models::Reads::NoWeights`]).
    Elsewhere,
}

impl Prepared {
    /// Returns the weights that an engine serves first: a copy, or the storage itself if it never
    /// changes.
    pub(crate) fn served(&self) -> anyhow::Result<Weights> {
        let (device, dtype) = (self.device, self.settings.dtype);
        if let FirstWeights::Files(files) = &self.own {
            return Ok(Weights::copy_of(files, device, kind_of(dtype))?);
        }
        let weights = self.weights()?;
        let as_is = weights.device() == device && weights.kind() == kind_of(dtype);
        if as_is && !self.settings.train.enabled {
            return Ok(weights.share());
        }
        Ok(weights.copied_to(device, dtype)?)
    }

    /// Hands the weights (f32) to a trainer, which changes them. They must not be read here
    /// afterwards.
    ///
    /// # Errors
    /// A trainer already has them.
    pub(crate) fn trained(&mut self) -> anyhow::Result<Source> {
        match std::mem::replace(&mut self.own, FirstWeights::Handed) {
            FirstWeights::Memory(weights) => Ok(weights.into()),
            FirstWeights::Files(files) => Ok(files.into()),
            other => {
                self.own = other;
                Err(self.no_weights())
            }
        }
    }

    /// Continues with other weights of the same layout, which no other code moves.
    pub(crate) fn renew(&mut self, weights: Weights) {
        self.own = FirstWeights::Memory(weights);
    }

    /// Returns the weights of an adapter, or of a model that is not trained.
    ///
    /// # Errors
    /// They are not in this process's memory.
    pub(crate) fn weights(&self) -> anyhow::Result<&Weights> {
        match &self.own {
            FirstWeights::Memory(weights) => Ok(weights),
            _ => Err(self.no_weights()),
        }
    }

    fn no_weights(&self) -> anyhow::Error {
        let folder = self.folder.display();
        let reason = match &self.own {
            FirstWeights::Memory(_) | FirstWeights::Files(_) => "they stay in their files, because they are trained",
            FirstWeights::Handed => "a trainer has taken them, and engines start before it",
            FirstWeights::Elsewhere => "only the agent's servers have them",
        };
        anyhow::anyhow!("the first weights of {folder} were requested, but {reason}: this is a bug")
    }

    /// Returns the form that engines in other processes compare its weights with.
    pub fn form(&self) -> anyhow::Result<Form> {
        let layout = match &self.own {
            FirstWeights::Files(files) => files.layout(),
            _ => self.weights()?.layout(),
        };
        form(layout, self.settings.dtype, self.base.as_ref())
    }
}
