//! The embedded trainer: one policy's weights, gradient, optimizer and reference, driven by
//! commands.

use std::sync::Arc;
use std::time::Duration;

use broker::ids::WeightVersion;
use broker::protocol::train::{OptimStep, TrainCommand, TrainReply};
use tch::{Device, Kind};

use super::checks::check_optim;
use super::client::TrainerClient;
use super::command_log::CommandLog;
use super::compute_weights::ComputeWeights;
use super::error::TrainError;
use super::gradient::Trainable;
use super::layout::Held;
use super::options::TrainerOptions;
use super::owned::Owned;
use super::ranks::{self, Ranks};
use super::reference::Reference;
use super::source::Source;
use super::stop::Stop;
use crate::checkpoint::Gate;
use crate::collective::Collective;
use crate::model::{Layout, ModelError, ModelShape, Weights, kind_of};
use crate::pulse::Pulse;
use crate::weights::WeightSink;

/// The least time without progress after which a rank that builds its trainer counts as stuck. It
/// makes no marks while it allocates or pins memory.
const STILL: Duration = Duration::from_secs(600);

/// The embedded trainer: libtorch in this process, on the calling thread. Several of them are ranks
/// of one trainer if they share a group.
pub struct Trainer {
    pub(super) ranks: Ranks,
    pub(super) parts: ranks::Parts,
    /// The layout of the trained weights.
    pub(super) layout: Arc<Layout>,
    pub(super) computing: ComputeWeights,
    pub(super) shape: ModelShape,
    pub(super) options: TrainerOptions,
    /// The frozen base of `weights`, if they are an adapter.
    pub(super) base: Option<Weights>,
    /// The weights to compute with. They are the masters in f32, or if these are apart, a copy in
    /// the dtype of the computation, of which ranks may have one layer at a time.
    pub(super) weights: Weights,
    pub(super) owned: Owned,
    pub(super) model: Trainable,
    /// The number of batches in the gradient that no step has used yet.
    pub(super) pending: u64,
    pub(super) skipped: u64,
    pub(super) reference: Option<Reference>,
    pub(super) version: Option<WeightVersion>,
    /// True if the weights are those of `version`: no step has changed them since.
    pub(super) published: bool,
    /// Stops a save in the middle, in tests.
    pub(super) gate: Option<Gate>,
    pub(super) sinks: Vec<Box<dyn WeightSink>>,
    pub(super) log: CommandLog,
    /// The command after which the state is unknown, and the reason.
    pub(super) poisoned: Option<(u64, String)>,
}

impl Trainer {
    /// Builds a trainer of `weights` (f32, in memory or in files), which it owns from here on.
    /// Copies them to [`TrainerOptions::device`], or uses memory that is there already.
    ///
    /// # Errors
    /// [`ModelError`] when memory is short, a file cannot be read, or the weights do not have this
    /// shape or are not f32.
    pub fn new(shape: ModelShape, weights: impl Into<Source>, options: TrainerOptions) -> Result<Self, ModelError> {
        Self::build(Ranks::alone(), shape, None, weights.into(), options)
    }

    /// Builds a trainer of `adapter` (f32) over `base`. The base has the kind
    /// [`TrainerOptions::dtype`] and is on the device of the options. It is never changed, so it
    /// may be shared.
    ///
    /// # Errors
    /// The errors of [`Self::new`], and [`ModelError::Shape`] when the base has another kind.
    pub fn with_base(
        shape: ModelShape,
        base: Weights,
        adapter: impl Into<Source>,
        options: TrainerOptions,
    ) -> Result<Self, ModelError> {
        Self::build(Ranks::alone(), shape, Some(base), adapter.into(), options)
    }

    /// Builds one rank of a trainer. All ranks have the same shape, base, weights and options; only
    /// rank 0 takes commands, the others [serve](Self::serve) it. `base` is given for an adapter.
    ///
    /// # Errors
    /// The errors of [`Self::new`] and [`Self::with_base`].
    pub fn in_group(
        group: Box<dyn Collective>,
        shape: ModelShape,
        base: Option<Weights>,
        weights: impl Into<Source>,
        options: TrainerOptions,
    ) -> Result<Self, ModelError> {
        Self::build(Ranks::new(group), shape, base, weights.into(), options)
    }

