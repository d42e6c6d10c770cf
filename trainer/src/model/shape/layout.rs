//! The place of each parameter in the one flat buffer, under its Hugging Face name.
//!
//! Matrices that are multiplied together are neighbours: q, k, v of a layer are one matrix without
//! a copy, and so are gate and up, and their biases. There is no padding: the buffer holds only the
//! parameters.

use std::collections::HashMap;

use super::lora_shape::{LoraShape, Module};
use super::model_shape::ModelShape;
use crate::model::error::{ModelError, Result};

/// One parameter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParamSpec {
    /// Hugging Face's name.
    pub name: String,
    pub shape: Vec<i64>,
    /// In elements, from the beginning of the flat buffer.
    pub offset: usize,
    pub numel: usize,
    pub kind: ParamKind,
}

/// The kind of a parameter. It decides initialisation and weight decay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParamKind {
    Embedding,
    Matrix,
    Norm,
    Bias,
}

/// All parameters in the order of the buffer.
#[derive(Debug, Clone, PartialEq)]
pub struct Layout {
    params: Vec<ParamSpec>,
    index: HashMap<String, usize>,
    numel: usize,
    lora: Option<LoraShape>,
}

impl Layout {
    #[must_use]
    pub fn of(shape: &ModelShape) -> Self {
        let [hidden, wide, head] = [shape.hidden, shape.intermediate, shape.head_dim].map(|n| n as i64);
        let (queries, keys) = (shape.heads as i64 * head, shape.kv_heads as i64 * head);
        let vocab = shape.vocab as i64;
        let mut layout = Self::empty(None);
        layout.push("model.embed_tokens.weight", vec![vocab, hidden], ParamKind::Embedding);
        for layer in 0..shape.layers {
            let mut push = |part: &str, dims: Vec<i64>| {
                let kind = match dims.len() {
                    1 if part.ends_with(".bias") => ParamKind::Bias,
                    1 => ParamKind::Norm,
                    _ => ParamKind::Matrix,
                };
                layout.push(&format!("model.layers.{layer}.{part}"), dims, kind);
            };
            push("input_layernorm.weight", vec![hidden]);
            push("self_attn.q_proj.weight", vec![queries, hidden]);
            push("self_attn.k_proj.weight", vec![keys, hidden]);
            push("self_attn.v_proj.weight", vec![keys, hidden]);
            if shape.biases.qkv {
                push("self_attn.q_proj.bias", vec![queries]);
                push("self_attn.k_proj.bias", vec![keys]);
                push("self_attn.v_proj.bias", vec![keys]);
            }
            if shape.arch.norms_heads() {
                push("self_attn.q_norm.weight", vec![head]);
                push("self_attn.k_norm.weight", vec![head]);
            }
            push("self_attn.o_proj.weight", vec![hidden, queries]);
            if shape.biases.output {
                push("self_attn.o_proj.bias", vec![hidden]);
            }
            push("post_attention_layernorm.weight", vec![hidden]);
            push("mlp.gate_proj.weight", vec![wide, hidden]);
            push("mlp.up_proj.weight", vec![wide, hidden]);
            if shape.biases.mlp {
                push("mlp.gate_proj.bias", vec![wide]);
                push("mlp.up_proj.bias", vec![wide]);
            }
            push("mlp.down_proj.weight", vec![hidden, wide]);
            if shape.biases.mlp {
                push("mlp.down_proj.bias", vec![hidden]);
            }
        }
        layout.push("model.norm.weight", vec![hidden], ParamKind::Norm);
        if !shape.tied {
            layout.push("lm_head.weight", vec![vocab, hidden], ParamKind::Matrix);
        }
        layout
    }

