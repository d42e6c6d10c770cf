//! The trainer's own thread: commands in, replies out, in order.

use std::sync::mpsc;

use broker::protocol::train::{TrainCommand, TrainReply};
use tokio::sync::oneshot;
use trainer::train::{TrainError, TrainerClient};

type Answer = oneshot::Sender<Result<TrainReply, TrainError>>;

/// A handle to the trainer's thread; the thread ends with its last handle.
pub struct Worker {
    commands: mpsc::Sender<(TrainCommand, Answer)>,
}

impl Worker {
    /// Moves the trainer to a thread of its own.
    pub fn start(name: &str, mut trainer: Box<dyn TrainerClient>) -> std::io::Result<Self> {
        let (commands, inbox) = mpsc::channel::<(TrainCommand, Answer)>();
        std::thread::Builder::new()
            .name(format!("trainer-{name}"))
            .spawn(move || {
                for (command, answer) in inbox {
                    // Whoever asked may have gone; the effect stands all the same.
                    let _ = answer.send(trainer.execute(command));
                }
            })?;
        Ok(Self { commands })
    }

    /// Runs one command after all before it.
    pub async fn execute(&self, command: TrainCommand) -> anyhow::Result<TrainReply> {
        let (answer, reply) = oneshot::channel();
        let gone = || anyhow::anyhow!("the trainer's thread has ended");
        self.commands.send((command, answer)).map_err(|_| gone())?;
        Ok(reply.await.map_err(|_| gone())??)
    }
}
