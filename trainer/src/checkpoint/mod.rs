//! Checkpoints: folders that are complete or absent, and that reveal damage.
//!
//! `step-N/` is a Hugging Face folder (`config.json`, `model.safetensors`, the tokenizer's files).
//! It also holds `optimizer.safetensors`, `state.json`, `reference/` if a reference policy is kept,
//! and `manifest.json` with the digest of every file.

mod adapted_base;
mod base_note;
mod error;
mod export;
mod file_digest;
mod folder;
mod keep;
mod manifest;
pub(crate) mod moments;
pub(crate) mod state;
mod store;
pub(crate) mod tokenizer;

pub use adapted_base::AdaptedBase;
pub use base_note::other_base;
pub use error::CheckpointError;
pub use export::{EXPORT, Export, ExportError, Exported, export};
pub use folder::{Gate, NewFolder};
pub use keep::keep_model;
pub use manifest::{FileEntry, Manifest};
pub use state::TrainerState;
pub(crate) use store::find_marked;
pub use store::{Checkpoint, CheckpointStore, complete, find, sound};
