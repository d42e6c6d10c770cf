//! Decoders in the shape of Qwen3: shape, parameters in one flat buffer, forward pass, Hugging Face folders.
//!
//! [`ModelShape`] says what is computed, [`Weights`] holds the parameters, [`Decoder`] binds the two. One thread owns a
//! model: views share storage, and an in-place change through one is seen by all.

mod batch;
mod cache;
mod cached;
mod config;
mod decoder;
mod error;
mod folder;
mod layer;
mod layout;
mod rope;
mod shape;
mod tensor_file;
mod weights;
mod write;

pub use batch::RowBatch;
pub(crate) use cache::{KvCache, Prefilled};
pub use decoder::{Decoder, Leaf};
pub use error::{ModelError, Result};
pub use layout::{Layout, ParamKind, ParamSpec};
pub use shape::ModelShape;
pub use weights::{Init, Weights};

#[cfg(test)]
pub(crate) use shape::tests::tiny as test_shape;
