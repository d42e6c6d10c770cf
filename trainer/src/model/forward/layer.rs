//! One decoder layer, except for the attention over keys, which the caller supplies.

use tch::{Kind, Tensor};

use super::rope_table::RopeRows;
use crate::linear::linear;
use crate::model::adapters::Delta;
use crate::model::error::Result;
use crate::model::shape::ModelShape;
use crate::ordered::Ordered;

/// Parameters of one layer; q, k, v are one matrix, and so are gate and up.
#[derive(Debug)]
pub(crate) struct Layer {
    pub(super) input_norm: Tensor,
    pub(in crate::model) qkv: Linear,
    /// The norms of queries and keys, in models with head norms.
    pub(super) head_norms: Option<[Tensor; 2]>,
    pub(in crate::model) output: Linear,
    pub(super) mlp_norm: Tensor,
    pub(super) gate_up: Linear,
    pub(super) down: Linear,
}

/// `x W^T + b`, and an adapter's change.
#[derive(Debug)]
pub(crate) struct Linear {
    pub(in crate::model) weight: Tensor,
    pub(in crate::model) bias: Option<Tensor>,
    /// Set in an engine.
    pub(super) ordered: Option<Ordered>,
    pub(in crate::model) delta: Option<Delta>,
}

impl Linear {
    pub(in crate::model) fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let y = match (&self.ordered, &self.bias) {
            (None, bias) => linear(x, &self.weight, bias.as_ref())?,
            (Some(ordered), None) => ordered.times(x)?,
            (Some(ordered), Some(bias)) => ordered.times(x)?.f_add_(bias)?,
        };
        match &self.delta {
            Some(delta) => delta.add_to(&y, x),
            None => Ok(y),
        }
    }

    /// Orders the matrix. From then on [`Self::forward`] reads and returns f32, whatever the kind
    /// of the weights.
    pub(super) fn put_in_order(&mut self, frozen: bool) -> Result<()> {
        self.ordered = Ordered::of(&self.weight, frozen);
        if let (Some(_), Some(delta)) = (&self.ordered, &mut self.delta) {
            *delta = delta.to_kind(Kind::Float)?;
        }
        Ok(())
    }

    /// The kind that [`Self::forward`] reads and returns.
    pub(super) fn kind(&self) -> Kind {
        self.ordered.as_ref().map_or(self.weight.kind(), |_| Kind::Float)
    }

    /// The same layer with an adapter that adds numbers other than 0 ([`Delta::for_trial`]).
    pub(in crate::model) fn for_trial(&self) -> Result<Self> {
        Ok(Self {
            weight: self.weight.shallow_clone(),
            bias: self.bias.as_ref().map(Tensor::shallow_clone),
            ordered: self.ordered.clone(),
            delta: self.delta.as_ref().map(Delta::for_trial).transpose()?,
        })
    }
}

/// Queries, keys and values of some tokens, `[tokens, heads or kv_heads, head_dim]`, normed and
/// rotated.
#[derive(Debug)]
pub(crate) struct Heads {
    pub(crate) q: Tensor,
    pub(crate) k: Tensor,
    pub(crate) v: Tensor,
}

impl Layer {
    /// Orders the matrices, and widens the norms for the kernels.
    pub(super) fn put_in_order(&mut self, frozen: bool) -> Result<()> {
        for linear in [&mut self.qkv, &mut self.output, &mut self.gate_up, &mut self.down] {
            linear.put_in_order(frozen)?;
        }
        if self.qkv.ordered.is_some() {
            let norms = [&mut self.input_norm, &mut self.mlp_norm];
            for norm in norms.into_iter().chain(self.head_norms.iter_mut().flatten()) {
                *norm = norm.f_to_kind(Kind::Float)?;
            }
        }
        Ok(())
    }

    /// Computes the layer. `x` and the result are `[tokens, hidden]`; `attend` maps heads to
    /// `[tokens, heads * head_dim]`.
    pub(crate) fn forward(
        &self,
        shape: &ModelShape,
        x: &Tensor,
        rope: &RopeRows,
        attend: impl FnOnce(Heads) -> Result<Tensor>,
    ) -> Result<Tensor> {
        let attended = attend(self.heads(shape, x, rope)?)?;
        self.rest(shape, x, &attended)
    }

    /// The part after attention. `x` is the layer's input, `attended` is
    /// `[tokens, heads * head_dim]`.
    pub(in crate::model) fn rest(&self, shape: &ModelShape, x: &Tensor, attended: &Tensor) -> Result<Tensor> {
        if self.qkv.ordered.is_some() {
            return self.rest_by_kernels(shape, x, attended);
        }
        let x = x.f_add(&self.output.forward(attended)?)?;
        let mlp = self.mlp(shape, &x)?;
        Ok(x.f_add(&mlp)?)
    }

    pub(in crate::model) fn heads(&self, shape: &ModelShape, x: &Tensor, rope: &RopeRows) -> Result<Heads> {
        if self.qkv.ordered.is_some() {
            return self.heads_by_kernels(shape, x, rope);
        }
        let [heads, kv, dim] = [shape.heads, shape.kv_heads, shape.head_dim].map(|n| n as i64);
        let normed = rms_norm(x, &self.input_norm, shape.rms_eps)?;
        let all = self.qkv.forward(&normed)?.f_view([-1, heads + 2 * kv, dim])?;
        // Queries and keys are normed and rotated together: small models pay for the number of
        // calls, and this halves it.
        let turning = all.f_narrow(1, 0, heads + kv)?;
        let turned = match &self.head_norms {
            Some([q_norm, k_norm]) => {
                let weight = Tensor::f_cat(
                    &[
                        q_norm.f_expand([heads, dim], false)?,
                        k_norm.f_expand([kv, dim], false)?,
                    ],
                    0,
                )?;
                rope.turn(&turning.f_rms_norm(dim, None::<Tensor>, shape.rms_eps)?.f_mul(&weight)?)?
            }
            None => rope.turn(&turning)?,
        };
        Ok(Heads {
            q: turned.f_narrow(1, 0, heads)?,
            k: turned.f_narrow(1, heads, kv)?,
            v: all.f_narrow(1, heads + kv, kv)?,
        })
    }

    fn mlp(&self, shape: &ModelShape, x: &Tensor) -> Result<Tensor> {
        let wide = shape.intermediate as i64;
        let both = self.gate_up.forward(&rms_norm(x, &self.mlp_norm, shape.rms_eps)?)?;
        let gated = both
            .f_narrow(-1, 0, wide)?
            .f_silu()?
            .f_mul(&both.f_narrow(-1, wide, wide)?)?;
        self.down.forward(&gated)
    }
}

/// RMSNorm over the last dimension, computed in f32 whatever the kind.
pub(crate) fn rms_norm(x: &Tensor, weight: &Tensor, eps: f64) -> Result<Tensor> {
    let width = weight.size1()?;
    Ok(x.f_rms_norm(width, Some(weight), eps)?)
}
