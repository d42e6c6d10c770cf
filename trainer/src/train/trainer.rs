//! The embedded trainer: one policy's weights, gradient, optimizer and reference, driven by
//! commands.

use broker::codec;
use broker::ids::WeightVersion;
use broker::protocol::train::{Loss, LossStats, OptimStep, TrainBatch, TrainCommand, TrainReply, Whose};
use tch::{Device, Kind};

use super::checks::{check_answers, check_loss, check_optim};
use super::client::TrainerClient;
use super::command_log::{CommandDecision, CommandLog, fingerprint, seq};
use super::ema::Ema;
use super::error::{Refusal, TrainError};
use super::gradient::{Trainable, logprobs, rows_of};
use super::measure::add_moment;
use super::options::TrainerOptions;
use super::ranks::{self, Fault, Ranks};
use super::rows::Row;
use super::work::{HeadLists, Work};
use crate::checkpoint::Gate;
use crate::collective::{Collective, CollectiveError};
use crate::loss::joint::{self, Reach};
use crate::model::{Decoder, ModelError, ModelShape, Parts, Weights, kind_of};
use crate::optim::AdamW;
use crate::pulse::Pulse;
use crate::weights::WeightSink;

/// The embedded trainer: libtorch in this process, on the calling thread. Several of them are ranks
/// of one trainer if they share a group.
pub struct Trainer {
    pub(super) ranks: Ranks,
    pub(super) parts: ranks::Parts,
    pub(super) shape: ModelShape,
    pub(super) options: TrainerOptions,
    /// The frozen base of `weights`, if they are an adapter.
    pub(super) base: Option<Weights>,
    pub(super) weights: Weights,
    pub(super) model: Trainable,
    /// The number of batches in the gradient that no step has used yet.
    pub(super) pending: u64,
    pub(super) optimizer: AdamW,
    pub(super) skipped: u64,
    pub(super) reference: Option<(Weights, Decoder)>,
    pub(super) ema: Option<Ema>,
    pub(super) version: Option<WeightVersion>,
    /// True if the weights are those of `version`: no step has changed them since.
    pub(super) published: bool,
    /// Stops a save in the middle, in tests.
    pub(super) gate: Option<Gate>,
    sinks: Vec<Box<dyn WeightSink>>,
    pub(super) log: CommandLog,
    /// The command after which the state is unknown, and the reason.
    pub(super) poisoned: Option<(u64, String)>,
}

/// Why a command ended without a reply.
pub(super) enum Stop {
    Refused(Refusal),
    /// Nothing changed.
    Failed(String),
    /// Something may have changed.
    Broken(String),
    /// Another rank is lost.
    Ended(CollectiveError),
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
    /// Builds a trainer of `weights` (f32), on their device. The trainer owns the weights from here
    /// on.
    ///
    /// # Errors
    /// [`ModelError`] when memory is short, or the weights do not have this shape or are not f32.
    pub fn new(shape: ModelShape, weights: Weights, options: TrainerOptions) -> Result<Self, ModelError> {
        Self::build(Ranks::alone(), shape, None, weights, options)
    }

    /// Builds a trainer of `adapter` (f32) over `base`. The base has the kind
    /// [`TrainerOptions::dtype`] and is on the same device. It is never changed, so it may be
    /// shared.
    ///
    /// # Errors
    /// The errors of [`Self::new`], and [`ModelError::Shape`] when the base has another kind.
    pub fn with_base(
        shape: ModelShape,
        base: Weights,
        adapter: Weights,
        options: TrainerOptions,
    ) -> Result<Self, ModelError> {
        Self::build(Ranks::alone(), shape, Some(base), adapter, options)
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
        weights: Weights,
        options: TrainerOptions,
    ) -> Result<Self, ModelError> {
        Self::build(Ranks::new(group), shape, base, weights, options)
    }

