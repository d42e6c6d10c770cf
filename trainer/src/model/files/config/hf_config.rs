//! The fields that are read from `config.json`.

use serde::Deserialize;
use serde_json::Value;

#[derive(Debug, Deserialize)]
#[serde(expecting = "an object")]
pub(super) struct HfConfig {
    pub(super) model_type: String,
    pub(super) vocab_size: usize,
    pub(super) hidden_size: usize,
    pub(super) intermediate_size: usize,
    pub(super) num_hidden_layers: usize,
    pub(super) num_attention_heads: usize,
    pub(super) num_key_value_heads: Option<usize>,
    pub(super) head_dim: Option<usize>,
    pub(super) max_position_embeddings: usize,
    pub(super) rms_norm_eps: Option<f64>,
    pub(super) rope_theta: Option<f64>,
    pub(super) rope_scaling: Option<RopeSettings>,
    pub(super) rope_parameters: Option<RopeSettings>,
    pub(super) original_max_position_embeddings: Option<usize>,
    pub(super) tie_word_embeddings: Option<bool>,
    #[serde(default)]
    pub(super) bos_token_id: Value,
    #[serde(default)]
    pub(super) eos_token_id: Value,
    #[serde(default)]
    pub(super) pad_token_id: Value,
    pub(super) hidden_act: Option<String>,
    pub(super) attention_bias: Option<bool>,
    pub(super) mlp_bias: Option<bool>,
    pub(super) use_sliding_window: Option<bool>,
    pub(super) sliding_window: Option<usize>,
    pub(super) max_window_layers: Option<usize>,
    pub(super) layer_types: Option<Vec<String>>,
    pub(super) quantization_config: Option<Value>,
    pub(super) num_experts: Option<usize>,
    pub(super) partial_rotary_factor: Option<f64>,
}

#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(expecting = "an object")]
pub(super) struct RopeSettings {
    pub(super) rope_type: Option<String>,
    /// The name of `rope_type` in files before transformers 4.43.
    #[serde(rename = "type")]
    pub(super) old_type: Option<String>,
    pub(super) rope_theta: Option<f64>,
    pub(super) factor: Option<f64>,
    pub(super) original_max_position_embeddings: Option<usize>,
    pub(super) low_freq_factor: Option<f64>,
    pub(super) high_freq_factor: Option<f64>,
    pub(super) attention_factor: Option<f64>,
    pub(super) beta_fast: Option<f64>,
    pub(super) beta_slow: Option<f64>,
    pub(super) mscale: Option<f64>,
    pub(super) mscale_all_dim: Option<f64>,
    pub(super) truncate: Option<bool>,
    pub(super) partial_rotary_factor: Option<f64>,
    /// Frequencies by kind of layer, which no supported model has.
    pub(super) full_attention: Option<Value>,
}
