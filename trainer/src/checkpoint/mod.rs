//! Checkpoints: folders that are whole or absent, and that say when they are damaged.

mod error;

pub use error::CheckpointError;
