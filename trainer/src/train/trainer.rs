//! The embedded trainer: one policy's weights, gradient, optimizer and reference, moved by commands.

use std::path::PathBuf;

use broker::ids::WeightVersion;
use broker::protocol::train::{Loss, OptimStep, TrainBatch, TrainCommand, TrainReply, Whose};
use configs::Dtype;
use tch::{Device, Kind};

use super::checks::{check_answers, check_loss, check_optim};
use super::command_log::{CommandDecision, CommandLog, fingerprint, seq};
use super::ema::{Ema, EmaOptions};
use super::error::{Refusal, TrainError};
use super::gradient::{Trainable, logprobs, rows_of};
use crate::checkpoint::Gate;
use crate::model::{Decoder, ModelError, ModelShape, Parts, SHARD_BYTES, Weights, kind_of};
use crate::optim::{self, AdamW};
use crate::pulse::Pulse;
use crate::weights::WeightSink;

/// How a trainer works; no setting changes what is learned, but for M2PO over micro-batches.
#[derive(Debug, Clone)]
pub struct TrainerOptions {
    /// Tokens computed at once at most, padding included. Changes memory, and the result to rounding only; but M2PO as
    /// published takes its budget over what is computed at once.
    pub micro_batch_tokens: usize,
    /// Whether version 0 is kept as the reference policy of the KL term (a frozen copy of the weights).
    pub keep_reference: bool,
    /// An average of the weights that is kept beside them.
    pub ema: Option<EmaOptions>,
    /// Of each layer only its input is kept for the backward pass, which computes the layer anew: much less memory, more time, the same bits.
    pub checkpoint_activations: bool,
    /// Checkpoints kept; the newest good one is never removed. At least 1.
    pub keep_checkpoints: usize,
    /// Where the tokenizer's files are, which every checkpoint carries so that Hugging Face tools load it whole.
    pub tokenizer_folder: Option<PathBuf>,
    /// What it computes in. Trained weights, gradients, head and losses are f32 always.
    pub dtype: Dtype,
    /// What an adapter's files say its base is: the folder it was loaded from.
    pub base_name: String,
    /// Bytes of a checkpoint's file of weights at most; a larger model is written in shards.
    pub shard_bytes: u64,
    /// Whether `LoadState` may take the newest undamaged checkpoint where the named one is damaged.
    pub fall_back: bool,
}

impl Default for TrainerOptions {
    fn default() -> Self {
        Self {
            micro_batch_tokens: 16384,
            keep_reference: false,
            ema: None,
            checkpoint_activations: false,
            keep_checkpoints: 2,
            tokenizer_folder: None,
            dtype: Dtype::F32,
            base_name: String::new(),
            shard_bytes: SHARD_BYTES,
            fall_back: false,
        }
    }
}

/// Drives a trainer, wherever it runs, by an ordered log of commands.
pub trait TrainerClient: Send {
    /// Runs the next command and waits for its reply. A command that was run before (the same `seq`) has no second effect
    /// and gets the same reply.
    ///
    /// # Errors
    /// [`TrainError`], by what the caller can do about it.
    fn execute(&mut self, command: TrainCommand) -> Result<TrainReply, TrainError>;
}

/// The embedded kind: libtorch in this process, on the thread that calls.
pub struct Trainer {
    pub(super) shape: ModelShape,
    pub(super) options: TrainerOptions,
    /// The frozen model that `weights` are an adapter of, if they are.
    pub(super) base: Option<Weights>,
    pub(super) weights: Weights,
    pub(super) model: Trainable,
    /// Batches in the gradient that no step has used yet.
    pub(super) pending: u64,
    pub(super) optimizer: AdamW,
    pub(super) skipped: u64,
    pub(super) reference: Option<(Weights, Decoder)>,
    pub(super) ema: Option<Ema>,
    pub(super) version: Option<WeightVersion>,
    /// Whether the weights are those of `version`: no step has moved them since.
    pub(super) published: bool,
    /// Stops a save in the middle, in tests.
    pub(super) gate: Option<Gate>,
    sinks: Vec<Box<dyn WeightSink>>,
    pub(super) log: CommandLog,
    /// Since which command the state is unknown, and why.
    pub(super) poisoned: Option<(u64, String)>,
}

