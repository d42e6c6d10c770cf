//! Hugging Face's `config.json`: read into a [`ModelShape`], written for transformers 4 and 5 alike.
//!
//! Old files have `rope_theta` and `rope_scaling`, new ones `rope_parameters`; both are read, both are written. A setting
//! that changes the arithmetic and is not computed here is refused by its name.

use serde::Deserialize;
use serde_json::{Value, json};

use super::error::{ModelError, Result};
use super::shape::ModelShape;

#[derive(Debug, Deserialize)]
struct HfConfig {
    model_type: String,
    vocab_size: usize,
    hidden_size: usize,
    intermediate_size: usize,
    num_hidden_layers: usize,
    num_attention_heads: usize,
    num_key_value_heads: Option<usize>,
    head_dim: Option<usize>,
    max_position_embeddings: usize,
    rms_norm_eps: Option<f64>,
    rope_theta: Option<f64>,
    rope_scaling: Option<RopeSettings>,
    rope_parameters: Option<RopeSettings>,
    tie_word_embeddings: Option<bool>,
    bos_token_id: Option<u32>,
    eos_token_id: Option<OneOrMany>,
    pad_token_id: Option<u32>,
    hidden_act: Option<String>,
    attention_bias: Option<bool>,
    mlp_bias: Option<bool>,
    use_sliding_window: Option<bool>,
    layer_types: Option<Vec<String>>,
    quantization_config: Option<Value>,
    num_experts: Option<usize>,
    partial_rotary_factor: Option<f64>,
}

#[derive(Debug, Deserialize)]
struct RopeSettings {
    #[serde(alias = "type")]
    rope_type: Option<String>,
    rope_theta: Option<f64>,
    partial_rotary_factor: Option<f64>,
}

/// Hugging Face writes one end-of-turn id as a number and several as a list.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub(super) enum OneOrMany {
    One(u32),
    Many(Vec<u32>),
}

impl OneOrMany {
    pub(super) fn into_vec(self) -> Vec<u32> {
        match self {
            Self::One(id) => vec![id],
            Self::Many(ids) => ids,
        }
    }
}

/// Qwen3's rotary base where a file names none.
const DEFAULT_ROPE_THETA: f64 = 1e6;

/// Reads the text of a `config.json`.
pub(super) fn parse(text: &str) -> std::result::Result<ModelShape, ConfigError> {
    let config: HfConfig = serde_json::from_str(text)?;
    refuse_what_is_not_computed(&config)?;
    let rope = config.rope_parameters.as_ref().or(config.rope_scaling.as_ref());
    let head_dim = config
        .head_dim
        .or_else(|| config.hidden_size.checked_div(config.num_attention_heads));
    let shape = ModelShape {
        vocab: config.vocab_size,
        layers: config.num_hidden_layers,
        hidden: config.hidden_size,
        heads: config.num_attention_heads,
        kv_heads: config.num_key_value_heads.unwrap_or(config.num_attention_heads),
        head_dim: head_dim.unwrap_or(0),
        intermediate: config.intermediate_size,
        max_context: config.max_position_embeddings,
        rms_eps: config.rms_norm_eps.unwrap_or(1e-6),
        rope_theta: rope
            .and_then(|r| r.rope_theta)
            .or(config.rope_theta)
            .unwrap_or(DEFAULT_ROPE_THETA),
        tied: config.tie_word_embeddings.unwrap_or(false),
        bos: config.bos_token_id,
        eos: config.eos_token_id.map(OneOrMany::into_vec).unwrap_or_default(),
        pad: config.pad_token_id,
    };
    shape.validate()?;
    Ok(shape)
}

