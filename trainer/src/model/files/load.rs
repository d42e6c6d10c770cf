//! Reads models from Hugging Face folders: `config.json` and safetensors, in one file or in shards.
//! [`super::save`] writes them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use configs::Dtype;
use serde::Deserialize;
use tch::Device;

use super::config;
use super::json_file;
use super::tensor_file::TensorFile;
use super::tied_head;
use super::weight_files::weight_files;
use crate::model::error::{ModelError, Result};
use crate::model::shape::{Layout, ModelShape};
use crate::model::weights::{Weights, kind_of};

pub(in crate::model) const CONFIG: &str = "config.json";
pub(super) const WEIGHTS: &str = "model.safetensors";
/// The index that maps each parameter to its file.
pub(super) const SHARDS: &str = "model.safetensors.index.json";

/// Returns true if `folder` holds a whole model's weights, in one file or in shards. The index of
/// shards is written last. As in transformers, one file has precedence over an index.
#[must_use]
pub fn has_weights(folder: &Path) -> bool {
    folder.join(WEIGHTS).exists() || folder.join(SHARDS).exists()
}

impl ModelShape {
    /// Reads `config.json` of a folder. The end-of-turn ids of a `generation_config.json` are
    /// added.
    ///
    /// # Errors
    /// [`ModelError::Io`], [`ModelError::Format`], [`ModelError::Shape`], and
    /// [`ModelError::Unsupported`] for settings that are not implemented.
    pub fn load(folder: &Path) -> Result<Self> {
        let path = folder.join(CONFIG);
        let mut shape = config::parse(&json_file::read_text(&path)?).map_err(|error| match error {
            config::ConfigError::Field(reason) => ModelError::Format { path, reason },
            config::ConfigError::Model(error) => in_file(path, error),
        })?;
        let path = folder.join("generation_config.json");
        if path.is_file() {
            let extra: GenerationConfig = json_file::read(&path)?;
            let ids = config::eos_ids(&extra.eos_token_id, shape.vocab);
            for id in ids.map_err(|reason| ModelError::Format { path, reason })? {
                if !shape.eos.contains(&id) {
                    shape.eos.push(id);
                }
            }
        }
        Ok(shape)
    }
}

/// Adds the path of the faulty file to an error.
fn in_file(path: PathBuf, error: ModelError) -> ModelError {
    let reason = match error {
        ModelError::Shape { reason } => reason,
        ModelError::BadId { id, vocab } => {
            format!("bos_token_id or pad_token_id is {id}, and vocab_size is {vocab}")
        }
        other => return other,
    };
    ModelError::Format { path, reason }
}

#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct GenerationConfig {
    #[serde(default)]
    eos_token_id: serde_json::Value,
}

impl Weights {
    /// [`Self::load_as`] f32 on the CPU.
    ///
    /// # Errors
    /// The same as for [`Self::load_as`].
    pub fn load(shape: &ModelShape, folder: &Path) -> Result<Self> {
        Self::load_as(shape, folder, Device::Cpu, Dtype::F32)
    }

    /// Reads the weights of a folder as `dtype` on `device`. Files may hold f32, bf16 or f16. Files
    /// are mapped, and each value is copied once, to its final place and type. Pages that were read
    /// are released: memory never holds more than the result and one tensor.
    ///
    /// # Errors
    /// [`ModelError::Io`]. [`ModelError::Format`] when a parameter is missing, has another shape,
    /// or is not a float, or when the file of a tied model has a different head.
    /// [`ModelError::NotFinite`].
    pub fn load_as(shape: &ModelShape, folder: &Path, device: Device, dtype: Dtype) -> Result<Self> {
        let (layout, mut files) = checked(shape, folder)?;
        let weights = Self::of_layout(layout, device, kind_of(dtype))?;
        for file in &mut files {
            for spec in weights.params() {
                file.read(&spec.name, &mut weights.view(&spec.name)?)?;
            }
        }
        Ok(weights)
    }
}

/// Opens the files of a folder's weights and checks that they are those of a model of this shape.
/// Call it before memory is allocated: config.json may contain any size.
pub(super) fn checked(shape: &ModelShape, folder: &Path) -> Result<(Arc<Layout>, Vec<TensorFile>)> {
    let layout = Arc::new(Layout::of(shape));
    let mut files = files_of(folder)?;
    agree(&layout, &files, folder)?;
    if shape.tied {
        tied_head::agree(shape, &mut files, folder)?;
    }
    Ok((layout, files))
}

/// Opens the files of a folder's weights.
pub(super) fn files_of(folder: &Path) -> Result<Vec<TensorFile>> {
    weight_files(folder)?
        .iter()
        .map(|path| TensorFile::open(path))
        .collect()
}

/// Checks that the files have every parameter of the model in its shape, and no others.
pub(super) fn agree(layout: &Layout, files: &[TensorFile], folder: &Path) -> Result<()> {
    let mut missing: BTreeSet<&str> = layout.params().iter().map(|spec| spec.name.as_str()).collect();
    for file in files {
        refuse_unknown(layout, file, folder)?;
        for spec in layout.params() {
            if file.has(&spec.name, &spec.shape)? {
                missing.remove(spec.name.as_str());
            }
        }
    }
    match missing.first() {
        None => Ok(()),
        Some(name) => Err(ModelError::Format {
            path: folder.to_owned(),
            reason: format!("{name} is missing, and {} more", missing.len() - 1),
        }),
    }
}

