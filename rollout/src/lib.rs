//! Pure logic of conversations and learning: workflows, credit, graders, text, batch rules, the
//! choice of replicas.
//!
//! This crate does no network IO and reads no clock; time and randomness are arguments. It reads
//! only task and template files that the caller names, and the Hub's cache.

pub mod advantage;
pub mod batch;
mod byte_order_mark;
pub mod credit;
pub mod credit_operator;
pub mod grade;
pub mod group;
pub mod hub_cache;
pub mod judge;
pub mod own;
pub(crate) mod random;
pub(crate) mod reasoning;
pub mod router;
pub mod sample;
pub mod shaping;
pub mod shuffle;
pub mod staleness;
pub mod tasks;
pub mod text;
pub mod workflow;
pub mod workflows;