/// Why a `config.json` is no model of ours.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConfigError {
    #[error("{0}")]
    Json(#[from] serde_json::Error),
    #[error(transparent)]
    Model(#[from] ModelError),
}

fn refuse_what_is_not_computed(config: &HfConfig) -> Result<()> {
    let refuse = |what: String| Err(ModelError::unsupported(what));
    if config.model_type != "qwen3" {
        return refuse(format!("model_type {:?} (qwen3 is)", config.model_type));
    }
    match config.hidden_act.as_deref() {
        None | Some("silu" | "swish") => {}
        Some(other) => return refuse(format!("hidden_act {other:?}")),
    }
    let flags = [
        ("attention_bias", config.attention_bias),
        ("mlp_bias", config.mlp_bias),
        ("use_sliding_window", config.use_sliding_window),
    ];
    if let Some((name, _)) = flags.iter().find(|(_, set)| *set == Some(true)) {
        return refuse(format!("{name} = true"));
    }
    if let Some(kind) = config
        .layer_types
        .iter()
        .flatten()
        .find(|kind| *kind != "full_attention")
    {
        return refuse(format!("layers of type {kind:?}"));
    }
    if config.quantization_config.is_some() {
        return refuse("quantization_config".into());
    }
    if config.num_experts.is_some_and(|n| n > 0) {
        return refuse("num_experts".into());
    }
    for rope in config.rope_parameters.iter().chain(&config.rope_scaling) {
        match rope.rope_type.as_deref() {
            None | Some("default") => {}
            Some(other) => return refuse(format!("rope_type {other:?}")),
        }
        if rope.partial_rotary_factor.is_some_and(|f| f != 1.0) {
            return refuse("partial_rotary_factor".into());
        }
    }
    if config.partial_rotary_factor.is_some_and(|f| f != 1.0) {
        return refuse("partial_rotary_factor".into());
    }
    Ok(())
}

/// The `config.json` of a shape; loads as Qwen3ForCausalLM.
pub(super) fn write(shape: &ModelShape, dtype: &str) -> Value {
    let eos = match shape.eos.as_slice() {
        [] => Value::Null,
        [one] => json!(one),
        many => json!(many),
    };
    json!({
        "architectures": ["Qwen3ForCausalLM"],
        "attention_bias": false,
        "attention_dropout": 0.0,
        "bos_token_id": shape.bos,
        "dtype": dtype,
        "eos_token_id": eos,
        "head_dim": shape.head_dim,
        "hidden_act": "silu",
        "hidden_size": shape.hidden,
        "initializer_range": 0.02,
        "intermediate_size": shape.intermediate,
        "layer_types": vec!["full_attention"; shape.layers],
        "max_position_embeddings": shape.max_context,
        "max_window_layers": shape.layers,
        "model_type": "qwen3",
        "num_attention_heads": shape.heads,
        "num_hidden_layers": shape.layers,
        "num_key_value_heads": shape.kv_heads,
        "pad_token_id": shape.pad,
        "rms_norm_eps": shape.rms_eps,
        "rope_parameters": {"rope_theta": shape.rope_theta, "rope_type": "default"},
        "rope_scaling": null,
        "rope_theta": shape.rope_theta,
        "sliding_window": null,
        "tie_word_embeddings": shape.tied,
        "torch_dtype": dtype,
        "use_cache": true,
        "use_sliding_window": false,
        "vocab_size": shape.vocab,
    })
}

#[cfg(test)]
mod tests {
    use super::super::shape::tests::tiny;
    use super::*;

    fn edited(key: &str, value: Value) -> String {
        let mut config = write(&tiny(), "float32");
        config[key] = value;
        config.to_string()
    }

    #[test]
    fn what_is_written_is_read() {
        let shape = ModelShape {
            eos: vec![1, 3],
            rope_theta: 5e5,
            ..tiny()
        };
        assert_eq!(parse(&write(&shape, "float32").to_string()).unwrap(), shape);
        assert_eq!(parse(&write(&tiny(), "float32").to_string()).unwrap(), tiny());
    }

    #[test]
    fn old_and_new_rope_keys_are_read() {
        let mut old = write(&tiny(), "float32");
        old.as_object_mut().unwrap().remove("rope_parameters");
        old["rope_theta"] = json!(77.0);
        assert_eq!(parse(&old.to_string()).unwrap().rope_theta, 77.0);
        let mut new = write(&tiny(), "float32");
        new.as_object_mut().unwrap().remove("rope_theta");
        new["rope_parameters"]["rope_theta"] = json!(88.0);
        assert_eq!(parse(&new.to_string()).unwrap().rope_theta, 88.0);
    }

    #[test]
    fn what_is_not_computed_is_refused_by_name() {
        let cases = [
            ("model_type", json!("gpt2")),
            ("hidden_act", json!("gelu")),
            ("attention_bias", json!(true)),
            ("mlp_bias", json!(true)),
            ("use_sliding_window", json!(true)),
            ("layer_types", json!(["full_attention", "sliding_attention"])),
            ("quantization_config", json!({"bits": 4})),
            ("num_experts", json!(8)),
            ("rope_scaling", json!({"type": "yarn", "factor": 4.0})),
            ("rope_parameters", json!({"rope_type": "llama3", "rope_theta": 1.0})),
            ("partial_rotary_factor", json!(0.5)),
        ];
        for (key, value) in cases {
            let error = parse(&edited(key, value)).unwrap_err();
            assert!(
                matches!(error, ConfigError::Model(ModelError::Unsupported { .. })),
                "{key}: {error}"
            );
        }
        assert!(matches!(
            parse(&edited("hidden_size", json!("x"))),
            Err(ConfigError::Json(_))
        ));
    }
}
