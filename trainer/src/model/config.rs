//! Hugging Face's `config.json`: read into a [`ModelShape`], written for transformers 4 and 5 alike.
//!
//! Old files have `rope_theta` and `rope_scaling`, new ones `rope_parameters`; both are read, both are written. A setting
//! that changes the arithmetic and is not computed here is refused by its name.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, json};

use super::arch::{Architecture, Biases};
use super::error::{ModelError, Result};
use super::json_file;
use super::scaling::{Rope, RopeScaling, Yarn};
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
    original_max_position_embeddings: Option<usize>,
    tie_word_embeddings: Option<bool>,
    bos_token_id: Option<u32>,
    #[serde(default)]
    eos_token_id: Value,
    pad_token_id: Option<u32>,
    hidden_act: Option<String>,
    attention_bias: Option<bool>,
    mlp_bias: Option<bool>,
    use_sliding_window: Option<bool>,
    sliding_window: Option<usize>,
    max_window_layers: Option<usize>,
    layer_types: Option<Vec<String>>,
    quantization_config: Option<Value>,
    num_experts: Option<usize>,
    partial_rotary_factor: Option<f64>,
}

#[derive(Debug, Default, PartialEq, Deserialize)]
struct RopeSettings {
    rope_type: Option<String>,
    /// What files before transformers 4.43 call `rope_type`.
    #[serde(rename = "type")]
    old_type: Option<String>,
    rope_theta: Option<f64>,
    factor: Option<f64>,
    original_max_position_embeddings: Option<usize>,
    low_freq_factor: Option<f64>,
    high_freq_factor: Option<f64>,
    attention_factor: Option<f64>,
    beta_fast: Option<f64>,
    beta_slow: Option<f64>,
    mscale: Option<f64>,
    mscale_all_dim: Option<f64>,
    truncate: Option<bool>,
    partial_rotary_factor: Option<f64>,
    /// Frequencies by kind of layer, which no model here has.
    full_attention: Option<Value>,
}

/// Characters that are shown of a value that is no id.
const SHOWN: usize = 40;

/// End-of-turn ids of a vocabulary of `vocab`, as Hugging Face writes them under `eos_token_id`: one as a number, several as a list.
///
/// # Errors
/// Names the entry that is no such id, and what it is.
pub(super) fn eos_ids(value: &Value, vocab: usize) -> std::result::Result<Vec<u32>, String> {
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

/// What transformers takes where a file names no rotary base.
const DEFAULT_ROPE_THETA: f64 = 10_000.0;
/// Qwen3's, where a file names none.
const QWEN3_HEAD_DIM: usize = 128;
/// Where Qwen's sliding windows begin if a file does not say.
const DEFAULT_WINDOW_LAYERS: usize = 28;

/// Reads the text of a `config.json`.
pub(super) fn parse(text: &str) -> std::result::Result<ModelShape, ConfigError> {
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
        rope: rope(&config)?,
        tied: config.tie_word_embeddings.unwrap_or(false),
        bos: config.bos_token_id,
        eos: eos_ids(&config.eos_token_id, config.vocab_size).map_err(ConfigError::Field)?,
        pad: config.pad_token_id,
    };
    shape.validate()?;
    Ok(shape)
}

/// Why a `config.json` is no model of ours.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConfigError {
    #[error("{0}")]
    Field(String),
    #[error(transparent)]
    Model(#[from] ModelError),
}

fn architecture(config: &HfConfig) -> Result<Architecture> {
    Architecture::of_model_type(&config.model_type).ok_or_else(|| {
        let known = Architecture::ALL.map(Architecture::model_type).join(", ");
        ModelError::unsupported(format!("model_type {:?} (computed are {known})", config.model_type))
    })
}

