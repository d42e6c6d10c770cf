//! Handles a stored head although the configuration ties it to the embedding.
//!
//! Many files store it, as a copy of the embedding. If it differs, transformers computes with the
//! stored head. A tied model here has no separate head, so such a file is rejected.

use std::path::Path;

use super::tensor_file::TensorFile;
use crate::model::error::{ModelError, Result};
use crate::model::shape::ModelShape;

pub(super) const HEAD: &str = "lm_head.weight";
const EMBEDDING: &str = "model.embed_tokens.weight";

/// Checks that a head in the files of a tied model equals its embedding.
pub(super) fn agree(shape: &ModelShape, files: &mut [TensorFile], folder: &Path) -> Result<()> {
    let dims = [shape.vocab as i64, shape.hidden as i64];
    for head in &*files {
        for embedding in &*files {
            if head.same(HEAD, embedding, EMBEDDING, &dims)? == Some(false) {
                return Err(ModelError::Format {
                    path: folder.to_owned(),
                    reason: format!(
                        "config.json ties the head to the embedding, and {HEAD} has other values than {EMBEDDING} (as they are stored): write \
                         \"tie_word_embeddings\": false to compute with that head, as transformers does, or take it out of the file"
                    ),
                });
            }
        }
    }
    for file in files {
        file.release(HEAD);
        file.release(EMBEDDING);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::fs;

    use safetensors::tensor::{Dtype, TensorView, serialize_to_file};
    use serde_json::json;
    use tch::{Device, Kind, Tensor};

    use super::super::load::tests::INIT;
    use super::super::load::{SHARDS, WEIGHTS};
    use super::*;
    use crate::model::shape::tiny;
    use crate::model::weights::Weights;

    fn bytes(values: &Tensor, kind: Kind) -> Vec<u8> {
        let size = values.numel() * kind.elt_size_in_bytes();
        let mut bytes = vec![0; size];
        values.to_kind(kind).copy_data_u8(&mut bytes, values.numel());
        bytes
    }

    fn write(path: &Path, values: &Tensor, dtype: Dtype) {
        let kind = if dtype == Dtype::BF16 {
            Kind::BFloat16
        } else {
            Kind::Float
        };
        let dims = values.size().iter().map(|n| *n as usize).collect();
        let data = bytes(values, kind);
        let view = TensorView::new(dtype, dims, &data).unwrap();
        serialize_to_file([(HEAD, view)], None, path).unwrap();
    }

    /// Shards: the saved model, and its head in a separate file.
    fn folder(weights: &Weights, shape: &ModelShape, head: &Tensor, dtype: Dtype) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        weights.save(shape, folder.path()).unwrap();
        let (model, last) = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors");
        fs::rename(folder.path().join(WEIGHTS), folder.path().join(model)).unwrap();
        write(&folder.path().join(last), head, dtype);
        let named = weights.params().iter().map(|spec| (spec.name.as_str(), model));
        let map: HashMap<&str, &str> = named.chain([(HEAD, last)]).collect();
        fs::write(folder.path().join(SHARDS), json!({"weight_map": map}).to_string()).unwrap();
        folder
    }

    #[test]
    fn the_head_of_a_tied_model_is_its_embedding_or_is_refused() {
        let shape = ModelShape { tied: true, ..tiny() };
        let weights = Weights::random(&shape, INIT, 3).unwrap();
        let rounded = weights.copied(Device::Cpu, Kind::BFloat16).unwrap();
        let embedding = |weights: &Weights| weights.view(EMBEDDING).unwrap();
        for (weights, head, dtype, good) in [
            (&weights, embedding(&weights), Dtype::F32, true),
            (&rounded, embedding(&rounded), Dtype::BF16, true),
            (&rounded, embedding(&rounded), Dtype::F32, true),
            (&weights, embedding(&weights), Dtype::BF16, false),
            (&weights, embedding(&weights) * 1.5, Dtype::F32, false),
        ] {
            let folder = folder(weights, &shape, &head, dtype);
            match (Weights::load(&shape, folder.path()), good) {
                (Ok(loaded), true) => assert!((loaded.flat() - weights.flat()).abs().max().double_value(&[]) == 0.0),
                (Err(error), false) => {
                    let said = error.to_string();
                    let named = [HEAD, "\"tie_word_embeddings\": false"]
                        .iter()
                        .all(|part| said.contains(part));
                    assert!(named && matches!(error, ModelError::Format { .. }), "{said}");
                }
                (loaded, _) => panic!("{dtype:?}: {good} {:?}", loaded.err()),
            }
        }
    }

    #[test]
    fn an_untied_model_takes_the_files_head_in_the_right_shape() {
        let shape = ModelShape { tied: true, ..tiny() };
        let weights = Weights::random(&shape, INIT, 3).unwrap();
        let head = weights.view(EMBEDDING).unwrap() * 1.5;
        let other = folder(&weights, &shape, &head, Dtype::F32);
        let loaded = Weights::load(
            &ModelShape {
                tied: false,
                ..shape.clone()
            },
            other.path(),
        )
        .unwrap();
        assert_eq!(loaded.view(HEAD).unwrap(), head);
        let short = folder(&weights, &shape, &head.narrow(0, 0, 39), Dtype::F32);
        assert!(
            Weights::load(&shape, short.path())
                .unwrap_err()
                .to_string()
                .contains(HEAD)
        );
    }
}
