//! Writes the `config.json` of a shape.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::rope;
use crate::model::shape::{Architecture, ModelShape, RopeScaling};

/// The `config.json` of a shape. transformers loads it as the architecture's class.
pub(in crate::model) fn write(shape: &ModelShape, dtype: &str) -> Value {
    let eos = match shape.eos.as_slice() {
        [] => Value::Null,
        [one] => json!(one),
        many => json!(many),
    };
    let rope = rope::parameters(&shape.rope);
    // Transformers 4 reads the stretch from here and the base from `rope_theta`.
    let scaling = match shape.rope.scaling {
        RopeScaling::Default => Value::Null,
        _ => rope.clone(),
    };
    let mut config = json!({
        "architectures": [shape.arch.class()],
        "attention_bias": shape.biases.qkv,
        "attention_dropout": 0.0,
        "bos_token_id": shape.bos,
        "dtype": dtype,
        "eos_token_id": eos,
        "head_dim": shape.head_dim,
        "hidden_act": "silu",
        "hidden_size": shape.hidden,
        "initializer_range": 0.02,
        "intermediate_size": shape.intermediate,
        "max_position_embeddings": shape.max_context,
        "model_type": shape.arch.model_type(),
        "num_attention_heads": shape.heads,
        "num_hidden_layers": shape.layers,
        "num_key_value_heads": shape.kv_heads,
        "pad_token_id": shape.pad,
        "rms_norm_eps": shape.rms_eps,
        "rope_parameters": rope,
        "rope_scaling": scaling,
        "rope_theta": shape.rope.theta,
        "tie_word_embeddings": shape.tied,
        "torch_dtype": dtype,
        "use_cache": true,
        "vocab_size": shape.vocab,
    });
    match shape.arch {
        Architecture::Qwen3 | Architecture::Qwen2 => {
            config["layer_types"] = json!(vec!["full_attention"; shape.layers]);
            config["max_window_layers"] = json!(shape.layers);
            config["sliding_window"] = Value::Null;
            config["use_sliding_window"] = json!(false);
        }
        Architecture::Llama => config["mlp_bias"] = json!(shape.biases.mlp),
    }
    config
}

impl ModelShape {
    /// The settings in its `config.json`, key by key, without the dtype and without settings that
    /// follow from other keys.
    #[must_use]
    pub fn settings(&self) -> BTreeMap<String, String> {
        let Value::Object(config) = write(self, "") else {
            return BTreeMap::new();
        };
        let left_out = ["architectures", "dtype", "layer_types", "rope_scaling", "torch_dtype"];
        let kept = config.into_iter().filter(|(key, _)| !left_out.contains(&key.as_str()));
        kept.map(|(key, value)| (key, value.to_string())).collect()
    }
}
