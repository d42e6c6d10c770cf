//! Lays out a trainer's weights, state and gradient for its options and ranks.

use std::ops::Range;
use std::sync::Arc;

use configs::{Offload, Shard};
use tch::{Kind, Tensor};

use super::compute_weights::ComputeWeights;
use super::gradient_store::GradientStore;
use super::model_parts::{Stretch, Window, stretches};
use super::options::TrainerOptions;
use super::owned::{Owned, Place};
use super::ranks::{Parts, Ranks};
use super::source::Source;
use super::split_pass::SplitPass;
use crate::model::{Layout, ModelError, ModelShape, Weights, kind_of};

/// The parts of a trainer that a rank holds.
pub(super) struct Held {
    /// The layout of the trained weights.
    pub(super) layout: Arc<Layout>,
    pub(super) parts: Parts,
    /// The weights to compute with.
    pub(super) weights: Weights,
    pub(super) computing: ComputeWeights,
    pub(super) owned: Owned,
    pub(super) gradient: GradientStore,
}

impl Held {
    /// Lays out the weights of `source`. Ranks that split the state copy no more than their own
    /// parts.
    pub(super) fn new(
        shape: &ModelShape,
        source: Source,
        options: &TrainerOptions,
        ranks: &Ranks,
    ) -> Result<Self, ModelError> {
        check(source.layout(), options)?;
        let (layout, device) = (Arc::clone(source.layout()), options.device);
        let found = stretches(&layout, shape.layers);
        let parts = parts_of(&layout, &found, options, ranks);
        let place = place(&layout, &parts, options);
        let (weights, computing, owned) = if options.shard == Shard::Full && !parts.is_whole() {
            let masters = Owned::masters_apart(source.params(), &parts, place, options)?;
            let kind = kind_of(options.dtype);
            let window = Window::new(&layout, shape.layers, &parts, (kind, device))?;
            let own = parts.zeros(kind, device)?;
            window.fill(source.params())?;
            own.shallow_clone().f_copy_(&masters)?;
            // Frees weights in memory before moments and gradient are allocated.
            drop(source);
            let owned = Owned::new(&layout, masters, &parts, place, options)?;
            (window.weights.share(), ComputeWeights::Window { window, own }, owned)
        } else {
            let (weights, room, owned) = lay_out(source, &parts, place, options)?;
            (weights, ComputeWeights::Whole(room), owned)
        };
        let gradient = if splits_gradient(options) && !parts.is_whole() {
            let group = ranks.group().clone();
            let layers = computing.layers(&parts)?;
            GradientStore::split(SplitPass::new(group, (&found, &parts, shape.layers), layers, device)?)
        } else {
            GradientStore::whole(ranks.group().clone(), layout.numel() as i64, parts.room(), device)?
        };
        Ok(Self {
            layout,
            parts,
            weights,
            computing,
            owned,
            gradient,
        })
    }
}

fn splits_gradient(options: &TrainerOptions) -> bool {
    matches!(options.shard, Shard::Gradient | Shard::Full)
}

fn check(layout: &Layout, options: &TrainerOptions) -> Result<(), ModelError> {
    if splits_gradient(options) && !options.checkpoint_activations {
        return Err(ModelError::shape(
            "ranks split the gradient of one layer after another, which needs checkpoint_activations",
        ));
    }
    if options.shard == Shard::Full && layout.lora().is_some() {
        return Err(ModelError::shape(
            "an adapter's base is not split among ranks; split its gradient at most",
        ));
    }
    Ok(())
}

/// The pieces that each rank owns.
fn parts_of(layout: &Layout, stretches: &[Stretch], options: &TrainerOptions, ranks: &Ranks) -> Parts {
    let total = layout.numel() as i64;
    let of = |ranges: Vec<Range<i64>>| Parts::of(ranges, ranks.rank(), ranks.count());
    match options.shard {
        _ if ranks.is_alone() => Parts::whole(total),
        Shard::None => Parts::whole(total),
        Shard::Optimizer => of(std::iter::once(0..total).collect()),
        Shard::Gradient | Shard::Full => of(stretches.iter().map(|stretch| stretch.range.clone()).collect()),
    }
}

/// The kind of the weights of all ranks, if the masters are apart from them. An adapter is small,
/// and some engines read it in f32, so it stays in f32 on all ranks.
fn kind(layout: &Layout, options: &TrainerOptions) -> Kind {
    match layout.lora() {
        Some(_) => Kind::Float,
        None => kind_of(options.dtype),
    }
}

fn place(layout: &Layout, parts: &Parts, options: &TrainerOptions) -> Place {
    let in_f32 = kind(layout, options) == Kind::Float;
    match options.offload {
        Offload::Optimizer => Place::Host,
        Offload::None if parts.is_whole() || (in_f32 && options.shard == Shard::Optimizer) => Place::Within,
        Offload::None => Place::Device,
    }
}

/// Lays out weights that all ranks have: the weights, the buffer that begins with them, and the
/// state that this rank owns.
fn lay_out(
    source: Source,
    parts: &Parts,
    place: Place,
    options: &TrainerOptions,
) -> Result<(Weights, Tensor, Owned), ModelError> {
    let room = |kind: Kind| Tensor::f_zeros([parts.room()], (kind, options.device));
    match place {
        Place::Within if parts.is_whole() => {
            let weights = source.moved(options.device)?;
            let flat = weights.flat().shallow_clone();
            let owned = Owned::new(weights.layout(), flat.shallow_clone(), parts, place, options)?;
            Ok((weights, flat, owned))
        }
        Place::Within => {
            let room = room(Kind::Float)?;
            let within = parts.view(&room)?.unwrap_or_else(|| room.shallow_clone());
            let weights = source.copied_into(&room)?;
            // Frees weights in memory before the moments are allocated.
            drop(source);
            let owned = Owned::new(weights.layout(), within, parts, place, options)?;
            Ok((weights, room, owned))
        }
        Place::Device | Place::Host => {
            let room = room(kind(source.layout(), options))?;
            let masters = Owned::masters_apart(source.params(), parts, place, options)?;
            let weights = source.copied_into(&room)?;
            // Frees weights in memory before the moments are allocated.
            drop(source);
            let owned = Owned::new(weights.layout(), masters, parts, place, options)?;
            Ok((weights, room, owned))
        }
    }
}
