//! The memory that a backward pass adds to: the whole gradient on each rank, or this rank's pieces
//! of it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tch::{Device, Kind, TchError, Tensor};

use super::model_parts::LayerWeights;
use super::split_pass::{Act, Plan, SplitPass, zero};
use crate::collective::{Collective, CollectiveError, Shared};
use crate::model::{Leaf, ModelError};

/// The gradient of the trained weights, in f32.
#[derive(Debug)]
pub(crate) enum GradientStore {
    Whole {
        /// `[P]`, in the order of the weights.
        flat: Tensor,
        /// The buffer that begins with `flat`. The rest is zero, so that ranks get equal pieces.
        room: Tensor,
        group: Shared,
        lost: Mutex<Option<CollectiveError>>,
    },
    Split {
        /// This rank's pieces, `[Parts::length]`.
        own: Tensor,
        pass: Arc<Mutex<SplitPass>>,
    },
}

fn lock<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
}

impl GradientStore {
    pub(super) fn whole(group: Shared, total: i64, room: i64, device: Device) -> Result<Self, TchError> {
        let room = Tensor::f_zeros([room], (Kind::Float, device))?;
        let flat = room.f_narrow(0, 0, total)?;
        let lost = Mutex::default();
        Ok(Self::Whole {
            flat,
            room,
            group,
            lost,
        })
    }

    pub(super) fn split(pass: SplitPass) -> Self {
        Self::Split {
            own: pass.own().shallow_clone(),
            pass: Arc::new(Mutex::new(pass)),
        }
    }

    /// The accumulated gradient: `[P]`, or this rank's pieces.
    pub(super) fn own(&self) -> &Tensor {
        match self {
            Self::Whole { flat, .. } => flat,
            Self::Split { own, .. } => own,
        }
    }

    /// The whole gradient with the zeros behind it, if this rank has it.
    pub(super) fn room(&self) -> Option<&Tensor> {
        match self {
            Self::Whole { room, .. } => Some(room),
            Self::Split { .. } => None,
        }
    }

