//! Reads and writes Hugging Face folders.

mod atomic_write;
mod config;
pub(super) mod json_file;
mod load;
mod save;
mod stored;
mod tensor_file;
mod tied_head;

pub(super) use atomic_write::{io, write_atomically};
pub use load::has_weights;
pub use save::SHARD_BYTES;
pub(crate) use save::save_model;
pub(super) use save::write_tensors;
pub(crate) use stored::StoredParams;
pub(super) use tensor_file::TensorFile;
