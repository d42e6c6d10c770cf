//! The files of models in a checkpoint: Hugging Face's or PEFT's, and the tokenizer's.

use std::path::Path;

use super::options::TrainerOptions;
use crate::checkpoint::{CheckpointError, NewFolder, tokenizer};
use crate::model::{ModelError, ModelShape, ParamSource, peft, save_model};

/// The file of a model that is written first.
const MODEL: &str = "config.json";

/// Writes the files of models with this shape and these options.
pub(super) struct ModelFiles<'a> {
    shape: &'a ModelShape,
    options: &'a TrainerOptions,
}

impl<'a> ModelFiles<'a> {
    pub(super) fn of(shape: &'a ModelShape, options: &'a TrainerOptions) -> Self {
        Self { shape, options }
    }

    /// Adds a model, or an adapter in PEFT's form.
    pub(super) fn add_model(
        &self,
        folder: &mut NewFolder<'_>,
        under: &str,
        weights: &dyn ParamSource,
    ) -> Result<(), CheckpointError> {
        let target = folder.path().join(under);
        let adapts = weights.layout().lora().is_some();
        let mut names = Vec::new();
        // The first `add` writes all files; each later one seals one of them.
        folder.add(&below(under, if adapts { peft::CONFIG } else { MODEL }), |_| {
            let written = if adapts {
                peft::save_from(&target, weights, &self.options.base_name)
                    .map(|()| vec![peft::CONFIG.to_owned(), peft::TENSORS.to_owned()])
            } else {
                save_model(weights, self.shape, &target, weights.kind(), self.options.shard_bytes)
            };
            names = written.map_err(|error| tensors_error(&target, &error))?;
            Ok(())
        })?;
        names
            .iter()
            .skip(1)
            .try_for_each(|name| folder.add(&below(under, name), |_| Ok(())))
    }

    pub(super) fn add_tokenizer(&self, folder: &mut NewFolder<'_>, under: &str) -> Result<(), CheckpointError> {
        let Some(source) = &self.options.tokenizer_folder else {
            return Ok(());
        };
        tokenizer::files(source)
            .try_for_each(|name| folder.add(&below(under, name), |path| tokenizer::copy(source, name, path)))
    }
}

/// Rejects the model in `folder` if it does not have this shape.
pub(super) fn check_shape(folder: &Path, wanted: &ModelShape) -> Result<(), CheckpointError> {
    let other = |reason: String| CheckpointError::OtherModel {
        path: folder.to_path_buf(),
        reason,
    };
    let shape = ModelShape::load(folder).map_err(|error| other(error.to_string()))?;
    // Training does not use the ids that begin, end or pad a text.
    let same = ModelShape {
        bos: wanted.bos,
        eos: wanted.eos.clone(),
        pad: wanted.pad,
        ..shape.clone()
    };
    if same == *wanted {
        return Ok(());
    }
    Err(other(format!("it is {shape:?}, this trainer has {wanted:?}")))
}

/// Returns the path of a file in a checkpoint's folder, or in a folder below it.
fn below(under: &str, file: &str) -> String {
    if under.is_empty() {
        file.to_owned()
    } else {
        format!("{under}/{file}")
    }
}

pub(super) fn tensors_error(path: &Path, error: &ModelError) -> CheckpointError {
    CheckpointError::Tensors {
        path: path.to_path_buf(),
        reason: error.to_string(),
    }
}
