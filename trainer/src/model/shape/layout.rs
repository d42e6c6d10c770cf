//! Maps the Hugging Face name of each parameter to its place in the flat buffer of all weights.
//!
//! Matrices with the same input are neighbours, so that one multiplication serves them all. The q,
//! k and v matrices of a layer are one matrix without a copy. So are gate and up, and the biases of
//! both. There is no padding: the buffer holds only the parameters.

use std::collections::HashMap;
use std::ops::Range;

use super::lora_shape::{LoraShape, Module};
use super::model_shape::ModelShape;
use crate::model::error::{ModelError, Result};

/// The name, shape and place of a parameter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParamSpec {
    /// The name in Hugging Face's files.
    pub name: String,
    pub shape: Vec<i64>,
    /// The index of the first element in the flat buffer.
    pub offset: usize,
    /// The number of elements.
    pub numel: usize,
    pub kind: ParamKind,
}

impl ParamSpec {
    /// Its elements in the flat buffer.
    #[must_use]
    pub fn range(&self) -> Range<i64> {
        self.offset as i64..(self.offset + self.numel) as i64
    }
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
    /// The position of each name in `params`.
    index: HashMap<String, usize>,
    numel: usize,
    lora: Option<LoraShape>,
}

impl Layout {
    /// Returns the layout of a whole model.
    #[must_use]
    pub fn of(shape: &ModelShape) -> Self {
        let [hidden, intermediate, head_dim] = [shape.hidden, shape.intermediate, shape.head_dim].map(|n| n as i64);
        let (query_width, kv_width) = (shape.heads as i64 * head_dim, shape.kv_heads as i64 * head_dim);
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
            push("self_attn.q_proj.weight", vec![query_width, hidden]);
            push("self_attn.k_proj.weight", vec![kv_width, hidden]);
            push("self_attn.v_proj.weight", vec![kv_width, hidden]);
            if shape.biases.qkv {
                push("self_attn.q_proj.bias", vec![query_width]);
                push("self_attn.k_proj.bias", vec![kv_width]);
                push("self_attn.v_proj.bias", vec![kv_width]);
            }
            if shape.arch.norms_heads() {
                push("self_attn.q_norm.weight", vec![head_dim]);
                push("self_attn.k_norm.weight", vec![head_dim]);
            }
            push("self_attn.o_proj.weight", vec![hidden, query_width]);
            if shape.biases.output {
                push("self_attn.o_proj.bias", vec![hidden]);
            }
            push("post_attention_layernorm.weight", vec![hidden]);
            push("mlp.gate_proj.weight", vec![intermediate, hidden]);
            push("mlp.up_proj.weight", vec![intermediate, hidden]);
            if shape.biases.mlp {
                push("mlp.gate_proj.bias", vec![intermediate]);
                push("mlp.up_proj.bias", vec![intermediate]);
            }
            push("mlp.down_proj.weight", vec![hidden, intermediate]);
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

    /// Returns the layout of an adapter for a model of this shape.
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
            let in_layer = lora.targets.iter().filter(|module| *module != Module::Head);
            in_layer.for_each(|module| push(module, layer));
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

    /// Returns the adapter's shape; `None` if this is the layout of a whole model.
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

    /// The same parameters at other places of a buffer of `numel` elements. Parameters may share a
    /// place if they are not needed at the same time.
    #[must_use]
    pub(crate) fn relocated(&self, numel: usize, place: impl Fn(&ParamSpec) -> usize) -> Self {
        let mut layout = self.clone();
        layout.numel = numel;
        for spec in &mut layout.params {
            spec.offset = place(spec);
        }
        layout
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
    /// [`ModelError::Shape`] if the layout has no parameter of this name.
    pub fn get(&self, name: &str) -> Result<&ParamSpec> {
        let found = self.index.get(name).and_then(|&i| self.params.get(i));
        found.ok_or_else(|| ModelError::shape(format!("its layout has no parameter {name}")))
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
    fn rank_1_adapter_has_in_plus_out_elements_per_module() {
        // The shape of Qwen3-0.6B.
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
        let (attention, mlp) = (&Module::ALL[..4], &Module::ALL[4..7]);
        assert_eq!(count(attention), 286_720);
        assert_eq!(count(mlp), 344_064);
        assert_eq!(count(&[Module::Head]), 152_960);
    }
}