/// How one command ended short of a reply.
pub(super) enum Stop {
    Refused(Refusal),
    /// Nothing changed.
    Failed(String),
    /// Something may have changed.
    Broken(String),
}

impl<R: Into<Refusal>> From<R> for Stop {
    fn from(reason: R) -> Self {
        Self::Refused(reason.into())
    }
}

impl From<ModelError> for Stop {
    fn from(error: ModelError) -> Self {
        Self::Broken(error.to_string())
    }
}

impl Trainer {
    /// A trainer of `weights` (f32), on their device. The weights are its own from here on.
    ///
    /// # Errors
    /// [`ModelError`] when memory is short, or the weights are not of this shape or not f32.
    pub fn new(shape: ModelShape, weights: Weights, options: TrainerOptions) -> Result<Self, ModelError> {
        Self::build(shape, None, weights, options)
    }

    /// A trainer of `adapter` (f32) over `base`, which is of [`TrainerOptions::dtype`], on the same device, and changed by
    /// nobody: it may be shared.
    ///
    /// # Errors
    /// As [`Self::new`], and [`ModelError::Shape`] when the base is of another kind.
    pub fn with_base(
        shape: ModelShape,
        base: Weights,
        adapter: Weights,
        options: TrainerOptions,
    ) -> Result<Self, ModelError> {
        if base.kind() != kind_of(options.dtype) {
            let reason = format!(
                "the base is {:?}, the adapter is trained in {:?}",
                base.kind(),
                options.dtype
            );
            return Err(ModelError::Shape { reason });
        }
        Self::build(shape, Some(base), adapter, options)
    }

    fn build(
        shape: ModelShape,
        base: Option<Weights>,
        weights: Weights,
        options: TrainerOptions,
    ) -> Result<Self, ModelError> {
        if base.is_some() != weights.layout().lora().is_some() {
            let reason = "an adapter needs its base, and a whole model takes none".into();
            return Err(ModelError::Shape { reason });
        }
        if weights.kind() != Kind::Float {
            let reason = format!("weights are trained in f32, these are {:?}", weights.kind());
            return Err(ModelError::Shape { reason });
        }
        let model = Trainable::new(
            &shape,
            base.as_ref(),
            &weights,
            options.dtype,
            options.checkpoint_activations,
        )?;
        let optimizer = AdamW::new(weights.flat(), optim::ranges(weights.params()))?;
        let ema = options.ema.map(|ema| Ema::new(ema, &weights)).transpose()?;
        Ok(Self {
            shape,
            options,
            base,
            weights,
            model,
            pending: 0,
            optimizer,
            skipped: 0,
            reference: None,
            ema,
            version: None,
            published: false,
            gate: None,
            sinks: Vec::new(),
            log: CommandLog::default(),
            poisoned: None,
        })
    }

    /// What moves with each micro-batch.
    #[must_use]
    pub fn pulse(&self) -> Pulse {
        self.model.pulse().clone()
    }

    /// Published weights go to this sink too.
    pub fn add_sink(&mut self, sink: Box<dyn WeightSink>) {
        self.sinks.push(sink);
    }

    #[must_use]
    pub fn shape(&self) -> &ModelShape {
        &self.shape
    }

    /// The live weights; change them only through commands.
    #[must_use]
    pub fn weights(&self) -> &Weights {
        &self.weights
    }

    /// Optimizer steps taken, skipped ones apart.
    #[must_use]
    pub fn optimizer_steps(&self) -> u64 {
        self.optimizer.steps()
    }

    /// Steps left out because the gradient was not finite.
    #[must_use]
    pub fn skipped_steps(&self) -> u64 {
        self.skipped
    }

    /// The version published last.
    #[must_use]
    pub fn version(&self) -> Option<WeightVersion> {
        self.version
    }

    /// A copy of the trained weights (an adapter's, where it is one) in f32 on the CPU, with storage of its own.
    ///
    /// # Errors
    /// [`ModelError::Torch`] when memory is short.
    pub fn weights_snapshot(&self) -> Result<Weights, ModelError> {
        self.weights.copied(Device::Cpu, Kind::Float)
    }

