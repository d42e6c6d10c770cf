//! Reads and writes Hugging Face folders.

mod atomic_write;
mod config;
mod folder_check;
pub(super) mod json_file;
mod load;
mod regular_file;
mod save;
mod stored;
mod tensor_file;
mod tensor_header;
mod tied_head;
mod weight_files;

pub(super) use atomic_write::{io, write_atomically};
pub use folder_check::{Checked, check_folder};
pub use load::has_weights;
pub use save::SHARD_BYTES;
pub(crate) use save::save_model;
pub(super) use save::write_tensors;
pub use stored::StoredParams;
pub(super) use tensor_file::TensorFile;
