//! The parts of dyad that need libtorch: models, the engine, losses, the optimizer, checkpoints.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod bf16_product;
pub mod checkpoint;
pub mod collective;
pub mod device;
pub mod engine;
mod linear;
pub mod loss;
pub mod model;
pub mod optim;
mod ordered;
pub mod pulse;
pub mod rng;
pub mod sampling;
pub mod schedule;
mod shim;
pub mod train;
pub mod transfer;
pub mod weights;
