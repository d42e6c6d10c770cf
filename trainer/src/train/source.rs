//! The weights that a trainer begins or continues with.

use std::ops::Range;
use std::sync::Arc;

use tch::{Device, Kind, Tensor};

use crate::model::{Layout, ModelError, StoredParams, Weights};

/// The weights that a trainer begins or continues with, in f32. From files a rank reads only what
/// it holds: a large model that several ranks split needs no host memory for all of it.
pub enum Source {
    Memory(Weights),
    Files(StoredParams),
}

impl From<Weights> for Source {
    fn from(weights: Weights) -> Self {
        Self::Memory(weights)
    }
}

impl From<StoredParams> for Source {
    fn from(files: StoredParams) -> Self {
        Self::Files(files)
    }
}

impl Source {
    pub(super) fn layout(&self) -> &Arc<Layout> {
        match self {
            Self::Memory(weights) => weights.layout(),
            Self::Files(files) => files.layout(),
        }
    }

    /// The kind of the values. Files count as f32, whatever they store.
    pub(super) fn kind(&self) -> Kind {
        match self {
            Self::Memory(weights) => weights.kind(),
            Self::Files(_) => Kind::Float,
        }
    }

    /// Copies the elements `range` of the flat buffer to all of `target`, whatever its kind and
    /// device.
    ///
    /// # Errors
    /// [`ModelError`] when memory is short or a file cannot be read.
    pub(super) fn copy(&self, range: &Range<i64>, target: &Tensor) -> Result<(), ModelError> {
        match self {
            Self::Memory(weights) => {
                let values = weights.flat().f_detach()?;
                let values = values.f_narrow(0, range.start, range.end - range.start)?;
                Ok(target.f_detach()?.f_copy_(&values)?)
            }
            Self::Files(files) => files.copy(range, target),
        }
    }

    /// Copies all weights to the beginning of `room`, which decides their kind and device.
    ///
    /// # Errors
    /// [`ModelError`] when memory is short or a file cannot be read.
    pub(super) fn copied_into(&self, room: &Tensor) -> Result<Weights, ModelError> {
        let weights = Weights::at_start_of(room, Arc::clone(self.layout()))?;
        self.copy(&(0..self.layout().numel() as i64), weights.flat())?;
        Ok(weights)
    }

    /// Copies all weights to new memory, as `kind` on `device`.
    ///
    /// # Errors
    /// [`ModelError`] when memory is short or a file cannot be read.
    pub(super) fn copied(&self, device: Device, kind: Kind) -> Result<Weights, ModelError> {
        match self {
            Self::Memory(weights) => weights.copied(device, kind),
            Self::Files(files) => files.copied(device, kind),
        }
    }

    /// The weights in f32 on `device`, in their own memory if they are there.
    ///
    /// # Errors
    /// [`ModelError`] when memory is short or a file cannot be read.
    pub(super) fn moved(self, device: Device) -> Result<Weights, ModelError> {
        match self {
            Self::Memory(weights) if weights.device() == device => Ok(weights),
            source => source.copied(device, Kind::Float),
        }
    }
}