    /// Makes the weights as they are the reference policy. Publishing version 0 does it by itself where
    /// [`TrainerOptions::keep_reference`] is set.
    ///
    /// # Errors
    /// [`ModelError::Torch`] when memory is short.
    pub fn take_reference(&mut self) -> Result<(), ModelError> {
        self.reference = Some(self.copy_as_reference()?);
        Ok(())
    }

    /// The average of the trained weights, where one is kept ([`TrainerOptions::ema`]); of an adapter, its own.
    #[must_use]
    pub fn average(&self) -> Option<&Weights> {
        self.ema.as_ref().map(|ema| &ema.weights)
    }

    /// Whether the reference policy is the average, which moves with the weights.
    pub(super) fn follows_average(&self) -> bool {
        self.options.ema.is_some_and(|ema| ema.is_reference)
    }

    pub(super) fn copy_as_reference(&self) -> Result<(Weights, Decoder), ModelError> {
        let source = self
            .average()
            .filter(|_| self.follows_average())
            .unwrap_or(&self.weights);
        let copy = source.copied_to(self.weights.device(), self.options.dtype)?;
        let decoder = Decoder::new(&self.shape, Parts::over(self.base.as_ref(), &copy))?;
        Ok((copy, decoder))
    }

    fn run(&mut self, command: TrainCommand) -> Result<TrainReply, Stop> {
        match command {
            TrainCommand::ForwardBackward { batch, loss, .. } => self.forward_backward(&batch, &loss),
            TrainCommand::OptimStep { params, .. } => self.optim_step(&params),
            TrainCommand::Forward { batch, whose, .. } => self.forward(&batch, whose),
            TrainCommand::SaveState { seq, path, meta } => self.save(seq, &path, &meta),
            TrainCommand::LoadState { path, .. } => self.load(&path),
            TrainCommand::Publish { version, .. } => self.publish(version),
            TrainCommand::Sample { prompts, params, .. } => self.sample(&prompts, &params),
        }
    }

    fn forward_backward(&mut self, batch: &TrainBatch, loss: &Loss) -> Result<TrainReply, Stop> {
        check_loss(loss)?;
        check_answers(loss, batch)?;
        let rows = rows_of(batch, &self.shape)?;
        let reference = match loss {
            Loss::Policy(policy) if policy.kl_coef != 0.0 => Some(reference_of(&self.reference)?),
            _ => None,
        };
        let budget = self.options.micro_batch_tokens;
        match self.model.accumulate(&rows, batch, loss, reference, budget) {
            Ok(stats) => {
                self.pending += 1;
                Ok(TrainReply::Loss(stats))
            }
            Err(error) => Err(self.half_done(error)),
        }
    }

    /// Part of a batch may be in the gradient. Where it is alone there, it can be taken out again.
    pub(super) fn half_done(&mut self, error: ModelError) -> Stop {
        if self.pending == 0 && self.model.clear().is_ok() {
            Stop::Failed(error.to_string())
        } else {
            error.into()
        }
    }

    fn optim_step(&mut self, params: &OptimStep) -> Result<TrainReply, Stop> {
        check_optim(params)?;
        let step = |trainer: &mut Self| -> Result<TrainReply, ModelError> {
            let flat = trainer.weights.flat();
            let outcome = optim::step(&mut trainer.optimizer, flat, trainer.model.grad(), params)?;
            trainer.skipped += u64::from(outcome.skipped);
            if !outcome.skipped {
                trainer.weights_move();
                trainer.move_average()?;
            }
            trainer.model.follow(&trainer.weights)?;
            trainer.model.clear()?;
            trainer.pending = 0;
            Ok(TrainReply::Step {
                grad_norm: outcome.grad_norm,
                skipped: outcome.skipped,
            })
        };
        Ok(step(self)?)
    }

