//! Reads and writes Hugging Face folders.

mod atomic_write;
mod config;
mod folder_check;
pub(super) mod json_file;
mod load;
mod new_file;
mod regular_file;
mod save;
mod stored;
mod tensor_file;
mod tensor_header;
mod tied_head;
mod weight_files;

pub(super) use atomic_write::io;
pub use folder_check::{Checked, check_folder};
pub use load::has_weights;
pub(crate) use new_file::{NewFile, Tensors};
pub use save::SHARD_BYTES;
pub(crate) use save::{model_files, save_model};
pub use stored::StoredParams;
pub(super) use tensor_file::TensorFile;
