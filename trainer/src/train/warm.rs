//! Warm start: cross-entropy on known answers, before version 0 is published.

use broker::protocol::train::{Loss, LossStats, OptimStep, TrainBatch, TrainCommand, TrainReply};

use super::client::TrainerClient;
use super::error::TrainError;

/// One optimizer step of a warm start.
#[derive(Debug, Clone, PartialEq)]
pub struct WarmStep {
    /// Counted from 0.
    pub step: u64,
    /// The statistics of the batch, before the step.
    pub stats: LossStats,
    pub grad_norm: f64,
    pub skipped: bool,
}

/// Runs one cross-entropy step for each batch. `params(step)` gives the optimizer's settings, for
/// example a learning-rate schedule. `on_step` receives a report of each step. Each step uses two
/// command numbers, beginning with `first_seq`; returns the next free number. The batch sets the
/// weights of its spans: `1 / trained tokens` makes the loss a mean.
///
/// # Errors
/// The first [`TrainError`]; the steps before it have been taken.
pub fn warm_start(
    trainer: &mut dyn TrainerClient,
    first_seq: u64,
    batches: impl IntoIterator<Item = TrainBatch>,
    params: impl Fn(u64) -> OptimStep,
    mut on_step: impl FnMut(&WarmStep),
) -> Result<u64, TrainError> {
    let mut seq = first_seq;
    for (step, batch) in (0u64..).zip(batches) {
        let loss = Loss::CrossEntropy;
        let measured = trainer.execute(TrainCommand::ForwardBackward { seq, batch, loss })?;
        let params = params(step);
        let moved = trainer.execute(TrainCommand::OptimStep { seq: seq + 1, params })?;
        seq += 2;
        if let (TrainReply::Loss(stats), TrainReply::Step { grad_norm, skipped }) = (measured, moved) {
            on_step(&WarmStep {
                step,
                stats,
                grad_norm,
                skipped,
            });
        }
    }
    Ok(seq)
}