    /// The average, and the reference that follows it in memory of its own, go on where they lie.
    fn move_average(&mut self) -> Result<(), ModelError> {
        let Some(ema) = &mut self.ema else {
            return Ok(());
        };
        ema.follow(&self.weights)?;
        if ema.options.is_reference
            && let Some((weights, decoder)) = &mut self.reference
        {
            weights.copy_from(&ema.weights)?;
            if self.base.is_some() {
                // Bound anew: a decoder keeps copies of what an adapter adds to neighbouring modules.
                *decoder = decoder.rebound(Parts::over(self.base.as_ref(), weights))?;
            } else {
                decoder.follow()?;
            }
        }
        Ok(())
    }

    fn forward(&self, batch: &TrainBatch, whose: Whose) -> Result<TrainReply, Stop> {
        let rows = rows_of(batch, &self.shape)?;
        let decoder = match whose {
            Whose::Trained => self.model.decoder(),
            Whose::Reference => reference_of(&self.reference)?,
        };
        match logprobs(
            decoder,
            &rows,
            batch,
            self.options.micro_batch_tokens,
            self.model.pulse(),
        ) {
            Ok(spans) => Ok(TrainReply::LogProbs(spans)),
            Err(error) => Err(Stop::Failed(error.to_string())),
        }
    }

    fn publish(&mut self, version: WeightVersion) -> Result<TrainReply, Stop> {
        let failed = |error: ModelError| Stop::Failed(error.to_string());
        // A step of finite gradients may lead there all the same. No engine could sample of them, and no checkpoint is to keep them.
        if let Some(tensor) = self.weights.first_not_finite().map_err(failed)? {
            let tensor = tensor.to_owned();
            return Err(Refusal::NotFinite { version, tensor }.into());
        }
        if version.step == 0
            && let Some(ema) = &mut self.ema
        {
            ema.weights.copy_from(&self.weights).map_err(failed)?;
        }
        let reference = if version.step == 0 && self.options.keep_reference {
            Some(self.copy_as_reference().map_err(failed)?)
        } else {
            None
        };
        for sink in &mut self.sinks {
            sink.publish(&self.weights, version)
                .map_err(|error| Stop::Failed(error.to_string()))?;
        }
        if reference.is_some() {
            self.reference = reference;
        }
        self.version = Some(version);
        self.published = true;
        Ok(TrainReply::Published)
    }

    /// What the caller is told of a command that ended short of a reply.
    pub(super) fn stopped(&mut self, seq: u64, stop: Stop) -> TrainError {
        match stop {
            Stop::Refused(reason) => TrainError::User { seq, reason },
            Stop::Failed(reason) => TrainError::Transient { seq, reason },
            Stop::Broken(reason) => {
                tracing::error!(seq, %reason, "a trainer command failed half-way");
                self.poisoned = Some((seq, reason.clone()));
                TrainError::Poisoned { since: seq, reason }
            }
        }
    }

    pub(super) fn check_poison(&self) -> Result<(), TrainError> {
        match self.poisoned.clone() {
            Some((since, reason)) => Err(TrainError::Poisoned { since, reason }),
            None => Ok(()),
        }
    }
}

pub(super) fn reference_of(reference: &Option<(Weights, Decoder)>) -> Result<&Decoder, Refusal> {
    let (_, decoder) = reference.as_ref().ok_or(Refusal::NoReference)?;
    Ok(decoder)
}

impl TrainerClient for Trainer {
    fn execute(&mut self, command: TrainCommand) -> Result<TrainReply, TrainError> {
        let seq = seq(&command);
        let mark = fingerprint(&command);
        match self.log.admit(seq, &mark) {
            Ok(CommandDecision::Repeat(reply)) => return Ok(reply),
            Ok(CommandDecision::Run) => {}
            Err(reason) => return Err(TrainError::User { seq, reason }),
        }
        let loads = matches!(command, TrainCommand::LoadState { .. });
        if !loads {
            self.check_poison()?;
        }
        match self.run(command) {
            Ok(reply) => {
                self.log.record(seq, mark, reply.clone());
                if loads {
                    self.poisoned = None;
                }
                Ok(reply)
            }
            Err(stop) => Err(self.stopped(seq, stop)),
        }
    }
}
