//! The trainer's own thread. It executes commands and replies to them in the order of arrival.
//! Between commands the trainer shows its other ranks that it lives.

use std::sync::mpsc::{self, RecvTimeoutError};

use broker::protocol::train::{TrainCommand, TrainReply};
use tokio::sync::oneshot;
use trainer::pulse::Pulse;
use trainer::train::{TrainError, TrainerClient};

use crate::base::log_scope;

type Job = (TrainCommand, Answer);
type Answer = oneshot::Sender<Result<TrainReply, TrainError>>;

/// A handle to the trainer's thread. The thread ends after the handle is dropped.
pub struct TrainerThread {
    commands: mpsc::Sender<Job>,
    pulse: Pulse,
    ended: oneshot::Receiver<()>,
}

impl TrainerThread {
    /// Moves the trainer to its own thread. `pulse` counts the commands sent and those finished.
    pub fn start(name: &str, mut trainer: Box<dyn TrainerClient>, pulse: Pulse) -> std::io::Result<Self> {
        let done = pulse.clone();
        let (commands, inbox) = mpsc::channel();
        let (end, ended) = oneshot::channel();
        std::thread::Builder::new()
            .name(format!("trainer-{name}"))
            .spawn(log_scope::inherit(move || {
                while let Some((command, answer)) = next(&inbox, &mut *trainer) {
                    // The caller may be gone. The command has taken effect in either case.
                    let _ = answer.send(trainer.execute(command));
                    done.done(1);
                }
                trainer.close();
                drop(trainer);
                // The handle may be gone.
                let _ = end.send(());
            }))?;
        Ok(Self { commands, pulse, ended })
    }

    /// Ends the trainer after all earlier commands. Returns when its ranks have met for the last
    /// time and its memory is freed.
    ///
    /// # Errors
    /// Fails if the thread panicked.
    pub async fn end(self) -> anyhow::Result<()> {
        drop(self.commands);
        let panicked = |_| anyhow::anyhow!("the trainer's thread panicked as it ended");
        self.ended.await.map_err(panicked)
    }

    /// Runs one command after all earlier ones.
    pub async fn execute(&self, command: TrainCommand) -> anyhow::Result<TrainReply> {
        let (answer, reply) = oneshot::channel();
        let gone = || anyhow::anyhow!("the trainer's thread has ended");
        self.pulse.take(1);
        self.commands.send((command, answer)).map_err(|_| gone())?;
        Ok(reply.await.map_err(|_| gone())??)
    }
}

/// Waits for the next command; `None` when the handle is dropped.
fn next(inbox: &mpsc::Receiver<Job>, trainer: &mut dyn TrainerClient) -> Option<Job> {
    loop {
        let Some(pause) = trainer.sign_every() else {
            return inbox.recv().ok();
        };
        match inbox.recv_timeout(pause) {
            Ok(job) => return Some(job),
            Err(RecvTimeoutError::Timeout) => trainer.sign(),
            Err(RecvTimeoutError::Disconnected) => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;

    /// A trainer that takes a while to free its memory.
    struct Slow(Option<Arc<()>>);

    impl TrainerClient for Slow {
        fn execute(&mut self, command: TrainCommand) -> Result<TrainReply, TrainError> {
            unreachable!("no command is sent, but came {command:?}")
        }
    }

    impl Drop for Slow {
        fn drop(&mut self) {
            std::thread::sleep(Duration::from_millis(50));
            self.0 = None;
        }
    }

    #[tokio::test]
    async fn the_trainer_is_freed_when_its_thread_has_ended() {
        let memory = Arc::new(());
        let trainer = Slow(Some(memory.clone()));
        let worker = TrainerThread::start("a", Box::new(trainer), Pulse::default()).unwrap();
        assert_eq!(Arc::strong_count(&memory), 2);
        worker.end().await.unwrap();
        assert_eq!(Arc::strong_count(&memory), 1);
    }

    /// A trainer with other ranks, which counts its signs.
    struct Together(mpsc::Sender<()>);

    impl TrainerClient for Together {
        fn execute(&mut self, command: TrainCommand) -> Result<TrainReply, TrainError> {
            unreachable!("no command is sent, but came {command:?}")
        }

        fn sign_every(&self) -> Option<Duration> {
            Some(Duration::from_millis(1))
        }

        fn sign(&mut self) {
            let _ = self.0.send(());
        }
    }

    #[tokio::test]
    async fn idle_trainer_gives_signs_until_its_thread_ends() {
        let (send, signs) = mpsc::channel();
        let worker = TrainerThread::start("a", Box::new(Together(send)), Pulse::default()).unwrap();
        for _ in 0..3 {
            signs.recv().unwrap();
        }
        worker.end().await.unwrap();
    }
}
