//! From batches to gradients and steps.

mod error;
mod gradient;
mod log;
mod micro;
mod rows;
mod state;
mod trainer;

pub use error::{Refusal, TrainError};
pub use rows::{BatchError, Limits, Row, Trained, flatten};
pub use trainer::{Trainer, TrainerClient, TrainerOptions};

#[cfg(test)]
mod tests;
