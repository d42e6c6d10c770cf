//! From batches to gradients and steps.

mod micro;
pub mod rows;

pub use rows::{BatchError, Limits};
