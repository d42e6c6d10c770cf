//! Hugging Face's `config.json`: read into a [`ModelShape`], written for transformers 4 and 5.
//!
//! Old files have `rope_theta` and `rope_scaling`, new ones `rope_parameters`. Both are read, and
//! both are written. A setting that would change the arithmetic and is not implemented is rejected
//! by its name.

mod hf_config;
mod rope;
#[cfg(test)]
mod tests;
mod write;

use serde_json::Value;

use super::json_file;
use crate::model::error::{ModelError, Result};
use crate::model::shape::{Architecture, Biases, ModelShape};
use hf_config::HfConfig;
pub(in crate::model) use write::write;

/// The number of characters to show of an invalid id.
const SHOWN: usize = 40;

/// Reads the end-of-turn ids of a vocabulary of `vocab` from Hugging Face's `eos_token_id`: a
/// number, or a list of numbers.
///
/// # Errors
/// Names the entry that is not a valid id, and its value.
pub(in crate::model) fn eos_ids(value: &Value, vocab: usize) -> std::result::Result<Vec<u32>, String> {
    let id = |place: &str, value: &Value| {
        let id = value.as_u64().and_then(|id| u32::try_from(id).ok());
        id.filter(|id| (*id as usize) < vocab).ok_or_else(|| {
            let shown: String = value.to_string().chars().take(SHOWN).collect();
            format!(
                "{place} is {shown}: write the id of a token, a whole number from 0 to below {vocab}, the model's vocab_size; does the file \
                 belong to this model?"
            )
        })
    };
    match value {
        Value::Null => Ok(Vec::new()),
        Value::Array(list) => {
            let entries = list.iter().enumerate();
            entries
                .map(|(index, value)| id(&format!("eos_token_id[{index}]"), value))
                .collect()
        }
        one => Ok(vec![id("eos_token_id", one)?]),
    }
}

/// Returns the id of a token that no computation uses: of a list the first one. Some files write -1
/// for no token.
fn first_id(key: &str, value: &Value) -> std::result::Result<Option<u32>, ConfigError> {
    let one = match value {
        Value::Array(list) => list.first().unwrap_or(&Value::Null),
        one => one,
    };
    if one.is_null() || one.as_i64().is_some_and(|id| id < 0) {
        return Ok(None);
    }
    let id = one.as_u64().and_then(|id| u32::try_from(id).ok());
    id.map(Some).ok_or_else(|| {
        let shown: String = value.to_string().chars().take(SHOWN).collect();
        ConfigError::Field(format!(
            "{key} is {shown}: write the id of a token, a list of ids, or null"
        ))
    })
}

/// Qwen3's value, if a file has none.
const QWEN3_HEAD_DIM: usize = 128;
/// The first layer of Qwen's sliding windows, if a file has none.
const DEFAULT_WINDOW_LAYERS: usize = 28;

/// Parses a `config.json`.
pub(in crate::model) fn parse(text: &str) -> std::result::Result<ModelShape, ConfigError> {
    let config: HfConfig = json_file::parse(text).map_err(ConfigError::Field)?;
    let arch = architecture(&config)?;
    refuse_what_is_not_computed(&config)?;
    let even = config.hidden_size.checked_div(config.num_attention_heads).unwrap_or(0);
    let head_dim = config.head_dim.unwrap_or(match arch {
        Architecture::Qwen3 => QWEN3_HEAD_DIM,
        Architecture::Qwen2 | Architecture::Llama => even,
    });
    let biased = config.attention_bias == Some(true);
    let shape = ModelShape {
        arch,
        biases: match arch {
            Architecture::Qwen2 => Biases {
                qkv: true,
                output: false,
                mlp: false,
            },
            Architecture::Qwen3 | Architecture::Llama => Biases {
                qkv: biased,
                output: biased,
                mlp: config.mlp_bias == Some(true),
            },
        },
        vocab: config.vocab_size,
        layers: config.num_hidden_layers,
        hidden: config.hidden_size,
        heads: config.num_attention_heads,
        kv_heads: config.num_key_value_heads.unwrap_or(config.num_attention_heads),
        head_dim,
        intermediate: config.intermediate_size,
        max_context: config.max_position_embeddings,
        rms_eps: config.rms_norm_eps.unwrap_or(1e-6),
        rope: rope::of(&config)?,
        tied: config.tie_word_embeddings.unwrap_or(false),
        bos: first_id("bos_token_id", &config.bos_token_id)?,
        eos: eos_ids(&config.eos_token_id, config.vocab_size).map_err(ConfigError::Field)?,
        pad: first_id("pad_token_id", &config.pad_token_id)?,
    };
    shape.validate()?;
    Ok(shape)
}

/// Why a `config.json` is not a supported model.
#[derive(Debug, thiserror::Error)]
pub(in crate::model) enum ConfigError {
    #[error("{0}")]
    Field(String),
    #[error(transparent)]
    Model(#[from] ModelError),
}

fn architecture(config: &HfConfig) -> Result<Architecture> {
    Architecture::of_model_type(&config.model_type).ok_or_else(|| {
        let known = Architecture::ALL.map(Architecture::model_type).join(", ");
        ModelError::unsupported(format!("model_type {:?} (supported: {known})", config.model_type))
    })
}

fn refuse_what_is_not_computed(config: &HfConfig) -> Result<()> {
    let refuse = |what: String| Err(ModelError::unsupported(what));
    match config.hidden_act.as_deref() {
        None | Some("silu" | "swish") => {}
        Some(other) => return refuse(format!("hidden_act {other:?}")),
    }
    if config.mlp_bias == Some(true) && config.model_type != Architecture::Llama.model_type() {
        return refuse("mlp_bias = true outside Llama".into());
    }
    if let Some(kind) = config
        .layer_types
        .iter()
        .flatten()
        .find(|kind| *kind != "full_attention")
    {
        return refuse(format!("layers of type {kind:?}"));
    }
    // Layers from max_window_layers on have a sliding window. Files often name a window that no
    // layer uses.
    let first = config.max_window_layers.unwrap_or(DEFAULT_WINDOW_LAYERS);
    let slides = config.use_sliding_window == Some(true) && config.sliding_window.is_some();
    if slides && config.layer_types.is_none() && first < config.num_hidden_layers {
        return refuse(format!("use_sliding_window = true from layer {first} on"));
    }
    if config.quantization_config.is_some() {
        return refuse("quantization_config".into());
    }
    if config.num_experts.is_some_and(|n| n > 0) {
        return refuse("num_experts".into());
    }
    for rope in config.rope_parameters.iter().chain(&config.rope_scaling) {
        if rope.partial_rotary_factor.is_some_and(|f| f != 1.0) {
            return refuse("partial_rotary_factor".into());
        }
        if rope.full_attention.is_some() {
            return refuse("rope_parameters by kind of layer".into());
        }
    }
    if config.partial_rotary_factor.is_some_and(|f| f != 1.0) {
        return refuse("partial_rotary_factor".into());
    }
    Ok(())
}
