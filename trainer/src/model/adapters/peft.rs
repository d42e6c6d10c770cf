//! Adapters in PEFT's folders: `adapter_config.json` and `adapter_model.safetensors`.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Value, json};
use tch::{Device, Kind, Tensor};

use crate::model::error::{ModelError, Result};
use crate::model::files::{NewFile, TensorFile, Tensors, io, json_file};
use crate::model::param_source::ParamSource;
use crate::model::shape::{Layout, LoraShape, ModelShape, Module, ParamSpec, Targets};
use crate::model::weights::Weights;

pub const CONFIG: &str = "adapter_config.json";
pub const TENSORS: &str = "adapter_model.safetensors";
/// PEFT's prefix of a parameter's name.
const PREFIX: &str = "base_model.model.";

#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct AdapterConfig {
    peft_type: String,
    r: usize,
    lora_alpha: f64,
    #[serde(default)]
    use_rslora: bool,
    #[serde(flatten)]
    rest: serde_json::Map<String, Value>,
}

/// Returns true if a setting that would change the arithmetic has its neutral value.
fn is_off(name: &str, value: &Value) -> bool {
    match name {
        "bias" => value == "none",
        "use_dora" | "lora_bias" | "fan_in_fan_out" | "use_qalora" | "use_bdlora" => value != &Value::Bool(true),
        // Other initialisations begin with a part of the base's matrices, which PEFT subtracts from
        // the base when it loads them.
        "init_lora_weights" => match value {
            Value::String(kind) => ["gaussian", "eva", "orthogonal"].contains(&kind.as_str()),
            _ => true,
        },
        "modules_to_save"
        | "loftq_config"
        | "rank_pattern"
        | "alpha_pattern"
        | "layers_to_transform"
        | "target_parameters"
        | "trainable_token_indices"
        | "layer_replication"
        | "alora_invocation_tokens"
        | "arrow_config"
        | "kasa_config"
        | "megatron_config" => match value {
            Value::Null => true,
            Value::Array(list) => list.is_empty(),
            Value::Object(map) => map.is_empty(),
            _ => false,
        },
        _ => true,
    }
}

/// Reads an adapter of a model of `shape`, in f32 on the CPU.
///
/// # Errors
/// The same as for [`check`], and [`ModelError::NotFinite`].
pub fn load(folder: &Path, shape: &ModelShape) -> Result<(LoraShape, Weights)> {
    let (lora, layout, mut file) = open(folder, shape)?;
    let weights = Weights::of_layout(layout, Device::Cpu, Kind::Float)?;
    for spec in weights.params() {
        file.read(&stored(spec), &mut weights.view(&spec.name)?)?;
    }
    Ok((lora, weights))
}

/// Checks that `folder` holds an adapter of a model of `shape`. Reads no weights.
///
/// # Errors
/// [`ModelError::Io`], [`ModelError::Format`] when it does not fit the model, and
/// [`ModelError::Unsupported`] with the name of a setting that plain LoRA does not have.
pub fn check(folder: &Path, shape: &ModelShape) -> Result<()> {
    open(folder, shape).map(drop)
}

