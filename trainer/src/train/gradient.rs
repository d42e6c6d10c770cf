//! The gradient of a batch: the trunk with a graph, the head in closed form, one backward pass per
//! micro-batch.
//!
//! A loss of single tokens takes one pass. A loss over an answer or a micro-batch computes the head
//! twice. A loss over the whole minibatch begins with a pass without gradients over all of it, so
//! that the result does not depend on the micro-batches. Each rank computes its own micro-batches.

use broker::protocol::train::{Loss, LossStats};
use configs::Dtype;
use tch::{Kind, Tensor};

use super::gradient_store::GradientStore;
use super::measure::{add_moment, measure};
use super::micro::Micro;
use super::recompute::{self, Kept};
use super::split_pass::{Act, Own, Plan};
use super::work::{HeadLists, Work};
use crate::collective::CollectiveError;
use crate::loss::head::{self, HeadGrad};
use crate::loss::joint::{self, Member, Reach, Share};
use crate::loss::share;
use crate::model::{Decoder, Layout, Leaf, ModelError, ModelShape, Module, Parts, Weights, is_head, kind_of, part_of};
use crate::pulse::Pulse;

/// A model and the memory that its backward pass accumulates in.
#[derive(Debug)]
pub(crate) struct Trainable {
    decoder: Decoder,
    /// Each leaf with its part of the trunk. The head's parameters are not here: the head computes
    /// their gradient itself.
    trunk: Vec<(usize, Leaf)>,
    /// If true, only the inputs of layers are kept, and the backward pass computes each layer
    /// again.
    recompute: bool,
    gradient: GradientStore,
    head: HeadPlace,
    /// The weights that the decoder computes with, if they are a copy of another kind.
    compute: Option<Weights>,
    /// Moves with each micro-batch.
    pub(super) pulse: Pulse,
}

/// The views of the gradient that hold the head's.
#[derive(Debug)]
enum HeadPlace {
    /// The output matrix, which is the embedding when tied.
    Matrix(Tensor),
    Adapter {
        d_a: Tensor,
        d_b: Tensor,
    },
    Frozen,
}

impl HeadPlace {
    fn of(shape: &ModelShape, layout: &Layout, gradient: &GradientStore) -> Result<Self, ModelError> {
        let view = |name: &str| -> Result<Tensor, ModelError> {
            let spec = layout.get(name)?;
            let flat = gradient.place(spec.offset, spec.numel)?;
            Ok(flat.f_view(spec.shape.as_slice())?)
        };
        match layout.lora() {
            None if shape.tied => Ok(Self::Matrix(view("model.embed_tokens.weight")?)),
            None => Ok(Self::Matrix(view("lm_head.weight")?)),
            Some(lora) if lora.targets.has(Module::Head) => Ok(Self::Adapter {
                d_a: view("lm_head.lora_A.weight")?,
                d_b: view("lm_head.lora_B.weight")?,
            }),
            Some(_) => Ok(Self::Frozen),
        }
    }

    fn grad(&mut self) -> HeadGrad<'_> {
        match self {
            Self::Matrix(d_matrix) => HeadGrad::Matrix(d_matrix),
            Self::Adapter { d_a, d_b } => HeadGrad::Adapter { d_a, d_b },
            Self::Frozen => HeadGrad::Frozen,
        }
    }
}

impl Trainable {
    /// Builds a model that computes in `dtype`; for an adapter this is the kind of its base. The
    /// gradient is always f32, in the order of `layout`. `weights` may have another layout.
    pub(crate) fn new(
        shape: &ModelShape,
        layout: &Layout,
        base: Option<&Weights>,
        weights: &Weights,
        dtype: Dtype,
        recompute: bool,
        gradient: GradientStore,
    ) -> Result<Self, ModelError> {
        let compute = if weights.kind() == kind_of(dtype) {
            None
        } else {
            Some(weights.copied_to(weights.device(), dtype)?)
        };
        let bound = compute.as_ref().unwrap_or(weights);
        let (mut decoder, leaves) = Decoder::trainable(shape, Parts::over(base, bound))?;
        if let Some(fetch) = gradient.fetch(Act::Fetch) {
            decoder.fetch_with(fetch);
        }
        let head = HeadPlace::of(shape, layout, &gradient)?;
        let mut trunk = Vec::new();
        for mut leaf in leaves {
            leaf.offset = layout.get(&leaf.name)?.offset;
            match part_of(&leaf.name, shape.layers) {
                Some(part) => trunk.push((part, leaf)),
                // The head computes this gradient in closed form.
                None if is_head(&leaf.name) => {}
                None => return Err(ModelError::shape("a trained parameter belongs to no part of the model")),
            }
        }
        Ok(Self {
            decoder,
            trunk,
            recompute,
            gradient,
            head,
            compute,
            pulse: Pulse::default(),
        })
    }

