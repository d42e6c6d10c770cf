//! The trainer's own thread: commands in, replies out, in order.

use std::sync::mpsc;
use std::thread::JoinHandle;

use broker::protocol::train::{TrainCommand, TrainReply};
use tokio::sync::oneshot;
use trainer::pulse::Pulse;
use trainer::train::{TrainError, TrainerClient};

type Answer = oneshot::Sender<Result<TrainReply, TrainError>>;

/// A handle to the trainer's thread; the thread ends with its last handle.
pub struct Worker {
    commands: mpsc::Sender<(TrainCommand, Answer)>,
    pulse: Pulse,
    thread: JoinHandle<()>,
}

impl Worker {
    /// Moves the trainer to a thread of its own, which counts in `pulse` what it was told and has done.
    pub fn start(name: &str, mut trainer: Box<dyn TrainerClient>, pulse: Pulse) -> std::io::Result<Self> {
        let done = pulse.clone();
        let (commands, inbox) = mpsc::channel::<(TrainCommand, Answer)>();
        let thread = std::thread::Builder::new()
            .name(format!("trainer-{name}"))
            .spawn(move || {
                for (command, answer) in inbox {
                    // Whoever asked may have gone; the effect stands all the same.
                    let _ = answer.send(trainer.execute(command));
                    done.done(1);
                }
            })?;
        Ok(Self {
            commands,
            pulse,
            thread,
        })
    }

    /// Waits until the thread has ended and the trainer is gone. Blocking.
    ///
    /// # Errors
    /// The thread panicked.
    pub fn end(self) -> anyhow::Result<()> {
        drop(self.commands);
        self.thread
            .join()
            .map_err(|_| anyhow::anyhow!("the trainer's thread panicked as it ended"))
    }

    /// Runs one command after all before it.
    pub async fn execute(&self, command: TrainCommand) -> anyhow::Result<TrainReply> {
        let (answer, reply) = oneshot::channel();
        let gone = || anyhow::anyhow!("the trainer's thread has ended");
        self.pulse.take(1);
        self.commands.send((command, answer)).map_err(|_| gone())?;
        Ok(reply.await.map_err(|_| gone())??)
    }
}
