//! Computation with cached keys and values.

mod attention;
mod buckets;
mod budget;
mod decode;
mod extend;
mod fixed;
mod kv_cache;
mod prefixes;
mod ragged;
mod row_kv;
mod slots;
mod step_graphs;
mod step_plan;

pub use buckets::Reading;
pub(crate) use buckets::lay_out;
pub(crate) use budget::{Budget, Slots, room_of};
pub(crate) use extend::Piece;
pub(crate) use kv_cache::KvCache;
pub(crate) use prefixes::{Prefixes, Shared};
pub(crate) use row_kv::{Prefilled, RowKv};
pub(crate) use step_graphs::StepGraphs;
pub use step_graphs::recorded_rows;
