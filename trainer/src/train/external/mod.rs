//! A trainer in another program, such as PyTorch's FSDP2 in `trainer/external/fsdp2.py`.
//!
//! The program computes gradients and steps, and writes files. This process puts commands in order,
//! lays out the rows of a batch, measures, writes checkpoints and serves the engines. [`line`] is
//! the connection, and [`messages`] are its contents (`trainer/README.md`, "An external trainer").
//! [`batch`] and [`files`] run the commands.

mod batch;
mod files;
mod line;
mod messages;

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use broker::ids::WeightVersion;
use broker::protocol::train::{OptimStep, TrainCommand, TrainReply};

use self::line::Line;
use self::messages::{Hello, Message, Open, PROTOCOL, Reply};
use super::checks::check_optim;
use super::client::TrainerClient;
use super::command_log::CommandLog;
use super::error::{Refusal, TrainError};
use super::options::TrainerOptions;
use crate::model::{Layout, ModelShape};
use crate::pulse::Pulse;
use crate::weights::WeightSink;

/// A trainer in another program, which is connected to this process.
pub struct External {
    line: Line,
    shape: ModelShape,
    layout: Arc<Layout>,
    options: TrainerOptions,
    /// The folder through which both programs exchange files.
    exchange: PathBuf,
    sinks: Vec<Box<dyn WeightSink>>,
    log: CommandLog,
    state: State,
}

/// The state of the trainer without its tensors.
#[derive(Debug, Default)]
struct State {
    optimizer_steps: u64,
    skipped: u64,
    /// The number of batches in the gradient since the last step.
    pending: u64,
    version: Option<WeightVersion>,
    /// True if no step has changed the weights since `version` was published.
    published: bool,
    reference: bool,
    /// The reason why the program is lost; `None` while it answers.
    lost: Option<String>,
}

/// The reason why a command has no reply.
enum Fault {
    Refused(Refusal),
    /// Nothing changed.
    Failed(String),
    Lost(String),
}

impl<R: Into<Refusal>> From<R> for Fault {
    fn from(reason: R) -> Self {
        Self::Refused(reason.into())
    }
}

impl External {
    /// Opens the model in the folder `model` on the program at the other end of `stream`.
    /// `exchange` is a folder that both see, on the disk of the checkpoints.
    ///
    /// # Errors
    /// [`TrainError::Lost`] if the program ends or speaks another protocol.
    pub fn open(
        stream: UnixStream,
        shape: ModelShape,
        model: &Path,
        exchange: PathBuf,
        options: TrainerOptions,
    ) -> Result<Self, TrainError> {
        let mut line = Line::new(stream).map_err(TrainError::Lost)?;
        let Hello { hello, protocol } = line.hello().map_err(TrainError::Lost)?;
        if protocol != PROTOCOL {
            let reason = format!("{hello} speaks protocol {protocol}, this build speaks {PROTOCOL}");
            return Err(TrainError::Lost(reason));
        }
        let layout = Arc::new(Layout::of(&shape));
        let open = Open::of(&shape, &layout, model, &options).map_err(|error| TrainError::Lost(error.to_string()))?;
        match line.ask(&Message::Open(open)).map_err(TrainError::Lost)? {
            Reply::Opened => {}
            other => return Err(TrainError::Lost(other.unexpected())),
        }
        tracing::info!(program = hello, "the external trainer has the model");
        Ok(Self {
            line,
            shape,
            layout,
            options,
            exchange,
            sinks: Vec::new(),
            log: CommandLog::default(),
            state: State::default(),
        })
    }

    /// Returns the counter that moves with each line of the program.
    #[must_use]
    pub fn pulse(&self) -> Pulse {
        self.line.pulse().clone()
    }

    /// Sends published weights to this sink too.
    pub fn add_sink(&mut self, sink: Box<dyn WeightSink>) {
        self.sinks.push(sink);
    }

    fn run(&mut self, command: &TrainCommand) -> Result<TrainReply, Fault> {
        match command {
            TrainCommand::ForwardBackward { seq, batch, loss } => self.forward_backward(*seq, batch, loss),
            TrainCommand::OptimStep { seq, params } => self.optim_step(*seq, params),
            TrainCommand::Forward { seq, batch, weights } => self.forward(*seq, batch, *weights),
            TrainCommand::SaveState { seq, path, meta } => self.save(*seq, Path::new(path), meta),
            TrainCommand::LoadState { seq, path } => self.load(*seq, Path::new(path)),
            TrainCommand::Publish { seq, version } => self.publish(*seq, *version),
            TrainCommand::Sample { .. } => Err(Refusal::NotExternal { what: "sampling" }.into()),
        }
    }

    fn optim_step(&mut self, seq: u64, params: &OptimStep) -> Result<TrainReply, Fault> {
        check_optim(params)?;
        match self.ask(&Message::OptimStep { seq, params })? {
            Reply::Step { grad_norm, skipped } => {
                self.state.pending = 0;
                self.state.skipped += u64::from(skipped);
                self.state.optimizer_steps += u64::from(!skipped);
                self.state.published &= skipped;
                Ok(TrainReply::Step { grad_norm, skipped })
            }
            other => Err(other.into()),
        }
    }

    fn ask(&mut self, message: &Message<'_>) -> Result<Reply, Fault> {
        self.line.ask(message).map_err(Fault::Lost)
    }
}

impl TrainerClient for External {
    fn execute(&mut self, command: TrainCommand) -> Result<TrainReply, TrainError> {
        let entry = match self.log.begin(&command)? {
            Ok(entry) => entry,
            Err(reply) => return Ok(reply),
        };
        let seq = entry.seq;
        if let Some(reason) = &self.state.lost {
            return Err(TrainError::Lost(reason.clone()));
        }
        match self.run(&command) {
            Ok(reply) => {
                self.log.record(entry, reply.clone());
                Ok(reply)
            }
            Err(Fault::Refused(reason)) => Err(TrainError::User { seq, reason }),
            Err(Fault::Failed(reason)) => Err(TrainError::Transient { seq, reason }),
            Err(Fault::Lost(reason)) => {
                self.state.lost = Some(reason.clone());
                Err(TrainError::Lost(reason))
            }
        }
    }

    fn close(&mut self) {
        if self.state.lost.is_none() {
            self.line.end();
        }
    }
}

#[cfg(test)]
mod tests;