/// An unknown parameter means that configuration and weights do not belong together.
fn refuse_unknown(layout: &Layout, file: &TensorFile, folder: &Path) -> Result<()> {
    // Tied models may store the head again, and old files the rotary frequencies.
    let known =
        |name: &str| layout.get(name).is_ok() || name == tied_head::HEAD || name.ends_with(".rotary_emb.inv_freq");
    match file.names().into_iter().find(|name| !known(name)) {
        None => Ok(()),
        Some(name) => Err(ModelError::Format {
            path: folder.to_owned(),
            reason: format!("{name} has no place in the model that config.json describes"),
        }),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::model::shape::tiny;
    use crate::model::weights::Init;
    use safetensors::SafeTensors;
    use serde_json::json;
    use std::collections::HashMap;
    use std::fs;
    use tch::Kind;

    pub(in super::super) const INIT: Init = Init {
        embedding_std: 1.0,
        matrix_std: 0.2,
    };

    #[test]
    fn what_is_saved_is_loaded_bit_for_bit() {
        let folder = tempfile::tempdir().unwrap();
        for tied in [false, true] {
            let shape = ModelShape { tied, ..tiny() };
            let weights = Weights::random(&shape, INIT, 9).unwrap();
            weights.save(&shape, folder.path()).unwrap();
            let read = ModelShape::load(folder.path()).unwrap();
            assert_eq!(read, shape);
            let loaded = Weights::load(&read, folder.path()).unwrap();
            assert_eq!(loaded.digest().unwrap(), weights.digest().unwrap());
        }
        let left: Vec<_> = fs::read_dir(folder.path())
            .unwrap()
            .map(|e| e.unwrap().file_name())
            .collect();
        assert_eq!(left.len(), 2, "{left:?}");
    }

    #[test]
    fn half_precision_files_are_read_and_the_crate_reads_ours() {
        let folder = tempfile::tempdir().unwrap();
        let half = Weights::random(&tiny(), INIT, 9)
            .unwrap()
            .copied(Device::Cpu, Kind::BFloat16)
            .unwrap();
        half.save(&tiny(), folder.path()).unwrap();
        let wide = Weights::load(&tiny(), folder.path()).unwrap();
        assert_eq!(wide.kind(), Kind::Float);
        assert!(
            (wide.flat() - half.flat().to_kind(Kind::Float))
                .abs()
                .max()
                .double_value(&[])
                == 0.0
        );
        let bytes = fs::read(folder.path().join(WEIGHTS)).unwrap();
        let parsed = SafeTensors::deserialize(&bytes).unwrap();
        assert_eq!(parsed.len(), half.params().len());
        assert_eq!(parsed.tensor("lm_head.weight").unwrap().shape(), [40, 32]);
    }

    #[test]
    fn shards_are_found_through_their_index() {
        let folder = tempfile::tempdir().unwrap();
        let weights = Weights::random(&tiny(), INIT, 2).unwrap();
        weights.save(&tiny(), folder.path()).unwrap();
        fs::rename(
            folder.path().join(WEIGHTS),
            folder.path().join("model-00001-of-00001.safetensors"),
        )
        .unwrap();
        let map: HashMap<_, _> = weights
            .params()
            .iter()
            .map(|s| (&s.name, "model-00001-of-00001.safetensors"))
            .collect();
        fs::write(folder.path().join(SHARDS), json!({"weight_map": map}).to_string()).unwrap();
        fs::write(
            folder.path().join("generation_config.json"),
            r#"{"eos_token_id": [1, 5]}"#,
        )
        .unwrap();
        let shape = ModelShape::load(folder.path()).unwrap();
        assert_eq!(shape.eos, [1, 5]);
        assert_eq!(
            Weights::load(&shape, folder.path()).unwrap().digest().unwrap(),
            weights.digest().unwrap()
        );
    }

    #[test]
    fn one_file_counts_before_shards() {
        let folder = tempfile::tempdir().unwrap();
        let [one, many] = [2, 3].map(|seed| Weights::random(&tiny(), INIT, seed).unwrap());
        many.save_as(&tiny(), folder.path(), Kind::Float, 6000).unwrap();
        let aside = tempfile::tempdir().unwrap();
        one.save(&tiny(), aside.path()).unwrap();
        fs::copy(aside.path().join(WEIGHTS), folder.path().join(WEIGHTS)).unwrap();
        let digest = || Weights::load(&tiny(), folder.path()).unwrap().digest().unwrap();
        assert_eq!(digest(), one.digest().unwrap());
        fs::remove_file(folder.path().join(WEIGHTS)).unwrap();
        assert_eq!(digest(), many.digest().unwrap());
    }

    #[test]
    fn an_invalid_eos_id_is_named_with_its_file_entry_and_value() {
        let folder = tempfile::tempdir().unwrap();
        Weights::random(&tiny(), INIT, 2)
            .unwrap()
            .save(&tiny(), folder.path())
            .unwrap();
        let own = fs::read_to_string(folder.path().join(CONFIG)).unwrap();
        let write = |file: &str, ids: &serde_json::Value| {
            let mut config: serde_json::Value = serde_json::from_str(&own).unwrap();
            config["eos_token_id"] = ids.clone();
            fs::write(folder.path().join(file), config.to_string()).unwrap();
            ModelShape::load(folder.path())
        };
        for file in ["generation_config.json", CONFIG] {
            for (ids, entry) in [
                (json!("</s>"), "eos_token_id is \"</s>\""),
                (json!(-1), "eos_token_id is -1"),
                (json!({"id": 1}), "eos_token_id is {\"id\":1}"),
                (json!([1, "<|end|>"]), "eos_token_id[1] is \"<|end|>\""),
                (json!([1, 2, -7]), "eos_token_id[2] is -7"),
                (json!([40]), "eos_token_id[0] is 40"),
                (json!([4_294_967_297_u64]), "eos_token_id[0] is 4294967297"),
                (json!([[1], 2]), "eos_token_id[0] is [1]"),
                (json!([1, null]), "eos_token_id[1] is null"),
                (json!([1.5]), "eos_token_id[0] is 1.5"),
            ] {
                let error = write(file, &ids).unwrap_err().to_string();
                let named = [file, entry, "below 40"].iter().all(|part| error.contains(part));
                assert!(
                    named && matches!(write(file, &ids), Err(ModelError::Format { .. })),
                    "{error}"
                );
            }
            for (ids, read) in [(json!(null), vec![]), (json!(5), vec![5]), (json!([5, 1]), vec![5, 1])] {
                let shape = write(file, &ids).unwrap();
                assert!(
                    read.iter().all(|id| shape.eos.contains(id)),
                    "{file}: {ids}: {:?}",
                    shape.eos
                );
            }
        }
    }

    #[test]
    fn a_value_not_finite_is_rejected_with_its_tensor_and_file() {
        let folder = tempfile::tempdir().unwrap();
        for kind in [Kind::Float, Kind::BFloat16] {
            for bad in [f64::NAN, f64::INFINITY] {
                let weights = Weights::random(&tiny(), INIT, 2).unwrap();
                let spec = &weights.params()[3];
                let _ = weights.flat().narrow(0, spec.offset as i64 + 5, 1).fill_(bad);
                let damaged = weights.copied(Device::Cpu, kind).unwrap();
                damaged.save(&tiny(), folder.path()).unwrap();
                let error = Weights::load(&tiny(), folder.path()).unwrap_err();
                assert!(matches!(error, ModelError::NotFinite { .. }), "{error}");
                let said = error.to_string();
                assert!(said.contains(&spec.name) && said.contains(WEIGHTS), "{said}");
            }
        }
    }

    #[test]
    fn broken_folders_are_refused_with_the_file_named() {
        let folder = tempfile::tempdir().unwrap();
        let at = |error: ModelError| error.to_string();
        assert!(at(ModelShape::load(folder.path()).unwrap_err()).contains("config.json"));
        Weights::random(&tiny(), INIT, 2)
            .unwrap()
            .save(&tiny(), folder.path())
            .unwrap();
        let wider = ModelShape { vocab: 41, ..tiny() };
        assert!(at(Weights::load(&wider, folder.path()).unwrap_err()).contains("embed_tokens"));
        // More than any machine has: nothing is allocated before names and shapes agree.
        let absurd = ModelShape {
            vocab: 1 << 31,
            intermediate: 1 << 31,
            ..tiny()
        };
        assert!(at(Weights::load(&absurd, folder.path()).unwrap_err()).contains("embed_tokens"));
        let deeper = ModelShape { layers: 3, ..tiny() };
        assert!(at(Weights::load(&deeper, folder.path()).unwrap_err()).contains("is missing, and 10 more"));
        let path = folder.path().join(CONFIG);
        let mut config: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        config["num_hidden_layers"] = json!(1u64 << 40);
        fs::write(&path, config.to_string()).unwrap();
        let error = at(ModelShape::load(folder.path()).unwrap_err());
        assert!(
            error.contains("config.json") && error.contains("num_hidden_layers"),
            "{error}"
        );
        config["num_hidden_layers"] = json!("two");
        fs::write(&path, config.to_string()).unwrap();
        let error = at(ModelShape::load(folder.path()).unwrap_err());
        assert!(
            error.contains("config.json") && error.contains("num_hidden_layers: invalid type: string \"two\""),
            "{error}"
        );
        let path = folder.path().join(WEIGHTS);
        let bytes = fs::read(&path).unwrap();
        fs::write(&path, &bytes[..bytes.len() - 4]).unwrap();
        assert!(at(Weights::load(&tiny(), folder.path()).unwrap_err()).contains("cut off"));
        fs::write(&path, b"\xff\xff\xff\xff\xff\xff\xff\xff").unwrap();
        assert!(at(Weights::load(&tiny(), folder.path()).unwrap_err()).contains("not a safetensors file"));
    }
}
