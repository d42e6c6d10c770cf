//! The tokenizer's files, which are copied with every written model.

use std::fs;
use std::path::Path;

use super::error::CheckpointError;

/// The files that Hugging Face's tokenizers read, if a model's folder has them.
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

/// The names of the tokenizer files in the folder `source`.
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