    /// Updates the computing copy. Call it after a change of the trained weights.
    pub(crate) fn follow(&mut self, weights: &Weights) -> Result<(), ModelError> {
        if let Some(compute) = &mut self.compute {
            compute.copy_from(weights)?;
        }
        self.decoder.follow()
    }

    pub(super) fn decoder(&self) -> &Decoder {
        &self.decoder
    }

    pub(super) fn store(&self) -> &GradientStore {
        &self.gradient
    }

    /// The accumulated gradient: `[P]`, or this rank's pieces if the ranks split it.
    pub(crate) fn grad(&self) -> &Tensor {
        self.gradient.own()
    }

    /// The accumulated gradient with the zeros behind it, if this rank has all of it.
    pub(crate) fn grad_room(&self) -> Option<&Tensor> {
        self.gradient.room()
    }

    /// The error of a rank that was lost during a backward pass.
    pub(crate) fn lost(&self) -> Option<CollectiveError> {
        self.gradient.lost()
    }

    pub(crate) fn clear(&mut self) -> Result<(), ModelError> {
        Ok(self.gradient.clear()?)
    }

    /// Adds the gradient of this rank's micro-batches, for a loss that reaches no further than one
    /// of them. A loss with a KL term needs `reference`.
    pub(crate) fn accumulate(
        &mut self,
        work: &Work<'_>,
        loss: &Loss,
        reference: Option<&Decoder>,
    ) -> Result<LossStats, ModelError> {
        let mut stats = LossStats::default();
        self.passes(work, reference.is_some(), |model, index| {
            let micro = Micro::new(&model.decoder, &work.rows, work.rows_of(index), work.batch)?;
            let reference = reference.map(|decoder| micro.logprobs(decoder)).transpose()?;
            if Reach::of(loss) == Reach::Token {
                model.token_by_token(&micro, loss, reference.as_deref(), &mut stats)
            } else {
                model.together(&micro, loss, reference.as_deref(), &mut stats)
            }
        })?;
        Ok(stats)
    }

    /// Calls `compute` with each of this rank's micro-batches. All ranks make as many passes as the
    /// one with the most micro-batches, whatever happens here: the others may wait for this rank's
    /// part of a gradient.
    fn passes(
        &mut self,
        work: &Work<'_>,
        reference: bool,
        mut compute: impl FnMut(&mut Self, usize) -> Result<(), ModelError>,
    ) -> Result<(), ModelError> {
        let (own, mut outcome) = (Own::Gradient, Ok(()));
        for pass in 0..work.passes() {
            self.gradient.begin_pass(pass, Plan { reference, own });
            if outcome.is_ok()
                && self.lost().is_none()
                && let Some(index) = work.of_pass(pass)
            {
                outcome = compute(self, index);
            }
            self.gradient.end_pass();
            self.pulse.mark();
        }
        outcome
    }

    /// Returns the head's values for the trained tokens of this rank's micro-batches. Computes no
    /// gradient.
    pub(crate) fn head_lists(
        &self,
        work: &Work<'_>,
        reference: Option<&Decoder>,
    ) -> Result<Vec<HeadLists>, ModelError> {
        let mut lists = Vec::new();
        let (own, with_reference) = (Own::LogProbs, reference.is_some());
        self.looks(
            work,
            Plan {
                reference: with_reference,
                own,
            },
            |index| {
                let micro = Micro::new(&self.decoder, &work.rows, work.rows_of(index), work.batch)?;
                let reference = reference.map(|decoder| micro.logprobs(decoder)).transpose()?;
                let values = micro.values(&self.decoder)?;
                lists.push((values.logprobs, values.entropies, reference.unwrap_or_default()));
                Ok(())
            },
        )?;
        Ok(lists)
    }

    /// Returns the log-probs of the trained tokens of this rank's micro-batches, under this model
    /// or the reference policy.
    pub(crate) fn logprobs(&self, reference: Option<&Decoder>, work: &Work<'_>) -> Result<Vec<Vec<f32>>, ModelError> {
        let decoder = reference.unwrap_or(&self.decoder);
        let (reference, own) = match reference {
            Some(_) => (true, Own::Nothing),
            None => (false, Own::LogProbs),
        };
        let mut lists = Vec::new();
        self.looks(work, Plan { reference, own }, |index| {
            let micro = Micro::new(decoder, &work.rows, work.rows_of(index), work.batch)?;
            lists.push(micro.logprobs(decoder)?);
            Ok(())
        })?;
        Ok(lists)
    }

    /// The same as [`Self::passes`], without gradients.
    fn looks(
        &self,
        work: &Work<'_>,
        plan: Plan,
        mut compute: impl FnMut(usize) -> Result<(), ModelError>,
    ) -> Result<(), ModelError> {
        let mut outcome = Ok(());
        for pass in 0..work.passes() {
            self.gradient.begin_pass(pass, plan);
            if outcome.is_ok()
                && self.lost().is_none()
                && let Some(index) = work.of_pass(pass)
            {
                outcome = compute(index);
            }
            self.gradient.end_pass();
            self.pulse.mark();
        }
        outcome
    }

