//! The forward pass over whole rows.

mod binder;
mod decoder;
mod forest;
mod head;
mod kernel_layer;
mod layer;
mod rope_table;
mod row_batch;
mod trunk;

pub use binder::Leaf;
pub use decoder::{Decoder, Parts};
pub(crate) use forest::{Forest, LEAST_SHARED, common};
pub(super) use kernel_layer::norm_by_kernels;
pub(super) use layer::{Heads, Layer, Linear, rms_norm};
pub use row_batch::RowBatch;
pub(super) use row_batch::to_device;
pub(crate) use trunk::{is_head, part_of};
