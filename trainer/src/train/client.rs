//! The interface of a trainer.

use std::time::Duration;

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

    /// The pause between two [signs](Self::sign) while no command comes; `None` without other
    /// ranks.
    fn sign_every(&self) -> Option<Duration> {
        None
    }

    /// Shows the other ranks that this one lives: they end when they get neither command nor sign.
    fn sign(&mut self) {}

    /// Ends the trainer after its last command; its other ranks end with it.
    fn close(&mut self) {}
}
