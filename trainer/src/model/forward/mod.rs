//! The forward pass over whole rows.

mod binder;
mod decoder;
mod fixed_rows;
mod forest;
mod head;
mod kernel_layer;
mod layer;
mod parts;
mod rope_table;
mod row_batch;
mod score;
mod trunk;

pub use binder::Leaf;
pub use decoder::Decoder;
pub(super) use fixed_rows::{blocks, filled_up};
#[cfg(test)]
pub(crate) use forest::Forest;
pub(crate) use forest::{LEAST_SHARED, common};
pub(super) use layer::Heads;
pub use parts::Parts;
pub(super) use rope_table::{RopeRows, RopeTable};
pub use row_batch::RowBatch;
pub(super) use row_batch::to_device;
pub(crate) use score::Scored;
pub(crate) use trunk::{is_head, part_of};
