//! The options of a trainer.

use std::path::PathBuf;

use configs::{Dtype, Offload, Shard};
use tch::Device;

use super::ema::EmaOptions;
use crate::model::SHARD_BYTES;

/// The options of a trainer. No option changes the result of training, except for M2PO over
/// micro-batches.
#[derive(Debug, Clone)]
pub struct TrainerOptions {
    /// The device of the computation.
    pub device: Device,
    /// The largest number of tokens computed at once, including padding. It changes memory, and the
    /// result only by rounding. M2PO as published takes its budget over the tokens computed at
    /// once, so there it changes the result.
    pub micro_batch_tokens: usize,
    /// Keeps a frozen copy of version 0 as the reference policy of the KL term.
    pub keep_reference: bool,
    /// The average of the weights to keep with them, if any.
    pub ema: Option<EmaOptions>,
    /// Keeps only the input of each layer for the backward pass, which computes the layer again.
    /// Takes much less memory and more time, and gives the same bits.
    pub checkpoint_activations: bool,
    /// The state that several ranks split instead of each holding all of it.
    pub shard: Shard,
    /// The state that is kept in host memory. It goes through the device in each step, and gives
    /// the same bits on a CPU.
    pub offload: Offload,
    /// The number of checkpoints to keep, at least 1. The newest undamaged one is never removed.
    pub keep_checkpoints: usize,
    /// The folder with the tokenizer's files. Every checkpoint carries them, so that Hugging Face
    /// tools load it whole.
    pub tokenizer_folder: Option<PathBuf>,
    /// The dtype of the computation. Trained weights, gradients, head and losses are always f32.
    pub dtype: Dtype,
    /// The base name in an adapter's files: the folder that the base was loaded from.
    pub base_name: String,
    /// The largest size in bytes of one file of weights in a checkpoint. A larger model is written
    /// in shards.
    pub shard_bytes: u64,
}

impl Default for TrainerOptions {
    fn default() -> Self {
        Self {
            device: Device::Cpu,
            micro_batch_tokens: 16384,
            keep_reference: false,
            ema: None,
            checkpoint_activations: false,
            shard: Shard::None,
            offload: Offload::None,
            keep_checkpoints: 2,
            tokenizer_folder: None,
            dtype: Dtype::F32,
            base_name: String::new(),
            shard_bytes: SHARD_BYTES,
        }
    }
}