    /// The layout of an adapter of a model of `shape`.
    #[must_use]
    pub fn of_adapter(shape: &ModelShape, lora: &LoraShape) -> Self {
        let mut layout = Self::empty(Some(*lora));
        let rank = lora.rank as i64;
        let mut push = |module: Module, layer: usize| {
            let (input, output) = module.widths(shape);
            let path = module.path(layer);
            layout.push(
                &format!("{path}.lora_A.weight"),
                vec![rank, input as i64],
                ParamKind::Matrix,
            );
            layout.push(
                &format!("{path}.lora_B.weight"),
                vec![output as i64, rank],
                ParamKind::Matrix,
            );
        };
        for layer in 0..shape.layers {
            let inner = lora.targets.iter().filter(|module| *module != Module::Head);
            inner.for_each(|module| push(module, layer));
        }
        if lora.targets.has(Module::Head) {
            push(Module::Head, 0);
        }
        layout
    }

    fn empty(lora: Option<LoraShape>) -> Self {
        Self {
            params: Vec::new(),
            index: HashMap::new(),
            numel: 0,
            lora,
        }
    }

    /// The shape of the adapter with these parameters; `None` for a whole model.
    #[must_use]
    pub fn lora(&self) -> Option<&LoraShape> {
        self.lora.as_ref()
    }

    fn push(&mut self, name: &str, shape: Vec<i64>, kind: ParamKind) {
        let numel = shape.iter().product::<i64>() as usize;
        self.index.insert(name.to_owned(), self.params.len());
        self.params.push(ParamSpec {
            name: name.to_owned(),
            shape,
            offset: self.numel,
            numel,
            kind,
        });
        self.numel += numel;
    }

    /// All parameters in the order of the buffer.
    #[must_use]
    pub fn params(&self) -> &[ParamSpec] {
        &self.params
    }

    /// The number of elements in the buffer.
    #[must_use]
    pub fn numel(&self) -> usize {
        self.numel
    }

    /// Returns the parameter `name`.
    ///
    /// # Errors
    /// [`ModelError::Shape`] when the model has no parameter of this name.
    pub fn get(&self, name: &str) -> Result<&ParamSpec> {
        let found = self.index.get(name).and_then(|&i| self.params.get(i));
        found.ok_or_else(|| ModelError::shape(format!("there is no parameter {name}")))
    }
}

#[cfg(test)]
mod tests {
    use super::super::architecture::{Architecture, Biases};
    use super::super::model_shape::tests::tiny;
    use super::*;

    #[test]
    fn parameters_cover_the_buffer_without_gaps() {
        let all = Biases {
            qkv: true,
            output: true,
            mlp: true,
        };
        for (tied, arch, biases) in [
            (false, Architecture::Qwen3, Biases::default()),
            (true, Architecture::Llama, all),
        ] {
            let layout = Layout::of(&ModelShape {
                tied,
                arch,
                biases,
                ..tiny()
            });
            assert_eq!(layout.get("model.layers.1.mlp.up_proj.bias").is_ok(), biases.mlp);
            let mut next = 0;
            for spec in layout.params() {
                assert_eq!(spec.offset, next, "{}", spec.name);
                assert_eq!(spec.shape.iter().product::<i64>() as usize, spec.numel);
                next += spec.numel;
            }
            assert_eq!(next, layout.numel());
            assert_eq!(layout.get("lm_head.weight").is_ok(), !tied);
        }
    }

    #[test]
    fn an_adapter_counts_its_widths_times_its_rank() {
        // Qwen3-0.6B: the trained parameters at rank 1, by group of modules.
        let shape = ModelShape {
            vocab: 151_936,
            layers: 28,
            hidden: 1024,
            heads: 16,
            kv_heads: 8,
            head_dim: 128,
            intermediate: 3072,
            ..tiny()
        };
        let count = |modules: &[Module]| {
            let lora = LoraShape {
                rank: 1,
                alpha: 32.0,
                targets: modules.iter().copied().collect(),
            };
            Layout::of_adapter(&shape, &lora).numel()
        };
        assert_eq!(count(&Module::ALL[..4]), 286_720);
        assert_eq!(count(&Module::ALL[4..7]), 344_064);
        assert_eq!(count(&[Module::Head]), 152_960);
    }
}
