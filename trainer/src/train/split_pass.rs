//! A pass over micro-batches on ranks that split the gradient (ZeRO-2) or the weights too (ZeRO-3;
//! Rajbhandari et al., arXiv:1910.02054, stages 2 and 3).
//!
//! Ranks hold the gradient of one part of the model in f32 at a time, besides embedding and head.
//! When a part's gradient is complete, the ranks add theirs, and each keeps its piece. With ZeRO-3
//! a layer's weights are gathered before the layer is computed, those of the reference policy too.
//! All ranks make the same acts in the same order: a rank without a micro-batch, or with a failure,
//! takes part with zeros.

use tch::{Device, Kind, TchError, Tensor};

use super::model_parts::{LayerWeights, Stretch};
use super::ranks::{Cut, Parts};
use crate::collective::{Collective, CollectiveError, Operation, Shared};

/// The computation of a pass over a micro-batch with the trained weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Own {
    Nothing,
    LogProbs,
    Gradient,
}

/// The computations of a pass over a micro-batch, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Plan {
    /// True for log-probs under the reference policy.
    pub(super) reference: bool,
    pub(super) own: Own,
}

/// An act of all ranks together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Act {
    /// Gathers the weights of a layer, by its part of the trunk.
    Fetch(usize),
    /// The same for the reference policy.
    FetchReference(usize),
    /// Adds the gradients of a part.
    Add(Option<usize>),
}

/// The acts of the passes, and how far the present pass is.
#[derive(Debug)]
pub(super) struct SplitPass {
    group: Shared,
    /// This rank's pieces of the gradient, `[Parts::length]`.
    own: Tensor,
    parts: Vec<PartGradient>,
    layers: Vec<LayerWeights>,
    /// The reference policy's layers, if the ranks split them.
    reference: Vec<LayerWeights>,
    /// The acts of the present pass, and the number of those made.
    acts: Vec<Act>,
    next: usize,
    lost: Option<CollectiveError>,
}

/// The gradient of a part of the model that this rank computes.
#[derive(Debug)]
pub(super) struct PartGradient {
    part: Option<usize>,
    pub(super) cut: Cut,
    /// Zeros follow the part's gradient. Layers share their memory.
    pub(super) scratch: Tensor,
}

impl SplitPass {
    /// `parts` cuts each of `stretches`. `weights` has the layers whose weights are split too.
    pub(super) fn new(
        group: Shared,
        (stretches, parts, layers): (&[Stretch], &Parts, usize),
        weights: Vec<LayerWeights>,
        device: Device,
    ) -> Result<Self, TchError> {
        let own = parts.zeros(Kind::Float, device)?;
        Ok(Self {
            group,
            own,
            parts: gradients(stretches, parts, layers, device)?,
            layers: weights,
            reference: Vec::new(),
            acts: Vec::new(),
            next: 0,
            lost: None,
        })
    }

    /// Replaces the reference policy's layers.
    pub(super) fn set_reference(&mut self, layers: Vec<LayerWeights>) {
        self.reference = layers;
    }

    /// This rank's pieces of the gradient.
    pub(super) fn own(&self) -> &Tensor {
        &self.own
    }

    pub(super) fn parts(&self) -> &[PartGradient] {
        &self.parts
    }

    pub(super) fn splits_weights(&self) -> bool {
        !self.layers.is_empty()
    }

    pub(super) fn lost(&self) -> Option<&CollectiveError> {
        self.lost.as_ref()
    }

    /// Begins a pass. Returns true if the ranks make acts together in it.
    pub(super) fn begin(&mut self, plan: Plan) -> bool {
        (self.acts, self.next) = (self.acts_of(plan), 0);
        !self.acts.is_empty()
    }

    fn acts_of(&self, plan: Plan) -> Vec<Act> {
        let mut acts = Vec::new();
        if plan.reference {
            acts.extend(self.reference.iter().map(|layer| Act::FetchReference(layer.part)));
        }
        let layers: Vec<Act> = self.layers.iter().map(|layer| Act::Fetch(layer.part)).collect();
        if plan.own != Own::Nothing {
            acts.extend(&layers);
        }
        if plan.own == Own::Gradient {
            for gradient in &self.parts {
                acts.extend(gradient.part.map(Act::Fetch).filter(|fetch| layers.contains(fetch)));
                acts.push(Act::Add(gradient.part));
            }
        }
        acts
    }

