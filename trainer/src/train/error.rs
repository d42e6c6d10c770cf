//! Failures of a command, grouped by the caller's options.

use broker::ids::WeightVersion;

use super::rows::BatchError;
use crate::checkpoint::CheckpointError;
use crate::collective::CollectiveError;
use crate::engine::RequestFault;

/// Why a command has no reply.
#[derive(Debug, thiserror::Error)]
pub enum TrainError {
    /// The command is wrong. Nothing changed; another command may use the same `seq`.
    #[error("trainer command {seq} is rejected: {reason}")]
    User { seq: u64, reason: Refusal },
    /// The machine failed. Nothing changed; the caller may send the same command again.
    #[error("trainer command {seq} failed and changed nothing: {reason}; send it again when the cause is fixed")]
    Transient { seq: u64, reason: String },
    /// A command failed half-way. From here on only `LoadState` is accepted.
    #[error("the trainer's state is unknown since command {since} ({reason}); load a checkpoint to continue")]
    Poisoned { since: u64, reason: String },
    /// Another rank of this trainer is lost. No command is accepted any more.
    #[error("the trainer's ranks are no longer together: {0}")]
    Ended(CollectiveError),
    /// The program of an external trainer is lost. No command is accepted any more.
    #[error("the external trainer is lost: {0}")]
    Lost(String),
}

/// The fault of a command.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    #[error(transparent)]
    Batch(#[from] BatchError),
    #[error("the next command is {expected}: commands come in order, without gaps")]
    Gap { expected: u64 },
    #[error("the replies of commands before {oldest} are no longer remembered")]
    Forgotten { oldest: u64 },
    #[error("another command has this number already")]
    Reused,
    #[error(
        "the loss has a KL term but no reference policy: set TrainerOptions::keep_reference before version 0 is \
         published, or call Trainer::take_reference"
    )]
    NoReference,
    #[error("a gradient waits for its step, which a checkpoint would lose: send OptimStep before SaveState")]
    PendingGradient,
    #[error("{what} is {value}: it must be {rule}")]
    Setting {
        what: &'static str,
        value: f64,
        rule: &'static str,
    },
    #[error("sampling is impossible: {source}")]
    Sampling { source: RequestFault },
    #[error("prompt {place} cannot be answered: {source}")]
    Prompt { place: usize, source: RequestFault },
    #[error(
        "weights {version} are not published: {tensor} has a value that is not finite (NaN or infinite), so training has diverged; continue from \
         earlier weights, with a lower learning rate"
    )]
    NotFinite { version: WeightVersion, tensor: String },
    #[error("an external trainer does not support {what}: do without, or remove train.command")]
    NotExternal { what: &'static str },
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
}
