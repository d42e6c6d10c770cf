//! Low-rank adapters: their files and what they add to a product.

mod delta;
pub mod peft;

pub(super) use delta::{Delta, Part};