    /// Adds the gradient that `shares` describe, for this rank's micro-batches. There is one share
    /// for each of `members`, in the order of [`Work::members`].
    pub(crate) fn accumulate_shares(
        &mut self,
        work: &Work<'_>,
        members: &[Member],
        shares: &[Share],
    ) -> Result<LossStats, ModelError> {
        let mut stats = LossStats::default();
        let starts = work.starts();
        self.passes(work, false, |model, index| {
            let micro = Micro::new(&model.decoder, &work.rows, work.rows_of(index), work.batch)?;
            let own = starts[index]..starts[index] + micro.len();
            let forward = model.forward(&micro)?;
            let (members, shares) = (&members[own.clone()], &shares[own]);
            model.by_shares(&micro, forward, members, shares, &mut stats)
        })?;
        Ok(stats)
    }

    /// One pass through the head, for losses that need only the token's own log-prob.
    fn token_by_token(
        &mut self,
        micro: &Micro<'_>,
        loss: &Loss,
        reference: Option<&[f32]>,
        stats: &mut LossStats,
    ) -> Result<(), ModelError> {
        let forward = self.forward(micro)?;
        let input = micro.head_input(forward.states(), &self.decoder);
        let sampled = matches!(loss, Loss::Policy(_));
        let d_states = head::gradients(&input, self.head.grad(), |i, logprob, entropy| {
            let member = micro.member(i, logprob, entropy, reference.map(|lps| lps[i]));
            let share = share(loss, &member);
            measure(stats, micro.span(i), &member.token, &share, sampled);
            share.slope
        })?;
        self.backward(micro, forward, &d_states)
    }

    /// For losses that reach no further than this micro-batch.
    fn together(
        &mut self,
        micro: &Micro<'_>,
        loss: &Loss,
        reference: Option<&[f32]>,
        stats: &mut LossStats,
    ) -> Result<(), ModelError> {
        let forward = self.forward(micro)?;
        let values = head::values(&micro.head_input(forward.states(), &self.decoder))?;
        let members = micro.members(&values, reference);
        let (shares, moment) = joint::shares(loss, &members);
        add_moment(stats, &moment);
        self.by_shares(micro, forward, &members, &shares, stats)
    }

    fn by_shares(
        &mut self,
        micro: &Micro<'_>,
        forward: Forward,
        members: &[Member],
        shares: &[Share],
        stats: &mut LossStats,
    ) -> Result<(), ModelError> {
        let input = micro.head_input(forward.states(), &self.decoder);
        let d_states = head::gradients(&input, self.head.grad(), |i, _, _| {
            measure(stats, micro.span(i), &members[i].token, &shares[i], true);
            shares[i].slope
        })?;
        self.backward(micro, forward, &d_states)
    }

    /// Returns the states that predict the micro-batch's tokens, and the data for their backward
    /// pass.
    fn forward(&self, micro: &Micro<'_>) -> Result<Forward, ModelError> {
        if self.recompute {
            return Ok(Forward::Kept(recompute::forward(&self.decoder, micro, &self.trunk)?));
        }
        tch::with_grad(|| micro.states(&self.decoder)).map(Forward::Graph)
    }

    fn backward(&mut self, micro: &Micro<'_>, forward: Forward, d_states: &Tensor) -> Result<(), ModelError> {
        self.gradient.completed(None);
        if self.trunk.is_empty() {
            return Ok(());
        }
        let (gradient, trunk) = (&self.gradient, &self.trunk);
        let states = match forward {
            Forward::Graph(states) => states,
            Forward::Kept(kept) => {
                return recompute::backward(&self.decoder, micro, kept, trunk, d_states, |part, grads| {
                    grads.iter().try_for_each(|(leaf, grad)| gradient.add(leaf, grad))?;
                    gradient.completed(Some(part));
                    Ok(())
                });
            }
        };
        let leaves: Vec<&Tensor> = self.trunk.iter().map(|(_, leaf)| &leaf.tensor).collect();
        // tch has no backward pass with a given upstream gradient; this sum has exactly that
        // gradient.
        let grads = tch::with_grad(|| {
            let scalar = states.f_mul(d_states)?.f_sum(Kind::Float)?;
            Tensor::f_run_backward(&[scalar], &leaves, false, false)
        })?;
        self.trunk
            .iter()
            .zip(&grads)
            .try_for_each(|((_, leaf), grad)| self.gradient.add(leaf, grad))
    }
}

/// A forward pass before its backward pass.
enum Forward {
    /// States with a graph.
    Graph(Tensor),
    Kept(Kept),
}

impl Forward {
    fn states(&self) -> &Tensor {
        match self {
            Self::Graph(states) => states,
            Self::Kept(kept) => &kept.states,
        }
    }
}
