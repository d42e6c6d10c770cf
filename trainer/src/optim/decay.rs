//! Which weights decay: matrices do; norms, biases and embeddings do not.

use std::ops::Range;

/// Whether weight decay acts on a parameter, by its Hugging Face name and shape. Vectors (norms, biases) and the embedding
/// are left alone; the output matrix decays unless it is the embedding.
#[must_use]
pub fn decays(name: &str, shape: &[i64]) -> bool {
    shape.len() >= 2 && !name.ends_with("embed_tokens.weight")
}

/// The stretches of a flat buffer that decay, adjacent ones merged. `parameters` yields name, shape and offset in order.
pub fn ranges<'a>(parameters: impl IntoIterator<Item = (&'a str, &'a [i64], i64)>) -> Vec<Range<i64>> {
    let mut ranges: Vec<Range<i64>> = Vec::new();
    for (name, shape, offset) in parameters {
        if !decays(name, shape) {
            continue;
        }
        let end = offset + shape.iter().product::<i64>();
        match ranges.last_mut() {
            Some(last) if last.end == offset => last.end = end,
            _ => ranges.push(offset..end),
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_matrices_decay() {
        let parameters: [(&str, &[i64], i64); 5] = [
            ("model.embed_tokens.weight", &[10, 4], 0),
            ("model.layers.0.self_attn.q_proj.weight", &[4, 4], 40),
            ("model.layers.0.self_attn.k_proj.weight", &[2, 4], 56),
            ("model.layers.0.input_layernorm.weight", &[4], 64),
            ("lm_head.weight", &[10, 4], 68),
        ];
        assert_eq!(ranges(parameters), [40..64, 68..108]);
    }
}
