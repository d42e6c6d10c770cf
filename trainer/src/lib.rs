//! Everything that needs libtorch: model, engine, losses, optimizer, checkpoints.

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod loss;
pub mod optim;
pub mod schedule;
pub mod train;
