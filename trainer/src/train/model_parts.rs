//! The parts of a model as stretches of its flat buffer: embedding, layers, final norm, head.

use std::ops::Range;
use std::sync::Arc;

use tch::{Device, Kind, TchError, Tensor};

use super::ranks::{Cut, Parts};
use crate::collective::{Collective, CollectiveError, Operation};
use crate::model::{Layout, ModelError, ParamSource, Weights, part_of};

/// A part of the model with trained parameters, which are neighbours in the flat buffer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stretch {
    /// The part of the trunk, counted from the embedding; `None` for the head.
    pub(super) part: Option<usize>,
    pub(super) range: Range<i64>,
}

impl Stretch {
    /// Returns true if this is one of `layers` layers.
    pub(super) fn is_layer(&self, layers: usize) -> bool {
        self.part.is_some_and(|part| (1..=layers).contains(&part))
    }
}

/// The parts of a model with `layers` layers, in the order of the flat buffer.
pub(super) fn stretches(layout: &Layout, layers: usize) -> Vec<Stretch> {
    let mut stretches: Vec<Stretch> = Vec::new();
    for spec in layout.params() {
        let part = part_of(&spec.name, layers);
        let range = spec.range();
        match stretches.last_mut() {
            Some(last) if last.part == part => last.range.end = range.end,
            _ => stretches.push(Stretch { part, range }),
        }
    }
    stretches
}

/// The weights of a layer: this rank's piece, and the place where all of them are gathered.
#[derive(Debug)]
pub(super) struct LayerWeights {
    pub(super) part: usize,
    pub(super) own: Tensor,
    pub(super) room: Tensor,
}

/// Weights of which only one layer is there at a time (ZeRO-3, Rajbhandari et al.,
/// arXiv:1910.02054, stage 3): embedding, norm and head have their places, and all layers share
/// one.
#[derive(Debug)]
pub(super) struct Window {
    /// The weights to compute with, under a layout of the window.
    pub(super) weights: Weights,
    /// The room of each stretch, as long as the pieces of all ranks.
    rooms: Vec<Tensor>,
    stretches: Vec<Stretch>,
    layers: usize,
}

impl Window {
    /// A window of zeros on `device`. `parts` cuts each of the stretches of `layout`.
    pub(super) fn new(
        layout: &Layout,
        layers: usize,
        parts: &Parts,
        (kind, device): (Kind, Device),
    ) -> Result<Self, ModelError> {
        let stretches = stretches(layout, layers);
        let room = |cut: &Cut| cut.stride * parts.ranks() as i64;
        let pairs = || stretches.iter().zip(parts.cuts());
        let longest = pairs().filter(|(stretch, _)| stretch.is_layer(layers));
        let mut end = longest.map(|(_, cut)| room(cut)).max().unwrap_or(0);
        let mut starts = Vec::new();
        for (stretch, cut) in pairs() {
            // The layers' place is the first.
            let start = if stretch.is_layer(layers) { 0 } else { end };
            starts.push(start);
            end = end.max(start + room(cut));
        }
        let place = |offset: i64| {
            let found = pairs()
                .zip(&starts)
                .find(|((stretch, _), _)| stretch.range.contains(&offset));
            found.map_or(offset, |((stretch, _), start)| start + offset - stretch.range.start)
        };
        let moved = layout.relocated(end as usize, |spec| place(spec.offset as i64) as usize);
        let whole = Tensor::f_zeros([end], (kind, device))?;
        let rooms: Result<Vec<Tensor>, TchError> = pairs()
            .zip(&starts)
            .map(|((_, cut), start)| whole.f_narrow(0, *start, room(cut)))
            .collect();
        Ok(Self {
            weights: Weights::at_start_of(&whole, Arc::new(moved))?,
            rooms: rooms?,
            stretches,
            layers,
        })
    }

    /// Each stretch with its room.
    fn rooms(&self) -> impl Iterator<Item = (&Stretch, &Tensor)> {
        self.stretches.iter().zip(&self.rooms)
    }

    /// Returns the layers. `own` has this rank's pieces of them, as `parts` cuts them.
    pub(super) fn layers(&self, parts: &Parts, own: &Tensor) -> Result<Vec<LayerWeights>, TchError> {
        let split = self.rooms().zip(parts.cuts());
        let layers = split.filter(|((stretch, _), _)| stretch.is_layer(self.layers));
        let layer = |((stretch, room), cut): ((&Stretch, &Tensor), &Cut)| {
            Ok(LayerWeights {
                part: stretch.part.unwrap_or_default(),
                own: own.f_narrow(0, cut.place, cut.stride)?,
                room: room.shallow_clone(),
            })
        };
        layers.map(layer).collect()
    }

    /// Copies the parts that are always there.
    pub(super) fn fill(&self, source: &dyn ParamSource) -> Result<(), ModelError> {
        for (stretch, room) in self.rooms().filter(|(stretch, _)| !stretch.is_layer(self.layers)) {
            let range = &stretch.range;
            source.copy(range, &room.f_narrow(0, 0, range.end - range.start)?)?;
        }
        Ok(())
    }

    /// Gathers the parts that are always there. `own` has this rank's pieces.
    pub(super) fn gather(&self, group: &dyn Collective, parts: &Parts, own: &Tensor) -> Result<(), CollectiveError> {
        let call = |error: TchError| CollectiveError::of_call(group, Operation::AllGather, &error);
        for ((stretch, room), cut) in self.rooms().zip(parts.cuts()) {
            if !stretch.is_layer(self.layers) {
                let piece = own.f_narrow(0, cut.place, cut.stride).map_err(call)?;
                group.all_gather(&mut room.shallow_clone(), &piece)?;
            }
        }
        Ok(())
    }
}
