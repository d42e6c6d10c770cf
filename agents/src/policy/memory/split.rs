//! The bytes of a trainer's state on one of its ranks.

use configs::{AgentConfig, Dtype, Offload, Shard};
use trainer::model::ModelShape;

use super::F32;

/// The way in which the ranks of a trainer hold its f32 state.
#[derive(Debug, Clone, Copy)]
pub(super) struct Split {
    /// Ranks that the state is split among.
    ranks: u64,
    /// True if the gradient is split too.
    gradient: bool,
    /// True if the weights to compute with are split too.
    weights: bool,
    /// True if the f32 weights are not the ones that the model computes with.
    pub(super) apart: bool,
    /// True if the weights of all ranks are in f32: for an adapter, or in an f32 run.
    pub(super) computes_in_f32: bool,
}

impl Split {
    /// Returns the split of a trainer with `ranks` ranks on all hosts.
    pub(super) fn of(agent: &AgentConfig, ranks: usize) -> Self {
        let train = &agent.train;
        let ranks = match train.shard {
            Shard::None => 1,
            Shard::Optimizer | Shard::Gradient | Shard::Full => ranks.max(1) as u64,
        };
        let computes_in_f32 = agent.lora.is_some() || agent.dtype == Dtype::F32;
        let gradient = matches!(train.shard, Shard::Gradient | Shard::Full) && ranks > 1;
        Self {
            ranks,
            gradient,
            weights: train.shard == Shard::Full && ranks > 1,
            apart: train.offload == Offload::Optimizer || gradient || (ranks > 1 && !computes_in_f32),
            computes_in_f32,
        }
    }

    /// The bytes of a gradient of `own` elements: all of it, or a rank's part with the parts of the
    /// model that are not split yet.
    pub(super) fn gradient(self, agent: &AgentConfig, shape: &ModelShape, own: u64) -> u64 {
        if !self.gradient {
            return own * F32;
        }
        let open = match agent.lora {
            Some(_) => own,
            None => window(shape, own),
        };
        self.share(own * F32) + open * F32
    }

    /// The bytes of `own` weights to compute with, `width` bytes each: all of them, or a rank's
    /// part with the parts of the model that are there together.
    pub(super) fn weights(self, shape: &ModelShape, own: u64, width: u64) -> u64 {
        if self.weights {
            self.share(own * width) + window(shape, own) * width
        } else {
            own * width
        }
    }

    /// A rank's part of these bytes.
    pub(super) fn share(self, bytes: u64) -> u64 {
        bytes.div_ceil(self.ranks)
    }
}

/// The parameters of the embedding, the head and one layer.
fn window(shape: &ModelShape, own: u64) -> u64 {
    let matrix = (shape.vocab * shape.hidden) as u64;
    let outer = if shape.tied { matrix } else { 2 * matrix };
    outer + own.saturating_sub(outer) / shape.layers.max(1) as u64
}