    /// Returns a function that gathers the weights of a layer (from 0), if the ranks split them.
    /// `act` makes the act for a part of the trunk.
    pub(super) fn fetch(&self, act: fn(usize) -> Act) -> Option<impl Fn(usize) + Send + Sync + 'static> {
        match self {
            Self::Split { pass, .. } if lock(pass).splits_weights() => {
                let pass = Arc::clone(pass);
                Some(move |layer: usize| lock(&pass).reach(act(layer + 1)))
            }
            _ => None,
        }
    }

    /// Takes the reference policy's layers, which passes gather.
    pub(super) fn set_reference(&self, layers: Vec<LayerWeights>) {
        if let Self::Split { pass, .. } = self {
            lock(pass).set_reference(layers);
        }
    }

    /// The memory for the gradient of neighbouring parameters.
    pub(super) fn place(&self, offset: usize, numel: usize) -> Result<Tensor, ModelError> {
        let (offset, numel) = (offset as i64, numel as i64);
        match self {
            Self::Whole { flat, .. } => Ok(flat.f_narrow(0, offset, numel)?),
            Self::Split { pass, .. } => {
                let pass = lock(pass);
                let part = pass.parts().iter().find(|part| part.cut.range.contains(&offset));
                let part = part.ok_or_else(|| ModelError::shape("a parameter belongs to no part of the model"))?;
                Ok(part.scratch.f_narrow(0, offset - part.cut.range.start, numel)?)
            }
        }
    }

    pub(super) fn add(&self, leaf: &Leaf, grad: &Tensor) -> Result<(), ModelError> {
        let _no_grad = tch::no_grad_guard();
        let mut sum = self.place(leaf.offset, leaf.numel)?;
        let _ = sum.f_add_(&grad.f_reshape([-1])?)?;
        Ok(())
    }

    /// Begins a pass over a micro-batch. Ranks that act together in the pass meet in it; other
    /// ranks meet before it.
    pub(super) fn begin_pass(&self, index: usize, plan: Plan) {
        let acts = match self {
            Self::Split { pass, .. } => lock(pass).begin(plan),
            Self::Whole { .. } => false,
        };
        // Without a meeting a rank would wait for the lag of a whole batch at its end.
        if index > 0 && !acts {
            self.meet();
        }
    }

    fn meet(&self) {
        match self {
            Self::Split { pass, .. } => lock(pass).meet(),
            Self::Whole { group, lost, .. } => {
                let mut lost = lock(lost);
                if lost.is_none() {
                    *lost = group.barrier().err();
                }
            }
        }
    }

    /// Call it when the gradient of a part (`None`: the head) is complete on this rank.
    pub(super) fn completed(&self, part: Option<usize>) {
        if let Self::Split { pass, .. } = self {
            lock(pass).reach(Act::Add(part));
        }
    }

    /// Ends a pass, on this rank with or without a micro-batch.
    pub(super) fn end_pass(&self) {
        if let Self::Split { pass, .. } = self {
            lock(pass).end();
        }
    }

    /// The error of a rank that was lost in a pass.
    pub(super) fn lost(&self) -> Option<CollectiveError> {
        match self {
            Self::Whole { lost, .. } => lock(lost).clone(),
            Self::Split { pass, .. } => lock(pass).lost().cloned(),
        }
    }

    pub(super) fn clear(&self) -> Result<(), TchError> {
        zero(self.own())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::model_parts::stretches;
    use super::super::ranks::Parts;
    use super::super::split_pass::Own;
    use super::*;
    use crate::collective::tests::{Member, in_ranks};
    use crate::model::{Layout, ModelShape, part_of, test_shape};

    #[test]
    fn parts_of_the_model_are_neighbours_in_the_buffer() {
        for tied in [false, true] {
            let shape = ModelShape { tied, ..test_shape() };
            let layout = Layout::of(&shape);
            let found = stretches(&layout, shape.layers);
            let parts: Vec<Option<usize>> = found.iter().map(|stretch| stretch.part).collect();
            let mut wanted: Vec<Option<usize>> = (0..shape.layers + 2).map(Some).collect();
            wanted.extend((!tied).then_some(None));
            assert_eq!(parts, wanted);
            assert_eq!(found[found.len() - 1].range.end as usize, layout.numel());
        }
    }

    /// Rank 0 completes every part twice over; rank 1 has no micro-batch, or fails after the head.
    #[test]
    fn rank_without_a_micro_batch_takes_part_with_zeros() {
        let Some(member) = Member::here() else {
            return in_ranks(
                "train::gradient_store::tests::rank_without_a_micro_batch_takes_part_with_zeros",
                2,
            );
        };
        let group = Shared::new(Box::new(member.join("group", Duration::from_secs(60))));
        let (layout, layers) = (Layout::of(&test_shape()), test_shape().layers);
        let stretches = stretches(&layout, layers);
        let parts = Parts::of(stretches.iter().map(|stretch| stretch.range.clone()), member.rank, 2);
        let pass = SplitPass::new(group, (&stretches, &parts, layers), Vec::new(), Device::Cpu).unwrap();
        let store = GradientStore::split(pass);
        for _ in 0..2 {
            let (reference, own) = (false, Own::Gradient);
            store.begin_pass(0, Plan { reference, own });
            for part in [None].into_iter().chain((0..layers + 2).rev().map(Some)) {
                for spec in layout.params() {
                    let own = part_of(&spec.name, layers) == part;
                    if own && (member.rank == 0 || part.is_none()) {
                        let _ = store
                            .place(spec.offset, spec.numel)
                            .unwrap()
                            .f_add_scalar_(1.0)
                            .unwrap();
                    }
                }
                if member.rank == 0 {
                    store.completed(part);
                }
            }
            store.end_pass();
        }
        assert!(store.lost().is_none());
        for (range, place) in parts.pieces() {
            let own = store.own().narrow(0, place, range.end - range.start);
            assert!(own.eq(2.0).all().int64_value(&[]) == 1, "{range:?}");
        }
    }
}
