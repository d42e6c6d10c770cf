//! The memory that single steps of training and decoding take.

use configs::{AgentConfig, DeviceName, Dtype};
use trainer::loss::head::{CHUNK_TENSORS, chunk_elements};
use trainer::model::{ModelShape, recorded_rows};

use super::{F32, width};

/// Bytes that drawing a token takes for each word: probabilities in f32, and sums in f64 on a GPU
/// or logits and a copy of the probabilities on a CPU.
const DRAW: u64 = 12;

/// Estimates what a micro-batch keeps: per token and layer two norms, queries, keys, values, the
/// output of attention, two residuals, and four widths of the SwiGLU layer. With
/// `checkpoint_activations` one layer at a time, and the input of each. A chunk of the loss comes
/// on top.
pub(super) fn activations(agent: &AgentConfig, shape: &ModelShape) -> u64 {
    let attention = 2 * shape.heads * shape.head_dim + 2 * shape.kv_heads * shape.head_dim;
    let layer = 4 * shape.hidden + attention + 4 * shape.intermediate;
    let numbers = if agent.train.checkpoint_activations {
        shape.layers * shape.hidden + layer
    } else {
        shape.layers * layer
    };
    let tokens = agent.train.micro_batch_tokens as u64;
    let chunk = (chunk_elements(device(agent)).max(0) as u64).min(tokens * shape.vocab as u64);
    tokens * numbers as u64 * width(agent.dtype) + CHUNK_TENSORS * chunk * F32
}

fn device(agent: &AgentConfig) -> trainer::device::Device {
    match agent.device {
        DeviceName::Cpu => trainer::device::Device::Cpu,
        DeviceName::Cuda(index) => trainer::device::Device::Cuda(index),
    }
}

/// Estimates the logits of an engine with full slots. On a GPU each recorded step keeps its own
/// (`trainer::model::recorded_rows`).
pub(super) fn logits(agent: &AgentConfig, shape: &ModelShape, device: DeviceName) -> u64 {
    let slots = agent.engine.slots;
    let recorded = match (device, agent.dtype) {
        (DeviceName::Cuda(_), Dtype::Bf16) => recorded_rows(slots),
        (DeviceName::Cuda(_), Dtype::F32) => slots,
        (DeviceName::Cpu, _) => 0,
    };
    (DRAW * slots as u64 + F32 * recorded as u64) * shape.vocab as u64
}
