//! Binds a model's tensors to buffers: as plain views, or as leaves of autograd.

use tch::Tensor;

use super::head::Head;
use super::layer::{Layer, Linear};
use super::parts::Parts;
use crate::model::adapters::{Delta, Part};
use crate::model::error::{ModelError, Result};
use crate::model::shape::{ModelShape, Module};
use crate::model::weights::Weights;

/// A range of the flat buffer that is one tensor in autograd. All leaves together cover the buffer
/// once.
#[derive(Debug)]
pub struct Leaf {
    /// Shares the buffer's storage. Backward accumulates in its `.grad`.
    pub tensor: Tensor,
    /// The first parameter of the range.
    pub name: String,
    /// In elements, from the beginning of the buffer.
    pub offset: usize,
    pub numel: usize,
}

/// The tensors of a model that a [`Binder`] has bound.
pub(super) struct Bound {
    pub(super) embedding: Tensor,
    pub(super) layers: Vec<Layer>,
    pub(super) norm: Tensor,
    pub(super) head: Head,
}

/// Creates the model's tensors, as plain views or as leaves of autograd.
pub(super) struct Binder<'a> {
    parts: Parts<'a>,
    leaves: Option<Vec<Leaf>>,
    /// The head of an earlier binding of the same model.
    head: Option<&'a Head>,
}

impl<'a> Binder<'a> {
    pub(super) fn inference(parts: Parts<'a>) -> Self {
        Self {
            parts,
            leaves: None,
            head: None,
        }
    }

    /// For inference, after a binding with the head `head`.
    pub(in crate::model) fn again(parts: Parts<'a>, head: &'a Head) -> Self {
        Self {
            head: Some(head),
            ..Self::inference(parts)
        }
    }

    pub(in crate::model) fn training(parts: Parts<'a>) -> Self {
        Self {
            parts,
            leaves: Some(Vec::new()),
            head: None,
        }
    }

    pub(super) fn into_leaves(self) -> Vec<Leaf> {
        self.leaves.unwrap_or_default()
    }

    fn one(&mut self, name: &str) -> Result<Tensor> {
        self.fused(name, name)
    }

    fn fused(&mut self, first: &str, last: &str) -> Result<Tensor> {
        let base = self.parts.base;
        let view = if first == last {
            base.view(first)?
        } else {
            base.fused(first, last)?
        };
        match self.parts.adapter {
            // The base is frozen.
            Some(_) => Ok(view.f_detach()?),
            None => self.bind(base, first, view),
        }
    }

    fn bind(&mut self, weights: &Weights, first: &str, view: Tensor) -> Result<Tensor> {
        let Some(leaves) = &mut self.leaves else {
            return Ok(view);
        };
        let offset = weights.layout().get(first)?.offset;
        let tensor = view.f_detach()?.f_set_requires_grad(true)?;
        leaves.push(Leaf {
            tensor: tensor.shallow_clone(),
            name: first.to_owned(),
            offset,
            numel: tensor.numel(),
        });
        Ok(tensor)
    }

    /// The adapter's change to neighbouring modules of a layer.
    fn delta(&mut self, shape: &ModelShape, layer: usize, modules: &[Module]) -> Result<Option<Delta>> {
        let Some((adapter, lora)) = self
            .parts
            .adapter
            .and_then(|adapter| Some((adapter, *adapter.layout().lora()?)))
        else {
            return Ok(None);
        };
        let (mut parts, mut start) = (Vec::new(), 0);
        for module in modules {
            let count = module.widths(shape).1 as i64;
            if lora.targets.has(*module) {
                let mut tensor = |letter: char| {
                    let name = format!("{}.lora_{letter}.weight", module.path(layer));
                    let view = adapter.view(&name)?;
                    self.bind(adapter, &name, view)
                };
                let (a, b) = (tensor('A')?, tensor('B')?);
                parts.push(Part { a, b, start, count });
            }
            start += count;
        }
        if parts.is_empty() {
            return Ok(None);
        }
        let delta = Delta {
            parts,
            width: start,
            scale: lora.scale(),
        };
        Ok(Some(if self.leaves.is_some() { delta } else { delta.fused()? }))
    }

    /// The linear layer of neighbouring modules, in the order of the buffer: matrices, then biases
    /// if it has them.
    fn linear(&mut self, shape: &ModelShape, layer: usize, modules: &[Module], biased: bool) -> Result<Linear> {
        let ends = modules.first().zip(modules.last());
        let (first, last) = ends.ok_or_else(|| ModelError::shape("a linear layer without modules"))?;
        let (first, last) = (first.path(layer), last.path(layer));
        let weight = self.fused(&format!("{first}.weight"), &format!("{last}.weight"))?;
        let bias = if biased {
            Some(self.fused(&format!("{first}.bias"), &format!("{last}.bias"))?)
        } else {
            None
        };
        let delta = self.delta(shape, layer, modules)?;
        Ok(Linear {
            weight,
            bias,
            ordered: None,
            delta,
        })
    }

    fn layer(&mut self, shape: &ModelShape, index: usize) -> Result<Layer> {
        let norm = |part: &str| format!("model.layers.{index}.{part}.weight");
        let biases = shape.biases;
        let input_norm = self.one(&norm("input_layernorm"))?;
        let qkv = self.linear(shape, index, &[Module::Query, Module::Key, Module::Value], biases.qkv)?;
        let head_norms = if shape.arch.norms_heads() {
            Some([
                self.one(&norm("self_attn.q_norm"))?,
                self.one(&norm("self_attn.k_norm"))?,
            ])
        } else {
            None
        };
        let output = self.linear(shape, index, &[Module::Output], biases.output)?;
        let mlp_norm = self.one(&norm("post_attention_layernorm"))?;
        let gate_up = self.linear(shape, index, &[Module::Gate, Module::Up], biases.mlp)?;
        let down = self.linear(shape, index, &[Module::Down], biases.mlp)?;
        Ok(Layer {
            input_norm,
            qkv,
            head_norms,
            output,
            mlp_norm,
            gate_up,
            down,
        })
    }

    pub(super) fn bind_all(&mut self, shape: &ModelShape) -> Result<Bound> {
        let embedding = self.one("model.embed_tokens.weight")?;
        let layers = (0..shape.layers)
            .map(|i| self.layer(shape, i))
            .collect::<Result<Vec<_>>>()?;
        let norm = self.one("model.norm.weight")?;
        let head = if shape.tied {
            embedding.shallow_clone()
        } else {
            self.one("lm_head.weight")?
        };
        let delta = self.delta(shape, 0, &[Module::Head])?;
        let head = Head::new(head, delta, self.parts.adapter.is_some(), self.head)?;
        Ok(Bound {
            embedding,
            layers,
            norm,
            head,
        })
    }
}
