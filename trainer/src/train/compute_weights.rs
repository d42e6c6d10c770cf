//! The weights that a policy or its reference computes with.

use tch::Tensor;

use super::model_parts::{LayerWeights, Window};
use super::ranks::Parts;
use crate::collective::{Collective, CollectiveError};
use crate::model::ModelError;

/// The weights to compute with, as the ranks exchange them.
pub(super) enum ComputeWeights {
    /// The buffer that begins with all weights. The rest is room for equal pieces.
    Whole(Tensor),
    /// A window, and this rank's pieces of the weights (`[Parts::length]`, in their dtype).
    Window { window: Window, own: Tensor },
}

impl ComputeWeights {
    /// Returns all weights, or this rank's pieces.
    pub(super) fn own(&self) -> &Tensor {
        match self {
            Self::Whole(all) => all,
            Self::Window { own, .. } => own,
        }
    }

    /// Returns the layers that are gathered one at a time; empty if this rank has all weights.
    pub(super) fn layers(&self, parts: &Parts) -> Result<Vec<LayerWeights>, ModelError> {
        match self {
            Self::Whole(_) => Ok(Vec::new()),
            Self::Window { window, own } => Ok(window.layers(parts, own)?),
        }
    }

    /// Gives this rank's weights, `own`, to all ranks. With a window, gives only the parts that it
    /// always has. All ranks call it together.
    pub(super) fn share(&self, group: &dyn Collective, parts: &Parts, own: &Tensor) -> Result<(), CollectiveError> {
        match self {
            Self::Whole(room) => parts.gather(group, own, room),
            Self::Window { window, .. } => window.gather(group, parts, own),
        }
    }
}