    fn build(
        ranks: Ranks,
        shape: ModelShape,
        base: Option<Weights>,
        weights: Weights,
        options: TrainerOptions,
    ) -> Result<Self, ModelError> {
        if let Some(base) = base.as_ref().filter(|base| base.kind() != kind_of(options.dtype)) {
            let (found, wanted) = (base.kind(), options.dtype);
            let reason = format!("the base is {found:?}, the adapter is trained in {wanted:?}");
            return Err(ModelError::Shape { reason });
        }
        if base.is_some() != weights.layout().lora().is_some() {
            let reason = "an adapter needs its base, and a whole model takes none".into();
            return Err(ModelError::Shape { reason });
        }
        if weights.kind() != Kind::Float {
            let reason = format!("weights are trained in f32, these are {:?}", weights.kind());
            return Err(ModelError::Shape { reason });
        }
        let mut parts = ranks::Parts::new(weights.layout().numel() as i64, &ranks);
        let weights = if options.shard_optimizer && !ranks.is_alone() {
            parts.split(weights)?
        } else {
            weights
        };
        let model = Trainable::new(
            &shape,
            base.as_ref(),
            &weights,
            options.dtype,
            options.checkpoint_activations,
            parts.room(),
        )?;
        let optimizer = parts.optimizer(&weights)?;
        let ema = options.ema.map(|ema| Ema::new(ema, &weights)).transpose()?;
        Ok(Self {
            ranks,
            parts,
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

    /// The counter that moves with each micro-batch.
    #[must_use]
    pub fn pulse(&self) -> Pulse {
        self.model.pulse().clone()
    }

    /// Sends published weights to this sink too.
    pub fn add_sink(&mut self, sink: Box<dyn WeightSink>) {
        self.sinks.push(sink);
    }

    #[must_use]
    pub fn shape(&self) -> &ModelShape {
        &self.shape
    }

    /// The live weights. Change them only through commands.
    #[must_use]
    pub fn weights(&self) -> &Weights {
        &self.weights
    }

    /// The number of optimizer steps taken, without skipped ones.
    #[must_use]
    pub fn optimizer_steps(&self) -> u64 {
        self.optimizer.steps()
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

    /// Copies the trained weights (for an adapter, only the adapter) in f32 to the CPU.
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
        let copy = self
            .copy_as_reference()
            .map_err(|error| Stop::Failed(error.to_string()));
        self.reference = Some(self.ranks.agree(copy)?);
        Ok(())
    }

    /// The average of the trained weights, if kept ([`TrainerOptions::ema`]). For an adapter, the
    /// average of the adapter.
    #[must_use]
    pub fn average(&self) -> Option<&Weights> {
        self.ema.as_ref().map(|ema| &ema.weights)
    }

    /// Returns true if the reference policy is the average, which moves with the weights.
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
        let work = self.work(batch, rows);
        let stats = if reaches_further(loss, &work) {
            let lists = self.model.head_lists(&work, reference);
            match self.all_lists(&work, lists.map_err(|error| error.to_string())) {
                Ok(lists) => {
                    let members = work.members(&lists);
                    let (shares, moment) = joint::shares(loss, &members);
                    let stats = self.model.accumulate_shares(&work, &members, &shares);
                    self.sum_stats(stats).map(|mut stats| {
                        add_moment(&mut stats, &moment);
                        stats
                    })
                }
                Err(fault) => Err(fault),
            }
        } else {
            let stats = self.model.accumulate(&work, loss, reference);
            self.sum_stats(stats)
        };
        match stats {
            Ok(stats) => {
                self.pending += 1;
                Ok(TrainReply::Loss(stats))
            }
            Err(fault) => Err(self.half_done(fault)),
        }
    }

    /// Handles a failure after which part of a batch may be in the gradient. If that batch is the
    /// only one there, the gradient is cleared.
    pub(super) fn half_done(&mut self, fault: Fault) -> Stop {
        match fault {
            Fault::Ended(error) => Stop::Ended(error),
            Fault::Failed(reason) if self.pending == 0 && self.model.clear().is_ok() => Stop::Failed(reason),
            Fault::Failed(reason) => Stop::Broken(reason),
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

    /// Updates the average, and the reference that follows it in its own memory.
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
                // Bound again, because a decoder keeps copies of the adapter's change to
                // neighbouring modules.
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
        let work = self.work(batch, rows);
        let lists = logprobs(decoder, &work, self.model.pulse()).map_err(|error| error.to_string());
        let decode = |bytes: &[u8]| codec::decode::<Vec<Vec<f32>>>(bytes);
        let lists = self.ranks.gather(lists, codec::encode::<Vec<Vec<f32>>>, decode)?;
        let lists = work
            .in_order(lists)
            .ok_or_else(|| Stop::Failed("a rank sent too few log-probs".into()))?;
        let mut spans: Vec<Vec<f32>> = batch.spans.iter().map(|span| vec![0.0; span.ids.len()]).collect();
        for (micro, logprobs) in lists.into_iter().enumerate() {
            for (trained, logprob) in work.tokens(micro).zip(logprobs) {
                spans[trained.span][trained.offset] = logprob;
            }
        }
        Ok(TrainReply::LogProbs(spans))
    }

    pub(super) fn work<'a>(&self, batch: &'a TrainBatch, rows: Vec<Row>) -> Work<'a> {
        let budget = self.options.micro_batch_tokens;
        Work::new(batch, rows, budget, self.ranks.rank(), self.ranks.count())
    }

    /// The head's values for the whole batch, from those that each rank computed.
    pub(super) fn all_lists(
        &self,
        work: &Work<'_>,
        mine: Result<Vec<HeadLists>, String>,
    ) -> Result<Vec<HeadLists>, Fault> {
        let decode = |bytes: &[u8]| codec::decode::<Vec<HeadLists>>(bytes);
        let lists = self.ranks.gather(mine, codec::encode::<Vec<HeadLists>>, decode)?;
        let all = work.in_order(lists);
        all.ok_or_else(|| Fault::Failed("a rank sent too few log-probs".into()))
    }

    /// The measurements of all ranks, added in their order.
    pub(super) fn sum_stats(&self, mine: Result<LossStats, ModelError>) -> Result<LossStats, Fault> {
        let mine = mine.map_err(|error| error.to_string());
        let decode = |bytes: &[u8]| codec::decode::<LossStats>(bytes);
        let parts = self.ranks.gather(mine, codec::encode::<LossStats>, decode)?;
        let mut parts = parts.into_iter();
        let mut sum = parts.next().unwrap_or_default();
        parts.for_each(|part| sum.add(&part));
        Ok(sum)
    }

    fn publish(&mut self, version: WeightVersion) -> Result<TrainReply, Stop> {
        let reference = self.prepare_publish(version);
        let reference = self.ranks.agree(reference)?;
        if reference.is_some() {
            self.reference = reference;
        }
        self.version = Some(version);
        self.published = true;
        Ok(TrainReply::Published)
    }

    /// Does what can fail. Returns the new reference policy, if there is one.
    fn prepare_publish(&mut self, version: WeightVersion) -> Result<Option<(Weights, Decoder)>, Stop> {
        let failed = |error: ModelError| Stop::Failed(error.to_string());
        // A step with finite gradients can still produce such weights. No engine can sample from
        // them, and no checkpoint may keep them.
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
        Ok(reference)
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

    pub(super) fn check_poison(&self) -> Result<(), TrainError> {
        if let Some(error) = self.ranks.ended() {
            return Err(TrainError::Ended(error.clone()));
        }
        match self.poisoned.clone() {
            Some((since, reason)) => Err(TrainError::Poisoned { since, reason }),
            None => Ok(()),
        }
    }
}

/// Returns true if the loss of one token depends on tokens of other micro-batches.
fn reaches_further(loss: &Loss, work: &Work<'_>) -> bool {
    match Reach::of(loss) {
        Reach::Minibatch => true,
        Reach::Answer => work.tears_answers(),
        Reach::Token | Reach::Microbatch => false,
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
        if !loads || self.ranks.ended().is_some() {
            self.check_poison()?;
        }
        let outcome = match self.ranks.order_command(&command) {
            Ok(()) => self.in_step(command),
            Err(error) => Err(Stop::Ended(error)),
        };
        match outcome {
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
