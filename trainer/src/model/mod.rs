//! Decoders of the Qwen3, Qwen2 and Llama families: shape, parameters in one flat buffer, forward pass, Hugging Face folders.
//!
//! [`ModelShape`] says what is computed, [`Weights`] holds the parameters, [`Decoder`] binds the two. One thread owns a
//! model: views share storage, and an in-place change through one is seen by all.

mod arch;
mod batch;
mod bind;
mod buckets;
mod by_kernels;
mod cache;
mod cached;
mod config;
mod decoder;
mod delta;
mod error;
mod extend;
mod finite;
mod fixed;
mod folder;
mod forest;
mod head;
mod json_file;
mod layer;
mod layout;
mod lora;
mod lse;
pub mod peft;
mod prefix;
mod rope;
mod row_kv;
mod save;
mod scaling;
mod score;
mod shape;
mod step;
mod tensor_file;
mod tied;
mod trunk;
mod weights;
mod write;

pub use arch::{Architecture, Biases};
pub use batch::RowBatch;
pub use bind::Leaf;
pub use buckets::Reading;
pub(crate) use buckets::lay_out;
pub(crate) use cache::{KvCache, Prefilled};
pub use decoder::{Decoder, Parts};
pub use error::{ModelError, Result};
pub(crate) use extend::Piece;
pub use folder::has_weights;
pub(crate) use forest::{LEAST_SHARED, common};
pub use layout::{Layout, ParamKind, ParamSpec};
pub use lora::{LoraShape, Module, Targets};
pub(crate) use prefix::{Prefixes, Shared};
pub(crate) use row_kv::RowKv;
pub use save::SHARD_BYTES;
pub use scaling::{Rope, RopeScaling, Yarn};
pub(crate) use score::Scored;
pub use shape::ModelShape;
pub(crate) use trunk::{is_head, part_of};
pub use weights::{Init, Weights, kind_of};

#[cfg(test)]
pub(crate) use forest::Forest;
#[cfg(test)]
pub(crate) use shape::tests::tiny as test_shape;
