//! The files of models in a checkpoint: Hugging Face's or PEFT's, and the tokenizer's.

use std::fs::File;
use std::io;
use std::path::Path;

use super::options::TrainerOptions;
use crate::checkpoint::{CheckpointError, NewFolder, tokenizer};
use crate::model::{ModelShape, ParamSource, model_files, peft};

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
        let files = if weights.layout().lora().is_some() {
            let files = peft::files(weights, &self.options.base_name);
            files.map_err(|error| CheckpointError::content(Path::new(under), error.to_string()))?
        } else {
            model_files(weights, self.shape, weights.kind(), self.options.shard_bytes)
        };
        files
            .iter()
            .try_for_each(|file| folder.add(&below(under, &file.name), |out| file.write(out)))
    }

    pub(super) fn add_tokenizer(&self, folder: &mut NewFolder<'_>, under: &str) -> Result<(), CheckpointError> {
        let Some(source) = &self.options.tokenizer_folder else {
            return Ok(());
        };
        tokenizer::files(source).try_for_each(|name| {
            let from = source.join(name);
            let mut file = File::open(&from).map_err(CheckpointError::io("copying", &from))?;
            folder.add(&below(under, name), |out| io::copy(&mut file, out).map(drop))
        })
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
