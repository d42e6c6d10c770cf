//! Turns batches into gradients and optimizer steps.

mod checks;
mod client;
mod command_log;
mod compute_weights;
mod ema;
mod error;
mod external;
mod gradient;
mod gradient_store;
mod layout;
mod measure;
mod micro;
mod model_files;
mod model_parts;
mod optimizer_step;
mod options;
mod owned;
mod passes;
mod pieces;
mod publish;
mod ranks;
mod recompute;
mod reference;
mod rows;
mod sample;
mod serve;
mod source;
mod split_pass;
mod state;
mod state_files;
mod stop;
mod trainer;
mod warm;
mod work;

pub use client::TrainerClient;
pub use ema::EmaOptions;
pub use error::{Refusal, TrainError};
pub use external::External;
pub use options::TrainerOptions;
pub use rows::{BatchError, Limits, Row, Trained, flatten};
pub use source::Source;
pub use trainer::Trainer;
pub use warm::{WarmStep, warm_start};

#[cfg(test)]
mod tests;
