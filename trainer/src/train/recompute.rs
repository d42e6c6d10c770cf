//! Activation checkpointing (Chen et al., "Training deep nets with sublinear memory cost", arXiv:1604.06174): of each layer its
//! input is kept, and the backward pass computes the layer anew, one at a time.
//!
//! The forward pass takes the same way as with a graph, so that both give the same bits; only, the graph of a layer goes when the layer is
//! done. A gradient reaches a layer by way of the sum of `out * upstream`, whose derivative is exactly `upstream`.

use tch::{Kind, Tensor};

use super::micro::Micro;
use crate::model::{Decoder, Leaf, ModelError};

/// What the parts of the trunk were given, and what the last one gave for the tokens that are predicted.
pub(super) struct Kept {
    /// Of each part but the first.
    inputs: Vec<Tensor>,
    pub(super) states: Tensor,
}

/// The first part of the trunk with a leaf: below it no gradient goes.
fn lowest(trunk: &[(usize, Leaf)]) -> usize {
    trunk.iter().map(|(part, _)| *part).min().unwrap_or(usize::MAX)
}

/// The input of a part as the graph sees it.
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

/// Gives `add` the gradient of each leaf, the upstream gradient of [`Kept::states`] being `upstream`.
pub(super) fn backward(
    decoder: &Decoder,
    micro: &Micro<'_>,
    kept: Kept,
    trunk: &[(usize, Leaf)],
    upstream: &Tensor,
    mut add: impl FnMut(&Leaf, &Tensor) -> Result<(), ModelError>,
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
        for (leaf, grad) in own.into_iter().zip(&grads) {
            add(leaf, grad)?;
        }
    }
    Ok(())
}
