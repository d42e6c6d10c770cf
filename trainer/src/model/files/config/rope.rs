//! Rotary embeddings in `config.json`, under their old and new keys.

use serde_json::{Value, json};

use super::hf_config::{HfConfig, RopeSettings};
use crate::model::error::{ModelError, Result};
use crate::model::shape::{Rope, RopeScaling, Yarn};

/// The default of transformers if a file names no rotary base.
const DEFAULT_ROPE_THETA: f64 = 10_000.0;

/// Reads the rotary settings. If both keys are given, a non-empty `rope_scaling` has precedence, as
/// in transformers 5.
pub(super) fn of(config: &HfConfig) -> Result<Rope> {
    let none = RopeSettings::default();
    let scaling = config.rope_scaling.as_ref().filter(|scaling| **scaling != none);
    let settings = scaling.or(config.rope_parameters.as_ref()).unwrap_or(&none);
    let original = config
        .original_max_position_embeddings
        .or(settings.original_max_position_embeddings)
        .unwrap_or(config.max_position_embeddings);
    let needed = |name: &str, value: Option<f64>| {
        value.ok_or_else(|| ModelError::shape(format!("rope_parameters has no {name}, which this rope_type needs")))
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
            let what = format!("rope_type {other:?} (supported: default, llama3, yarn)");
            return Err(ModelError::unsupported(what));
        }
    };
    Ok(Rope {
        theta: settings.rope_theta.or(config.rope_theta).unwrap_or(DEFAULT_ROPE_THETA),
        scaling,
    })
}

/// The value of `rope_parameters`.
pub(super) fn parameters(rope: &Rope) -> Value {
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