/// Opens an adapter's file and checks that it has every parameter in its shape.
fn open(folder: &Path, shape: &ModelShape) -> Result<(LoraShape, Arc<Layout>, TensorFile)> {
    let path = folder.join(CONFIG);
    let config: AdapterConfig = json_file::read(&path)?;
    if config.peft_type != "LORA" {
        return Err(ModelError::unsupported(format!(
            "an adapter of type {:?}",
            config.peft_type
        )));
    }
    if let Some((name, value)) = config.rest.iter().find(|(name, value)| !is_off(name, value)) {
        return Err(ModelError::unsupported(format!("an adapter with {name} = {value}")));
    }
    let path = folder.join(TENSORS);
    let file = TensorFile::open(&path)?;
    let rank = config.r;
    let lora = LoraShape {
        rank,
        // Rank-stabilised adapters are scaled by alpha / sqrt(rank).
        alpha: config.lora_alpha * if config.use_rslora { (rank as f64).sqrt() } else { 1.0 },
        targets: targets(&file, &path)?,
    };
    lora.validate()?;
    let layout = Arc::new(Layout::of_adapter(shape, &lora));
    let wrong = |reason: String| ModelError::Format {
        path: path.clone(),
        reason,
    };
    for name in file.names() {
        let known = layout.get(name.strip_prefix(PREFIX).unwrap_or(name)).is_ok();
        if !known && !is_copy_of_base(name) {
            return Err(wrong(format!(
                "{name} has no place in this model: is it another base's adapter?"
            )));
        }
    }
    // Checked before memory is allocated: adapter_config.json may contain any rank.
    for spec in layout.params() {
        if !file.has(&stored(spec), &spec.shape)? {
            return Err(wrong(format!(
                "{} is missing: every layer needs the same modules",
                spec.name
            )));
        }
    }
    Ok((lora, layout, file))
}

/// The name of a parameter in PEFT's file.
fn stored(spec: &ParamSpec) -> String {
    format!("{PREFIX}{}", spec.name)
}

/// PEFT stores the frozen head and embedding too when the head is a target.
fn is_copy_of_base(name: &str) -> bool {
    name.ends_with(".base_layer.weight") || name.ends_with("embed_tokens.weight")
}

fn targets(file: &TensorFile, path: &Path) -> Result<Targets> {
    let mut targets = Targets::default();
    for name in file.names() {
        let Some(module) = name.strip_suffix(".lora_A.weight") else {
            continue;
        };
        let last = module.rsplit('.').next().unwrap_or(module);
        let found = Module::ALL.into_iter().find(|module| module.name() == last);
        targets.add(found.ok_or_else(|| ModelError::Format {
            path: path.to_owned(),
            reason: format!("{name} changes {last:?}, which no model here has"),
        })?);
    }
    Ok(targets)
}

/// Writes an adapter. Each file is written under another name, synced and renamed. `base` is the
/// model that PEFT loads the base from.
///
/// # Errors
/// [`ModelError::Io`], [`ModelError::Shape`] when the weights are a whole model.
pub fn save(folder: &Path, adapter: &dyn ParamSource, base: &str) -> Result<()> {
    let files = files(adapter, base)?;
    fs::create_dir_all(folder).map_err(io("making", folder))?;
    files.iter().try_for_each(|file| file.put(folder))
}

/// The files of [`save`], for parameters that are anywhere.
///
/// # Errors
/// [`ModelError::Shape`] when the weights are a whole model.
pub(crate) fn files<'a>(adapter: &'a dyn ParamSource, base: &str) -> Result<Vec<NewFile<'a>>> {
    let lora = adapter
        .layout()
        .lora()
        .ok_or_else(|| ModelError::shape("these weights are a whole model, not an adapter"))?;
    let alpha = if lora.alpha.fract() == 0.0 {
        json!(lora.alpha as i64)
    } else {
        json!(lora.alpha)
    };
    let config = json!({
        "base_model_name_or_path": base,
        "bias": "none",
        "fan_in_fan_out": false,
        "inference_mode": true,
        "init_lora_weights": true,
        "lora_alpha": alpha,
        "lora_dropout": 0.0,
        "modules_to_save": null,
        "peft_type": "LORA",
        "r": lora.rank,
        "target_modules": lora.targets.iter().map(Module::name).collect::<Vec<_>>(),
        "task_type": "CAUSAL_LM",
        "use_dora": false,
        "use_rslora": false,
    });
    Ok(vec![
        NewFile::text(CONFIG, format!("{config:#}\n")),
        NewFile::tensors(TENSORS, adapter.kind(), vec![Tensors::all(adapter, PREFIX)]),
    ])
}

