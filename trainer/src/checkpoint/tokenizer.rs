//! The tokenizer's files, which travel with every model that is written.

use std::fs;
use std::path::Path;

use super::error::CheckpointError;

/// What Hugging Face's tokenizers read, as far as a model's folder has it.
const FILES: [&str; 9] = [
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "tokenizer.model",
    "chat_template.jinja",
    "generation_config.json",
];

/// Names of those that the folder `source` has.
pub(crate) fn files(source: &Path) -> impl Iterator<Item = &'static str> {
    FILES.into_iter().filter(move |name| source.join(name).is_file())
}

/// Copies the file `name` of the folder `source` to `target`.
pub(crate) fn copy(source: &Path, name: &str, target: &Path) -> Result<(), CheckpointError> {
    let source = source.join(name);
    fs::copy(&source, target)
        .map(drop)
        .map_err(CheckpointError::io("copying", &source))
}
