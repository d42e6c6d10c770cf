//! A layer of an engine with ordered weights ([`crate::ordered`]). The kernels compute everything
//! between the products on slices of numbers, in one pass each. The formulas are those of
//! [`super::layer`], where libtorch needs several passes. Numbers between the products are f32.
//! Attention is in the weights' kind, which is also the cache's.

use tch::{Kind, Tensor};

use super::decoder::Decoder;
use super::layer::{Heads, Layer};
use super::rope_table::RopeRows;
use crate::model::error::{ModelError, Result};
use crate::model::shape::ModelShape;
use crate::shim::floats;

impl Decoder {
    /// Reorders the matrices for the engine's own products, if they exist for this processor,
    /// device and kind. Afterwards the weights must not change, and results carry no gradient.
    ///
    /// # Errors
    /// [`crate::model::ModelError::Torch`].
    pub(crate) fn put_in_order(&mut self) -> Result<()> {
        let frozen = self.head.is_frozen();
        for layer in &mut self.layers {
            layer.put_in_order(frozen)?;
        }
        self.head.put_in_order();
        if self.head.is_in_order() {
            self.norm = self.norm.f_to_kind(Kind::Float)?;
            self.rope = self.rope.of_kind(Kind::Float)?;
        }
        Ok(())
    }

    /// The ordered matrix of the first product.
    #[cfg(test)]
    pub(crate) fn first_ordered(&self) -> Option<crate::ordered::Ordered> {
        self.layers.first()?.qkv.ordered.clone()
    }
}

impl Layer {
    /// The same as [`Layer::heads`].
    pub(super) fn heads_by_kernels(&self, shape: &ModelShape, x: &Tensor, rope: &RopeRows) -> Result<Heads> {
        let all = self
            .qkv
            .forward(&norm_by_kernels(x, &self.input_norm, shape.rms_eps)?)?;
        let [cos, sin] = rope.tables();
        let norms = match &self.head_norms {
            Some([q, k]) => Some(([numbers(q)?, numbers(k)?], shape.rms_eps as f32)),
            None => None,
        };
        let of = kernels::Heads {
            heads: shape.heads,
            kv_heads: shape.kv_heads,
            head_dim: shape.head_dim,
            norms,
            cos: numbers(cos)?,
            sin: numbers(sin)?,
        };
        let tokens = all.size2()?.0;
        let size = |heads: usize| [tokens, heads as i64, shape.head_dim as i64];
        let all = numbers(&all)?;
        let [q, k, v] = floats::made_three(
            [size(shape.heads), size(shape.kv_heads), size(shape.kv_heads)],
            |parts| {
                kernels::turn_heads(of, all, parts);
            },
        )?;
        let kind = self.qkv.weight.kind();
        Ok(Heads {
            q: q.f_to_kind(kind)?,
            k: k.f_to_kind(kind)?,
            v: v.f_to_kind(kind)?,
        })
    }

    /// The same as [`Layer::rest`].
    pub(super) fn rest_by_kernels(&self, shape: &ModelShape, x: &Tensor, attended: &Tensor) -> Result<Tensor> {
        let x = self.output.forward(&attended.f_to_kind(Kind::Float)?)?.f_add_(x)?;
        let both = self
            .gate_up
            .forward(&norm_by_kernels(&x, &self.mlp_norm, shape.rms_eps)?)?;
        let both_numbers = numbers(&both)?;
        let wide = shape.intermediate;
        let gated = floats::made(&[both.size2()?.0, wide as i64], |out| {
            kernels::gate(both_numbers, wide, out)
        })?;
        Ok(self.down.forward(&gated)?.f_add_(&x)?)
    }
}

/// The same as [`super::layer::rms_norm`].
pub(super) fn norm_by_kernels(x: &Tensor, weight: &Tensor, eps: f64) -> Result<Tensor> {
    let x = x.f_to_kind(Kind::Float)?.f_contiguous()?;
    let (numbers, weight) = (numbers(&x)?, numbers(weight)?);
    Ok(floats::made(&x.size(), |out| {
        kernels::rms_norm(numbers, weight, eps as f32, out);
    })?)
}

fn numbers(tensor: &Tensor) -> Result<&[f32]> {
    floats::read(tensor)
        .ok_or_else(|| ModelError::shape("a layer in order with a tensor that is not dense f32 on a CPU"))
}
