//! The weights that a trainer begins or continues with.

use std::sync::Arc;

use tch::{Device, Kind, Tensor};

use crate::model::{Layout, ModelError, ParamSource, StoredParams, Weights};

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
    /// Calls `read` for each parameter that is read from files.
    pub(super) fn on_read(self, read: impl Fn() + Send + 'static) -> Self {
        match self {
            Self::Files(files) => Self::Files(files.on_read(read)),
            memory @ Self::Memory(_) => memory,
        }
    }

    pub(super) fn params(&self) -> &dyn ParamSource {
        match self {
            Self::Memory(weights) => weights,
            Self::Files(files) => files,
        }
    }

    pub(super) fn layout(&self) -> &Arc<Layout> {
        self.params().layout()
    }

    /// Copies all weights to the beginning of `room`, which decides their kind and device.
    ///
    /// # Errors
    /// [`ModelError`] when memory is short or a file cannot be read.
    pub(super) fn copied_into(&self, room: &Tensor) -> Result<Weights, ModelError> {
        let mut weights = Weights::at_start_of(room, Arc::clone(self.layout()))?;
        weights.copy_from(self.params())?;
        Ok(weights)
    }

    /// The weights in f32 on `device`, in their own memory if they are there.
    ///
    /// # Errors
    /// [`ModelError`] when memory is short or a file cannot be read.
    pub(super) fn moved(self, device: Device) -> Result<Weights, ModelError> {
        match self {
            Self::Memory(weights) if weights.device() == device => Ok(weights),
            source => Weights::copy_of(source.params(), device, Kind::Float),
        }
    }
}
