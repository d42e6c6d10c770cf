//! Models read from Hugging Face folders: `config.json` and safetensors, in one file or in shards. Written they are in [`super::save`].

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

use configs::Dtype;
use serde::Deserialize;
use tch::Device;

use super::config::{self, OneOrMany};
use super::error::{ModelError, Result};
use super::layout::Layout;
use super::shape::ModelShape;
use super::tensor_file::TensorFile;
use super::weights::{Weights, kind_of};
use super::write::io;

pub(super) const CONFIG: &str = "config.json";
pub(super) const WEIGHTS: &str = "model.safetensors";
/// Which file has which parameter.
pub(super) const SHARDS: &str = "model.safetensors.index.json";

/// Whether a whole model's weights lie in `folder`, in one file or in shards, whose index is written last.
#[must_use]
pub fn has_weights(folder: &Path) -> bool {
    folder.join(WEIGHTS).exists() || folder.join(SHARDS).exists()
}

impl ModelShape {
    /// Reads `config.json` of a folder; end-of-turn ids of a `generation_config.json` are added to its own.
    ///
    /// # Errors
    /// [`ModelError::Io`], [`ModelError::Format`], [`ModelError::Shape`], and [`ModelError::Unsupported`] for what is not
    /// implemented.
    pub fn load(folder: &Path) -> Result<Self> {
        let path = folder.join(CONFIG);
        let mut shape = config::parse(&read_text(&path)?).map_err(|error| match error {
            config::ConfigError::Json(error) => ModelError::Format {
                path,
                reason: error.to_string(),
            },
            config::ConfigError::Model(error) => error,
        })?;
        let path = folder.join("generation_config.json");
        if path.is_file() {
            let extra: GenerationConfig = from_json(&path)?;
            for id in extra.eos_token_id.map(OneOrMany::into_vec).unwrap_or_default() {
                if !shape.eos.contains(&id) {
                    shape.eos.push(id);
                }
            }
            shape.validate()?;
        }
        Ok(shape)
    }
}

#[derive(Deserialize)]
struct GenerationConfig {
    eos_token_id: Option<OneOrMany>,
}

#[derive(Deserialize)]
struct ShardIndex {
    weight_map: HashMap<String, PathBuf>,
}

impl Weights {
    /// [`Self::load_as`] f32 on the CPU.
    ///
    /// # Errors
    /// As there.
    pub fn load(shape: &ModelShape, folder: &Path) -> Result<Self> {
        Self::load_as(shape, folder, Device::Cpu, Dtype::F32)
    }

    /// Reads the weights of a folder as `dtype` on `device`; files may hold f32, bf16 or f16. Files are mapped, each value is copied
    /// once, to where it is kept and as what it is kept, and pages that were read are given back: at no time there is more in memory
    /// than what is kept and one tensor.
    ///
    /// # Errors
    /// [`ModelError::Io`], and [`ModelError::Format`] when a parameter is missing, is of another shape, or is not a float.
    pub fn load_as(shape: &ModelShape, folder: &Path, device: Device, dtype: Dtype) -> Result<Self> {
        let weights = Self::zeros(shape, device, kind_of(dtype))?;
        let index = folder.join(SHARDS);
        let files = if index.is_file() {
            let shards: ShardIndex = from_json(&index)?;
            shards.weight_map.into_values().collect::<BTreeSet<_>>()
        } else {
            BTreeSet::from([PathBuf::from(WEIGHTS)])
        };
        let layout = std::sync::Arc::clone(weights.layout());
        let mut missing: BTreeSet<&str> = layout.params().iter().map(|spec| spec.name.as_str()).collect();
        for file in files {
            let mut file = TensorFile::open(&folder.join(file))?;
            refuse_unknown(&layout, &file, folder)?;
            for spec in layout.params() {
                if file.read(&spec.name, &mut weights.view(&spec.name)?)? {
                    missing.remove(spec.name.as_str());
                }
            }
        }
        match missing.first() {
            None => Ok(weights),
            Some(name) => {
                let reason = format!("{name} is missing, and {} more", missing.len() - 1);
                Err(ModelError::Format {
                    path: folder.to_owned(),
                    reason,
                })
            }
        }
    }
}

/// A parameter that this model would not use means that its configuration and its weights do not belong together.
fn refuse_unknown(layout: &Layout, file: &TensorFile, folder: &Path) -> Result<()> {
    // Tied models may store the head again, and old files the rotary frequencies.
    let known =
        |name: &str| layout.get(name).is_ok() || name == "lm_head.weight" || name.ends_with(".rotary_emb.inv_freq");
    match file.names().into_iter().find(|name| !known(name)) {
        None => Ok(()),
        Some(name) => Err(ModelError::Format {
            path: folder.to_owned(),
            reason: format!("{name} has no place in the model that config.json describes"),
        }),
    }
}

fn read_text(path: &Path) -> Result<String> {
    fs::read_to_string(path).map_err(io("reading", path))
}

fn from_json<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T> {
    serde_json::from_str(&read_text(path)?).map_err(|error| ModelError::Format {
        path: path.to_owned(),
        reason: error.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::super::shape::tests::tiny;
    use super::super::weights::Init;
    use super::*;
    use safetensors::SafeTensors;
    use serde_json::json;
    use tch::Kind;

    const INIT: Init = Init {
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
        let deeper = ModelShape { layers: 3, ..tiny() };
        assert!(at(Weights::load(&deeper, folder.path()).unwrap_err()).contains("is missing, and 10 more"));
        let path = folder.path().join(WEIGHTS);
        let bytes = fs::read(&path).unwrap();
        fs::write(&path, &bytes[..bytes.len() - 4]).unwrap();
        assert!(at(Weights::load(&tiny(), folder.path()).unwrap_err()).contains("cut off"));
        fs::write(&path, b"\xff\xff\xff\xff\xff\xff\xff\xff").unwrap();
        assert!(at(Weights::load(&tiny(), folder.path()).unwrap_err()).contains("no safetensors"));
    }
}