/// Merges a base and an adapter into a whole model in f32 on the CPU: `W + alpha/rank B A`. A tied
/// model with a changed head is no longer tied.
///
/// # Errors
/// [`ModelError::Shape`] when the two do not fit each other.
pub fn merged(shape: &ModelShape, base: &Weights, adapter: &Weights) -> Result<(ModelShape, Weights)> {
    let _guard = tch::no_grad_guard();
    let lora = *adapter
        .layout()
        .lora()
        .ok_or_else(|| ModelError::shape("these weights are a whole model, not an adapter"))?;
    let untied = shape.tied && lora.targets.has(Module::Head);
    let shape = ModelShape {
        tied: shape.tied && !untied,
        ..shape.clone()
    };
    let whole = Weights::zeros(&shape, Device::Cpu, Kind::Float)?;
    for spec in whole.params() {
        let source = if untied && spec.name == "lm_head.weight" {
            "model.embed_tokens.weight"
        } else {
            spec.name.as_str()
        };
        whole.view(&spec.name)?.f_copy_(&base.view(source)?.f_detach()?)?;
    }
    merge_all(&shape, &whole, adapter, lora)?;
    Ok((shape, whole))
}

/// The same as [`merged`], in the storage of `base` (f32, on the CPU) unless a tied model is
/// untied.
///
/// # Errors
/// The same as for [`merged`].
pub fn merged_into(shape: &ModelShape, base: Weights, adapter: &Weights) -> Result<(ModelShape, Weights)> {
    let _guard = tch::no_grad_guard();
    let lora = *adapter
        .layout()
        .lora()
        .ok_or_else(|| ModelError::shape("these weights are a whole model, not an adapter"))?;
    if shape.tied && lora.targets.has(Module::Head) {
        return merged(shape, &base, adapter);
    }
    merge_all(shape, &base, adapter, lora)?;
    Ok((shape.clone(), base))
}

/// Adds the adapter's change to `whole`.
fn merge_all(shape: &ModelShape, whole: &Weights, adapter: &Weights, lora: LoraShape) -> Result<()> {
    for layer in 0..shape.layers {
        for module in lora.targets.iter().filter(|module| *module != Module::Head) {
            merge(whole, adapter, &module.path(layer), lora.scale())?;
        }
    }
    if lora.targets.has(Module::Head) {
        merge(whole, adapter, &Module::Head.path(0), lora.scale())?;
    }
    Ok(())
}

fn merge(whole: &Weights, adapter: &Weights, path: &str, scale: f64) -> Result<()> {
    let part = |letter: char| -> Result<Tensor> {
        let view = adapter.view(&format!("{path}.lora_{letter}.weight"))?;
        Ok(view.f_detach()?.f_to_device(Device::Cpu)?.f_to_kind(Kind::Float)?)
    };
    let change = part('B')?.f_matmul(&part('A')?)?.f_mul_scalar(scale)?;
    let _ = whole.view(&format!("{path}.weight"))?.f_add_(&change)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn adapters_of_a_changed_base_are_refused_by_name() {
        let shape = crate::model::test_shape();
        let folder = tempfile::tempdir().unwrap();
        let load_with = |key: &str, value: Value| {
            let mut config = json!({"peft_type": "LORA", "r": 2, "lora_alpha": 4.0, "loftq_config": {}});
            config[key] = value;
            fs::write(folder.path().join(CONFIG), config.to_string()).unwrap();
            load(folder.path(), &shape).err().unwrap().to_string()
        };
        for kind in ["pissa", "pissa_niter_4", "olora", "corda", "loftq", "lora_ga"] {
            let said = load_with("init_lora_weights", json!(kind));
            assert!(said.contains(&format!("init_lora_weights = \"{kind}\"")), "{said}");
        }
        let said = load_with("loftq_config", json!({"loftq_bits": 4}));
        assert!(said.contains("loftq_config"), "{said}");
        for usual in [json!(true), json!(false), json!(null), json!("gaussian"), json!("eva")] {
            // The folder has no tensors; the reader looks for them next.
            let said = load_with("init_lora_weights", usual);
            assert!(said.contains(TENSORS), "{said}");
        }
    }
}