/// Where both are given, `rope_scaling` counts unless it says nothing, as in transformers 5.
fn rope(config: &HfConfig) -> Result<Rope> {
    let none = RopeSettings::default();
    let scaling = config.rope_scaling.as_ref().filter(|scaling| **scaling != none);
    let settings = scaling.or(config.rope_parameters.as_ref()).unwrap_or(&none);
    let original = config
        .original_max_position_embeddings
        .or(settings.original_max_position_embeddings)
        .unwrap_or(config.max_position_embeddings);
    let needed = |name: &str, value: Option<f64>| {
        value.ok_or_else(|| ModelError::shape(format!("rope_parameters lack {name}, which this rope_type needs")))
    };
    let kind = settings.rope_type.as_deref().or(settings.old_type.as_deref());
    let scaling = match kind.unwrap_or("default") {
        "default" => RopeScaling::Default,
        "llama3" => RopeScaling::Llama3 {
            factor: needed("factor", settings.factor)?,
            low_freq_factor: needed("low_freq_factor", settings.low_freq_factor)?,
            high_freq_factor: needed("high_freq_factor", settings.high_freq_factor)?,
            original,
        },
        "yarn" => {
            let stretch = config.max_position_embeddings as f64 / original.max(1) as f64;
            let factor = settings.factor.unwrap_or(stretch);
            RopeScaling::Yarn(Yarn {
                factor,
                original,
                beta_fast: settings.beta_fast.unwrap_or(32.0),
                beta_slow: settings.beta_slow.unwrap_or(1.0),
                attention_factor: settings.attention_factor.unwrap_or_else(|| {
                    Yarn::default_attention_factor(factor, settings.mscale, settings.mscale_all_dim)
                }),
                truncate: settings.truncate.unwrap_or(true),
            })
        }
        other => {
            let what = format!("rope_type {other:?} (computed are default, llama3, yarn)");
            return Err(ModelError::unsupported(what));
        }
    };
    Ok(Rope {
        theta: settings.rope_theta.or(config.rope_theta).unwrap_or(DEFAULT_ROPE_THETA),
        scaling,
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
    // Layers from max_window_layers on slide; files often name a window that no layer uses.
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

fn rope_parameters(rope: &Rope) -> Value {
    match &rope.scaling {
        RopeScaling::Default => json!({"rope_theta": rope.theta, "rope_type": "default"}),
        RopeScaling::Llama3 {
            factor,
            low_freq_factor,
            high_freq_factor,
            original,
        } => json!({
            "rope_theta": rope.theta,
            "rope_type": "llama3",
            "factor": factor,
            "low_freq_factor": low_freq_factor,
            "high_freq_factor": high_freq_factor,
            "original_max_position_embeddings": original,
        }),
        RopeScaling::Yarn(yarn) => json!({
            "rope_theta": rope.theta,
            "rope_type": "yarn",
            "factor": yarn.factor,
            "original_max_position_embeddings": yarn.original,
            "beta_fast": yarn.beta_fast,
            "beta_slow": yarn.beta_slow,
            "attention_factor": yarn.attention_factor,
            "truncate": yarn.truncate,
        }),
    }
}

/// The `config.json` of a shape; loads as the architecture's class in transformers.
pub(super) fn write(shape: &ModelShape, dtype: &str) -> Value {
    let eos = match shape.eos.as_slice() {
        [] => Value::Null,
        [one] => json!(one),
        many => json!(many),
    };
    let rope = rope_parameters(&shape.rope);
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
    /// What its `config.json` says, key by key, but for the type of the numbers and what follows from other keys.
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
            rope: Rope::plain(5e5),
            ..tiny()
        };
        let qwen2 = ModelShape {
            arch: Architecture::Qwen2,
            biases: Biases {
                qkv: true,
                ..Biases::default()
            },
            rope: Rope {
                theta: 1e6,
                scaling: RopeScaling::Yarn(Yarn {
                    factor: 4.0,
                    original: 32,
                    beta_fast: 32.0,
                    beta_slow: 1.0,
                    attention_factor: 1.25,
                    truncate: false,
                }),
            },
            ..tiny()
        };
        let llama = ModelShape {
            arch: Architecture::Llama,
            biases: Biases {
                qkv: true,
                output: true,
                mlp: true,
            },
            rope: Rope {
                theta: 5e5,
                scaling: RopeScaling::Llama3 {
                    factor: 8.0,
                    low_freq_factor: 1.0,
                    high_freq_factor: 4.0,
                    original: 32,
                },
            },
            ..tiny()
        };
        for shape in [shape, tiny(), qwen2, llama] {
            assert_eq!(parse(&write(&shape, "float32").to_string()).unwrap(), shape);
        }
    }

    #[test]
    fn old_and_new_rope_keys_are_read() {
        let mut old = write(&tiny(), "float32");
        old.as_object_mut().unwrap().remove("rope_parameters");
        old["rope_theta"] = json!(77.0);
        assert_eq!(parse(&old.to_string()).unwrap().rope.theta, 77.0);
        let mut new = write(&tiny(), "float32");
        new.as_object_mut().unwrap().remove("rope_theta");
        new["rope_parameters"]["rope_theta"] = json!(88.0);
        assert_eq!(parse(&new.to_string()).unwrap().rope.theta, 88.0);
    }

    #[test]
    fn a_rope_scaling_that_says_nothing_hides_no_rope_parameters() {
        let mut config = write(&tiny(), "float32");
        config.as_object_mut().unwrap().remove("rope_theta");
        config["rope_parameters"] =
            json!({"rope_type": "yarn", "rope_theta": 77.0, "factor": 4.0, "original_max_position_embeddings": 16});
        for nothing in [json!({}), json!(null)] {
            config["rope_scaling"] = nothing;
            let rope = parse(&config.to_string()).unwrap().rope;
            assert_eq!(rope.theta, 77.0);
            assert!(
                matches!(rope.scaling, RopeScaling::Yarn(yarn) if yarn.factor == 4.0),
                "{config}"
            );
        }
        config["rope_scaling"] = json!({"type": "yarn", "factor": 2.0});
        let rope = parse(&config.to_string()).unwrap().rope;
        assert!(matches!(rope.scaling, RopeScaling::Yarn(yarn) if yarn.factor == 2.0));
    }

    #[test]
    fn the_yarn_of_long_qwen_files_is_read() {
        let mut old = write(&tiny(), "float32");
        old.as_object_mut().unwrap().remove("rope_parameters");
        old["rope_scaling"] = json!({"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32});
        let RopeScaling::Yarn(yarn) = parse(&old.to_string()).unwrap().rope.scaling else {
            panic!()
        };
        assert_eq!((yarn.factor, yarn.original, yarn.truncate), (4.0, 32, true));
        assert!((yarn.attention_factor - (0.1 * 4f64.ln() + 1.0)).abs() < 1e-12);
        for (limit, original, unused) in [
            (32, Some(32), Some((32, 128))),
            (16, Some(32), Some((32, 128))),
            (32, None, Some((32, 128))),
            (64, Some(32), None),
            (128, Some(32), None),
            (32, Some(16), None),
        ] {
            let mut stretched = old.clone();
            stretched["max_position_embeddings"] = json!(limit);
            stretched["rope_scaling"]["original_max_position_embeddings"] = json!(original);
            let shape = parse(&stretched.to_string()).unwrap();
            assert_eq!(
                shape.rope.unused_reach(shape.max_context),
                unused,
                "{limit} of {original:?}"
            );
            let plain = Rope::plain(shape.rope.theta);
            assert_eq!(plain.unused_reach(limit), None);
        }
        old["rope_scaling"] = json!({"rope_type": "llama3", "factor": 4.0});
        assert!(matches!(
            parse(&old.to_string()),
            Err(ConfigError::Model(ModelError::Shape { .. }))
        ));
    }

    #[test]
    fn a_window_counts_where_a_layer_uses_it() {
        let mut config = write(&tiny(), "float32");
        config.as_object_mut().unwrap().remove("layer_types");
        config["use_sliding_window"] = json!(true);
        config["sliding_window"] = json!(16);
        config["max_window_layers"] = json!(2);
        assert!(parse(&config.to_string()).is_ok());
        config["max_window_layers"] = json!(1);
        assert!(parse(&config.to_string()).is_err());
    }

    #[test]
    fn what_is_not_computed_is_refused_by_name() {
        let cases = [
            ("model_type", json!("gpt2")),
            ("hidden_act", json!("gelu")),
            ("mlp_bias", json!(true)),
            ("layer_types", json!(["full_attention", "sliding_attention"])),
            ("quantization_config", json!({"bits": 4})),
            ("num_experts", json!(8)),
            ("rope_scaling", json!({"type": "linear", "factor": 4.0})),
            ("rope_parameters", json!({"rope_type": "longrope", "rope_theta": 1.0})),
            ("rope_parameters", json!({"full_attention": {"rope_type": "default"}})),
            ("partial_rotary_factor", json!(0.5)),
        ];
        for (key, value) in cases {
            let error = parse(&edited(key, value)).unwrap_err();
            assert!(
                matches!(error, ConfigError::Model(ModelError::Unsupported { .. })),
                "{key}: {error}"
            );
        }
        let Err(ConfigError::Field(reason)) = parse(&edited("hidden_size", json!("x"))) else {
            panic!()
        };
        assert!(reason.starts_with("hidden_size: "), "{reason}");
    }
}