    fn build(
        mut ranks: Ranks,
        shape: ModelShape,
        base: Option<Weights>,
        source: Source,
        options: TrainerOptions,
    ) -> Result<Self, ModelError> {
        if let Some(base) = base.as_ref().filter(|base| base.kind() != kind_of(options.dtype)) {
            let (found, wanted) = (base.kind(), options.dtype);
            let reason = format!("the base is {found:?}, the adapter is trained in {wanted:?}");
            return Err(ModelError::Shape { reason });
        }
        if base.is_some() != source.layout().lora().is_some() {
            let reason = "an adapter needs its base, and a whole model takes none".into();
            return Err(ModelError::Shape { reason });
        }
        let kind = source.params().kind();
        if kind != Kind::Float {
            let reason = format!("weights are trained in f32, these are {kind:?}");
            return Err(ModelError::Shape { reason });
        }
        let source = source.on_read(ranks.on_read());
        let (held, met) = ranks.together(STILL, || Held::new(&shape, source, &options, &ranks));
        let Held {
            layout,
            parts,
            weights,
            computing,
            owned,
            gradient,
        } = held?;
        // The first command reports the lost rank.
        if let Err(lost) = met {
            ranks.end(lost);
        }
        let mut model = Trainable::new(
            &shape,
            &layout,
            base.as_ref(),
            &weights,
            options.dtype,
            options.checkpoint_activations,
            gradient,
        )?;
        model.pulse = ranks.pulse().clone();
        Ok(Self {
            ranks,
            parts,
            layout,
            computing,
            shape,
            options,
            base,
            weights,
            owned,
            model,
            pending: 0,
            skipped: 0,
            reference: None,
            version: None,
            published: false,
            gate: None,
            sinks: Vec::new(),
            log: CommandLog::default(),
            poisoned: None,
        })
    }

    /// The counter that moves with each micro-batch and each parameter that is read, here or by
    /// ranks that this one waits for.
    #[must_use]
    pub fn pulse(&self) -> Pulse {
        self.ranks.pulse().clone()
    }

    /// Sends published weights to this sink too.
    pub fn add_sink(&mut self, sink: Box<dyn WeightSink>) {
        self.sinks.push(sink);
    }

    #[must_use]
    pub fn shape(&self) -> &ModelShape {
        &self.shape
    }

    /// The live weights, in the dtype of the computation if `shard` or `offload` keep the f32 ones
    /// apart. With `shard = full` not all of them are here. Change them only through commands.
    #[must_use]
    pub fn weights(&self) -> &Weights {
        &self.weights
    }

    /// The number of optimizer steps taken, without skipped ones.
    #[must_use]
    pub fn optimizer_steps(&self) -> u64 {
        self.owned.optimizer.steps()
    }

    /// The number of steps skipped because the gradient was not finite.
    #[must_use]
    pub fn skipped_steps(&self) -> u64 {
        self.skipped
    }

    /// The last published version.
    #[must_use]
    pub fn version(&self) -> Option<WeightVersion> {
        self.version
    }

    /// Copies [`Self::weights`] to the CPU as f32. If `shard` or `offload` keep the trained weights
    /// apart, these are only copies to compute with. With `shard = full` they are not all weights.
    ///
    /// # Errors
    /// [`ModelError::Torch`] when memory is short.
    pub fn weights_snapshot(&self) -> Result<Weights, ModelError> {
        self.weights.copied(Device::Cpu, Kind::Float)
    }

    /// Makes the current weights the reference policy. Publishing version 0 does this if
    /// [`TrainerOptions::keep_reference`] is set.
    ///
    /// # Errors
    /// [`TrainError`] when memory is short or a rank is lost.
    pub fn take_reference(&mut self) -> Result<(), TrainError> {
        let seq = self.log.next();
        self.check_poison()?;
        let taken = match self.ranks.order_reference() {
            Ok(()) => self.reference_in_step(),
            Err(error) => Err(Stop::Ended(error)),
        };
        taken.map_err(|stop| self.stopped(seq, stop))
    }

    pub(super) fn reference_in_step(&mut self) -> Result<(), Stop> {
        let copy = self.copy_as_reference();
        let reference = self.ranks.agree(copy)?;
        self.set_reference(Some(reference));
        Ok(())
    }

    /// The average of the trained weights, if kept ([`TrainerOptions::ema`]) and not split among
    /// ranks. For an adapter, the average of the adapter.
    #[must_use]
    pub fn average(&self) -> Option<Weights> {
        let average = self.owned.average.as_ref().filter(|_| self.parts.is_whole())?;
        Weights::at_start_of(average, Arc::clone(&self.layout)).ok()
    }

