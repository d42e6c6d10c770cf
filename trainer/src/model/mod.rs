//! Decoders of the Qwen3, Qwen2 and Llama families.
//!
//! [`ModelShape`] describes the computation. [`Weights`] holds the parameters in one flat buffer.
//! [`Decoder`] binds the two and computes. One thread owns a model: views share storage, so an
//! in-place change through one view is visible through all of them.
//!
//! The folders build on each other in this order: `shape`, `param_source`, `weights`, `files`,
//! `adapters`, `forward`, `cache`.

mod adapters;
mod cache;
mod error;
mod files;
mod forward;
mod param_source;
mod shape;
mod weights;

pub use adapters::peft;
pub(crate) use cache::{
    Budget, KvCache, Piece, Prefilled, Prefixes, RowKv, Shared, Slots, StepGraphs, lay_out, room_of,
};
pub use cache::{Reading, recorded_rows};
pub use error::{ModelError, Result};
pub use files::{Checked, SHARD_BYTES, StoredParams, check_folder, has_weights};
pub(crate) use files::{NewFile, Tensors, model_files, save_model};
pub use forward::{Decoder, Leaf, Parts, RowBatch};
pub(crate) use forward::{LEAST_SHARED, Scored, common, is_head, part_of};
pub use param_source::ParamSource;
pub(crate) use param_source::{Hashed, hasher as param_hasher};
pub use shape::{
    Architecture, Biases, Layout, LoraShape, ModelShape, Module, ParamKind, ParamSpec, Rope, RopeScaling, Targets, Yarn,
};
pub(crate) use weights::is_finite;
pub use weights::{Init, Weights, kind_of};

#[cfg(test)]
pub(crate) use forward::Forest;
#[cfg(test)]
pub(crate) use shape::tiny as test_shape;
