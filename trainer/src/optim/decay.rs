//! Chooses the weights that decay: all matrices including the output matrix, but no norms, biases
//! and embeddings.

use std::ops::Range;

use crate::model::{ParamKind, ParamSpec};

/// The stretches of the flat buffer that weight decay acts on, in elements, adjacent ones merged.
#[must_use]
pub fn ranges(params: &[ParamSpec]) -> Vec<Range<i64>> {
    let mut ranges: Vec<Range<i64>> = Vec::new();
    for param in params.iter().filter(|param| param.kind == ParamKind::Matrix) {
        let (start, end) = (param.offset as i64, (param.offset + param.numel) as i64);
        match ranges.last_mut() {
            Some(last) if last.end == start => last.end = end,
            _ => ranges.push(start..end),
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_matrices_decay() {
        let param = |name: &str, kind, offset, numel| ParamSpec {
            name: name.into(),
            shape: vec![numel as i64],
            offset,
            numel,
            kind,
        };
        let params = [
            param("model.embed_tokens.weight", ParamKind::Embedding, 0, 40),
            param("model.layers.0.self_attn.q_proj.weight", ParamKind::Matrix, 40, 16),
            param("model.layers.0.self_attn.k_proj.weight", ParamKind::Matrix, 56, 8),
            param("model.layers.0.input_layernorm.weight", ParamKind::Norm, 64, 4),
            param("lm_head.weight", ParamKind::Matrix, 68, 40),
        ];
        assert_eq!(ranges(&params), [40..64, 68..108]);
    }
}