    /// Waits for the other ranks, outside a pass.
    pub(super) fn meet(&mut self) {
        if self.lost.is_none() {
            let met = self.group.barrier();
            self.note(met);
        }
    }

    /// Ends the pass: makes the acts that this rank has not reached. Its gradients there count as
    /// zeros.
    pub(super) fn end(&mut self) {
        let rest = &self.acts[self.next..];
        if rest.iter().any(|act| matches!(act, Act::Add(_))) {
            let emptied = self.parts.iter().try_for_each(|part| zero(&part.scratch));
            let group = &self.group;
            let emptied = emptied.map_err(|error| CollectiveError::of_call(group, Operation::ReduceScatter, &error));
            self.note(emptied);
        }
        self.go(self.acts.len());
        self.next = 0;
    }

    /// Makes the acts up to the next `act`; none if the pass does not have it. Call it for
    /// [`Act::Add`] when the part's gradient is complete on this rank.
    pub(super) fn reach(&mut self, act: Act) {
        let ahead = self.acts[self.next..].iter().position(|one| *one == act);
        if let Some(ahead) = ahead {
            self.go(self.next + ahead + 1);
        }
    }

    fn go(&mut self, count: usize) {
        while self.next < count && self.lost.is_none() {
            let act = self.acts[self.next];
            let made = self.make(act);
            self.note(made);
            self.next += 1;
        }
    }

    fn make(&self, act: Act) -> Result<(), CollectiveError> {
        match act {
            Act::Fetch(part) => self.fetch(&self.layers, part),
            Act::FetchReference(part) => self.fetch(&self.reference, part),
            Act::Add(part) => match self.parts.iter().find(|one| one.part == part) {
                Some(part) => self.add_part(part),
                None => Ok(()),
            },
        }
    }

    fn fetch(&self, layers: &[LayerWeights], part: usize) -> Result<(), CollectiveError> {
        match layers.iter().find(|layer| layer.part == part) {
            Some(layer) => self.group.all_gather(&mut layer.room.shallow_clone(), &layer.own),
            None => Ok(()),
        }
    }

    fn add_part(&self, part: &PartGradient) -> Result<(), CollectiveError> {
        let call = |error: TchError| CollectiveError::of_call(&self.group, Operation::ReduceScatter, &error);
        let cut = &part.cut;
        let mut piece = Tensor::f_zeros([cut.stride], (Kind::Float, self.own.device())).map_err(call)?;
        self.group.reduce_scatter(&mut piece, &part.scratch)?;
        let add = || -> Result<(), TchError> {
            let _no_grad = tch::no_grad_guard();
            let _ = self.own.f_narrow(0, cut.place, cut.stride)?.f_add_(&piece)?;
            zero(&part.scratch)
        };
        add().map_err(call)
    }

    fn note(&mut self, outcome: Result<(), CollectiveError>) {
        if let Err(error) = outcome {
            self.lost.get_or_insert(error);
        }
    }
}

/// The memory of the parts' gradients, in the order in which a backward pass completes them: from
/// the head to the embedding.
fn gradients(
    stretches: &[Stretch],
    parts: &Parts,
    layers: usize,
    device: Device,
) -> Result<Vec<PartGradient>, TchError> {
    let room = |cut: &Cut| cut.stride * parts.ranks() as i64;
    // The norm's gradient is added before that of the last layer begins.
    let is_shared = |stretch: &Stretch| stretch.is_layer(layers) || stretch.part == Some(layers + 1);
    let pairs = || stretches.iter().zip(parts.cuts());
    let longest = pairs().filter(|(stretch, _)| is_shared(stretch));
    let longest = longest.map(|(_, cut)| room(cut)).max().unwrap_or(0);
    let zeros = |length: i64| Tensor::f_zeros([length], (Kind::Float, device));
    let shared = zeros(longest)?;
    let gradient = |(stretch, cut): (&Stretch, &Cut)| -> Result<PartGradient, TchError> {
        let scratch = if is_shared(stretch) {
            shared.f_narrow(0, 0, room(cut))?
        } else {
            zeros(room(cut))?
        };
        let (part, cut) = (stretch.part, cut.clone());
        Ok(PartGradient { part, cut, scratch })
    };
    pairs().rev().map(gradient).collect()
}

pub(super) fn zero(tensor: &Tensor) -> Result<(), TchError> {
    tensor.shallow_clone().f_zero_().map(|_| ())
}
