//! The interface of a trainer.

use broker::protocol::train::{TrainCommand, TrainReply};

use super::error::TrainError;

/// Drives a trainer, in this process or another, by an ordered log of commands.
pub trait TrainerClient: Send {
    /// Runs the next command and waits for its reply. A repeated command (the same `seq`) has no
    /// second effect and gets the same reply.
    ///
    /// # Errors
    /// [`TrainError`], grouped by the caller's options.
    fn execute(&mut self, command: TrainCommand) -> Result<TrainReply, TrainError>;

    /// Ends the trainer after its last command; its other ranks end with it.
    fn close(&mut self) {}
}
