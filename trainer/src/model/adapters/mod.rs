//! Low-rank adapters: their files and the change that they add to a product.

mod delta;
pub mod peft;

pub(super) use delta::{Delta, Part};
