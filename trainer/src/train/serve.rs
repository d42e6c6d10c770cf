//! The ranks above 0: they run what rank 0 runs.

use broker::protocol::train::{TrainCommand, TrainReply};

use super::command_log::seq;
use super::error::TrainError;
use super::ranks::Order;
use super::stop::Stop;
use super::trainer::Trainer;

impl Trainer {
    /// Runs rank 0's commands until it ends the run, on every rank above 0. A command that fails
    /// fails on all ranks; rank 0 reports it.
    ///
    /// # Errors
    /// [`TrainError::Ended`] when another rank is lost, or rank 0 gives no sign of life.
    pub fn serve(&mut self) -> Result<(), TrainError> {
        // A rank may be lost while the trainer is built.
        self.check_ended()?;
        loop {
            let order = match self.ranks.receive() {
                Ok(order) => order,
                Err(stop) => return Err(self.stopped(self.log.next(), stop)),
            };
            let (seq, outcome) = match order {
                Order::End => {
                    self.ranks.meet_at_end();
                    return Ok(());
                }
                Order::Nothing => continue,
                Order::Command(command) => (seq(&command), self.follow(command)),
                Order::TakeReference => (0, self.reference_in_step()),
            };
            if let Err(stop) = outcome {
                let error = self.stopped(seq, stop);
                if matches!(error, TrainError::Ended { .. }) {
                    return Err(error);
                }
            }
        }
    }

    fn follow(&mut self, command: TrainCommand) -> Result<(), Stop> {
        let loads = matches!(command, TrainCommand::LoadState { .. });
        let _: TrainReply = self.in_step(command)?;
        if loads {
            self.poisoned = None;
        }
        Ok(())
    }

    /// Sends the other ranks the order to end, and waits until they have received it. Call it on
    /// rank 0, after the last command.
    ///
    /// # Errors
    /// [`TrainError::Ended`] when another rank is lost.
    pub fn end(&mut self) -> Result<(), TrainError> {
        self.check_ended()?;
        let sent = self.ranks.order_end();
        sent.map_err(|error| self.stopped(self.log.next(), Stop::Ended(error)))
    }
}