    /// Runs a command that all ranks run. Its outcome is the same on all of them.
    pub(super) fn in_step(&mut self, command: TrainCommand) -> Result<TrainReply, Stop> {
        let changes = !matches!(
            command,
            TrainCommand::Forward { .. } | TrainCommand::SaveState { .. } | TrainCommand::Sample { .. }
        );
        let outcome = self.run(command);
        self.ranks.settle(outcome, changes)
    }

    fn run(&mut self, command: TrainCommand) -> Result<TrainReply, Stop> {
        match command {
            TrainCommand::ForwardBackward { batch, loss, .. } => self.forward_backward(&batch, &loss),
            TrainCommand::OptimStep { params, .. } => self.optim_step(&params),
            TrainCommand::Forward { batch, weights, .. } => self.forward(&batch, weights),
            TrainCommand::SaveState { seq, path, meta } => self.save(seq, &path, &meta),
            TrainCommand::LoadState { path, .. } => self.load(&path),
            TrainCommand::Publish { version, .. } => self.publish(version),
            TrainCommand::Sample { prompts, params, .. } => self.sample(&prompts, &params),
        }
    }

    fn optim_step(&mut self, params: &OptimStep) -> Result<TrainReply, Stop> {
        check_optim(params)?;
        let outcome = self.step_optimizer(params)?;
        self.skipped += u64::from(outcome.skipped);
        if !outcome.skipped {
            self.weights_move();
            self.move_average()?;
        }
        self.model.follow(&self.weights)?;
        self.model.clear()?;
        self.pending = 0;
        Ok(TrainReply::Step {
            grad_norm: outcome.grad_norm,
            skipped: outcome.skipped,
        })
    }

    /// The error for a command that ended without a reply.
    pub(super) fn stopped(&mut self, seq: u64, stop: Stop) -> TrainError {
        match stop {
            Stop::Refused(reason) => TrainError::User { seq, reason },
            Stop::Failed(reason) => TrainError::Transient { seq, reason },
            Stop::Broken(reason) => {
                tracing::error!(seq, %reason, "a trainer command failed half-way");
                self.poisoned = Some((seq, reason.clone()));
                TrainError::Poisoned { since: seq, reason }
            }
            Stop::Ended(error) => {
                self.ranks.end(error.clone());
                TrainError::Ended(error)
            }
        }
    }

    /// Fails if a rank is lost.
    pub(super) fn check_ended(&self) -> Result<(), TrainError> {
        let lost = self.ranks.ended().cloned();
        lost.map_or(Ok(()), |error| Err(TrainError::Ended(error)))
    }

    pub(super) fn check_poison(&self) -> Result<(), TrainError> {
        self.check_ended()?;
        match self.poisoned.clone() {
            Some((since, reason)) => Err(TrainError::Poisoned { since, reason }),
            None => Ok(()),
        }
    }
}

impl TrainerClient for Trainer {
    fn execute(&mut self, command: TrainCommand) -> Result<TrainReply, TrainError> {
        let entry = match self.log.begin(&command)? {
            Ok(entry) => entry,
            Err(reply) => return Ok(reply),
        };
        let seq = entry.seq;
        let loads = matches!(command, TrainCommand::LoadState { .. });
        if !loads || self.ranks.ended().is_some() {
            self.check_poison()?;
        }
        let outcome = match self.ranks.order_command(&command) {
            Ok(()) => self.in_step(command),
            Err(error) => Err(Stop::Ended(error)),
        };
        match outcome {
            Ok(reply) => {
                self.log.record(entry, reply.clone());
                if loads {
                    self.poisoned = None;
                }
                Ok(reply)
            }
            Err(stop) => Err(self.stopped(seq, stop)),
        }
    }

    fn sign_every(&self) -> Option<Duration> {
        self.ranks.sign_every()
    }

    fn sign(&mut self) {
        if let Err(error) = self.ranks.order_nothing() {
            tracing::error!(%error, "a rank is lost: the next command fails and the agent starts again");
            self.ranks.end(error);
        }
    }

    fn close(&mut self) {
        if let Err(error) = self.end() {
            tracing::warn!(%error, "the other ranks did not receive the end of the trainer; they end by their timeout");
        }
    }
}
