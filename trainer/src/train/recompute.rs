//! Activation checkpointing (Chen et al., "Training deep nets with sublinear memory cost",
//! arXiv:1604.06174): the forward pass keeps only the input of each layer, and the backward pass
//! computes one layer at a time again.
//!
//! The forward pass takes the same code path as with a graph, so both give the same bits. The only
//! difference is that a layer's graph is dropped when the layer is done. The gradient enters a
//! layer through the sum of `out * upstream`; its derivative is exactly `upstream`.

use tch::{Kind, Tensor};

use super::micro::Micro;
use crate::model::{Decoder, Leaf, ModelError};

/// The inputs of the trunk's parts, and the last part's states of the predicted tokens.
pub(super) struct Kept {
    /// The input of each part except the first.
    inputs: Vec<Tensor>,
    pub(super) states: Tensor,
}

/// The first part of the trunk with a leaf. No gradient flows below it.
fn lowest(trunk: &[(usize, Leaf)]) -> usize {
    trunk.iter().map(|(part, _)| *part).min().unwrap_or(usize::MAX)
}

/// The input of a part as its graph sees it.
fn bound(input: &Tensor, part: usize, trunk: &[(usize, Leaf)]) -> Result<Tensor, ModelError> {
    Ok(input.f_detach()?.f_set_requires_grad(part > lowest(trunk))?)
}

pub(super) fn forward(decoder: &Decoder, micro: &Micro<'_>, trunk: &[(usize, Leaf)]) -> Result<Kept, ModelError> {
    let turns = decoder.turns(micro.rows())?;
    let mut inputs: Vec<Tensor> = Vec::with_capacity(decoder.parts());
    for part in 0..decoder.parts() {
        let input = inputs.last().map(|input| bound(input, part, trunk)).transpose()?;
        let made = tch::with_grad(|| decoder.part(part, micro.rows(), &turns, input.as_ref()))?;
        inputs.push(made.f_detach()?);
    }
    let last = inputs.pop().ok_or(ModelError::EmptyBatch)?;
    Ok(Kept {
        inputs,
        states: micro.predicting(&last)?,
    })
}

/// Computes the gradients of a part's leaves and passes them to `add`, part after part from the
/// last. `upstream` is the gradient of [`Kept::states`].
pub(super) fn backward(
    decoder: &Decoder,
    micro: &Micro<'_>,
    kept: Kept,
    trunk: &[(usize, Leaf)],
    upstream: &Tensor,
    mut add: impl FnMut(usize, &[(&Leaf, Tensor)]) -> Result<(), ModelError>,
) -> Result<(), ModelError> {
    let turns = decoder.turns(micro.rows())?;
    let (mut inputs, mut upstream) = (kept.inputs, upstream.shallow_clone());
    for part in (lowest(trunk)..decoder.parts()).rev() {
        let input = inputs.pop().map(|input| bound(&input, part, trunk)).transpose()?;
        let own: Vec<&Leaf> = trunk
            .iter()
            .filter(|(of, _)| *of == part)
            .map(|(_, leaf)| leaf)
            .collect();
        let mut wanted: Vec<&Tensor> = own.iter().map(|leaf| &leaf.tensor).collect();
        wanted.extend(input.as_ref().filter(|input| input.requires_grad()));
        let mut grads = tch::with_grad(|| -> Result<Vec<Tensor>, ModelError> {
            let mut out = decoder.part(part, micro.rows(), &turns, input.as_ref())?;
            if part + 1 == decoder.parts() {
                out = micro.predicting(&out)?;
            }
            let scalar = out.f_mul(&upstream)?.f_sum(Kind::Float)?;
            Ok(Tensor::f_run_backward(&[scalar], &wanted, false, false)?)
        })?;
        if grads.len() > own.len() {
            upstream = grads.swap_remove(own.len());
        }
        let grads: Vec<(&Leaf, Tensor)> = own.into_iter().zip(grads).collect();
        add(part, &grads)?;
    }
    Ok(())
}
