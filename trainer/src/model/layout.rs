//! Where each parameter lies in the one flat buffer, under its Hugging Face name.
//!
//! The order is chosen so that what is multiplied together lies together: q, k, v of a layer are one matrix without a
//! copy, and so are gate and up. There is no padding: the buffer holds the parameters and nothing else.

use std::collections::HashMap;

use super::error::{ModelError, Result};
use super::shape::ModelShape;

/// One parameter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParamSpec {
    /// As Hugging Face names it.
    pub name: String,
    pub shape: Vec<i64>,
    /// In elements, from the beginning of the flat buffer.
    pub offset: usize,
    pub numel: usize,
    pub kind: ParamKind,
}

/// What a parameter is: initialisation and weight decay differ by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParamKind {
    Embedding,
    Matrix,
    Norm,
}

/// All parameters in the order of the buffer.
#[derive(Debug, Clone, PartialEq)]
pub struct Layout {
    params: Vec<ParamSpec>,
    index: HashMap<String, usize>,
    numel: usize,
}

impl Layout {
    #[must_use]
    pub fn of(shape: &ModelShape) -> Self {
        let [hidden, wide, head] = [shape.hidden, shape.intermediate, shape.head_dim].map(|n| n as i64);
        let (queries, keys) = (shape.heads as i64 * head, shape.kv_heads as i64 * head);
        let vocab = shape.vocab as i64;
        let mut layout = Self {
            params: Vec::new(),
            index: HashMap::new(),
            numel: 0,
        };
        layout.push("model.embed_tokens", vec![vocab, hidden], ParamKind::Embedding);
        for layer in 0..shape.layers {
            let mut push = |part: &str, dims: Vec<i64>| {
                let kind = if dims.len() == 1 {
                    ParamKind::Norm
                } else {
                    ParamKind::Matrix
                };
                layout.push(&format!("model.layers.{layer}.{part}"), dims, kind);
            };
            push("input_layernorm", vec![hidden]);
            push("self_attn.q_proj", vec![queries, hidden]);
            push("self_attn.k_proj", vec![keys, hidden]);
            push("self_attn.v_proj", vec![keys, hidden]);
            push("self_attn.q_norm", vec![head]);
            push("self_attn.k_norm", vec![head]);
            push("self_attn.o_proj", vec![hidden, queries]);
            push("post_attention_layernorm", vec![hidden]);
            push("mlp.gate_proj", vec![wide, hidden]);
            push("mlp.up_proj", vec![wide, hidden]);
            push("mlp.down_proj", vec![hidden, wide]);
        }
        layout.push("model.norm", vec![hidden], ParamKind::Norm);
        if !shape.tied {
            layout.push("lm_head", vec![vocab, hidden], ParamKind::Matrix);
        }
        layout
    }

    fn push(&mut self, module: &str, shape: Vec<i64>, kind: ParamKind) {
        let numel = shape.iter().product::<i64>() as usize;
        let name = format!("{module}.weight");
        self.index.insert(name.clone(), self.params.len());
        self.params.push(ParamSpec {
            name,
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

    /// Elements of the buffer.
    #[must_use]
    pub fn numel(&self) -> usize {
        self.numel
    }

    /// # Errors
    /// [`ModelError::Shape`] when the model has no parameter of this name.
    pub fn get(&self, name: &str) -> Result<&ParamSpec> {
        let found = self.index.get(name).and_then(|&i| self.params.get(i));
        found.ok_or_else(|| ModelError::shape(format!("there is no parameter {name}")))
    }
}

#[cfg(test)]
mod tests {
    use super::super::shape::tests::tiny;
    use super::*;

    #[test]
    fn parameters_cover_the_buffer_without_gaps() {
        for tied in [false, true] {
            let layout = Layout::of(&ModelShape { tied, ..tiny() });
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
}
