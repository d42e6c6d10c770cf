//! A check of a model's folder that reads no weights.

use std::path::Path;

use serde::de::IgnoredAny;

use super::json_file;
use super::load::{agree, files_of};
use crate::model::error::Result;
use crate::model::shape::{Layout, ModelShape};

/// The part of a model's folder to check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Checked {
    Whole,
    /// Shape and tokenizer only.
    NoWeights,
}

/// Checks that the folder's `config.json` and `tokenizer.json` can be read, that its weight files
/// are as long as their headers say, and that they hold the parameters that `config.json`
/// describes. Returns the model's shape.
///
/// # Errors
/// The first fault, with the file and the fix.
pub fn check_folder(folder: &Path, part: Checked) -> Result<ModelShape> {
    let shape = ModelShape::load(folder)?;
    json_file::read::<IgnoredAny>(&folder.join("tokenizer.json"))?;
    if part == Checked::Whole {
        agree(&Layout::of(&shape), &files_of(folder)?, folder)?;
    }
    Ok(shape)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::model::shape::tiny;
    use crate::model::weights::{Init, Weights};
    use tch::Kind;

    const POINTER: &str = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 4\n";
    /// Returns a good folder, in one file or in shards.
    fn model(shard_bytes: u64) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let init = Init {
            embedding_std: 1.0,
            matrix_std: 0.2,
        };
        let weights = Weights::random(&tiny(), init, 2).unwrap();
        weights
            .save_as(&tiny(), folder.path(), Kind::Float, shard_bytes)
            .unwrap();
        fs::write(folder.path().join("tokenizer.json"), "{}").unwrap();
        folder
    }

    /// Returns the fault of a good folder after `damage`. Its text begins with the faulty file.
    fn fault(shard_bytes: u64, file: &str, damage: impl Fn(&Path)) -> String {
        let folder = model(shard_bytes);
        check_folder(folder.path(), Checked::Whole).unwrap();
        let path = folder.path().join(file);
        damage(&path);
        let said = check_folder(folder.path(), Checked::Whole).unwrap_err().to_string();
        let start = format!("reading {}: ", path.display());
        said.strip_prefix(&start).unwrap_or_else(|| panic!("{said}")).to_owned()
    }

    fn cut(path: &Path) {
        let bytes = fs::read(path).unwrap();
        fs::write(path, &bytes[..bytes.len() / 2]).unwrap();
    }

    fn remove(path: &Path) {
        fs::remove_file(path).unwrap();
    }

    fn link(path: &Path, target: &Path) {
        remove(path);
        symlink(target, path).unwrap();
    }

    #[test]
    fn each_damaged_file_is_named_with_its_fault() {
        for file in ["config.json", "tokenizer.json"] {
            assert!(fault(1 << 30, file, remove).contains("there is no such file: fetch it"));
        }
        for file in ["config.json", "tokenizer.json", "model.safetensors"] {
            let broken = |damage: fn(&Path)| fault(1 << 30, file, damage);
            assert!(broken(|path| fs::write(path, POINTER).unwrap()).contains("`git lfs pull`"));
            assert!(broken(|path| link(path, Path::new("gone"))).contains("it is a link to gone, which cannot"));
            assert!(broken(|path| link(path, path)).contains("it is a link to "));
            let folder = broken(|path| {
                remove(path);
                fs::create_dir(path).unwrap();
            });
            assert!(folder.contains("it is a folder in place of a file"), "{folder}");
        }
        assert!(fault(1 << 30, "model.safetensors", cut).contains("it is cut off at "));
        let empty = fault(1 << 30, "model.safetensors", |path| fs::write(path, "").unwrap());
        assert!(empty.contains("it has 0 bytes, too few"), "{empty}");
    }

    #[test]
    fn half_a_json_file_is_cut_off_at_no_unknown_field() {
        for (file, text) in [("config.json", "{\"model_type\""), ("tokenizer.json", "{\"a\": [1, ")] {
            let said = fault(1 << 30, file, |path| fs::write(path, text).unwrap());
            assert!(said.starts_with("EOF while parsing") && !said.contains('?'), "{said}");
            assert!(said.ends_with("the file is cut off: fetch it again"), "{said}");
        }
    }

    /// Returns the name of the last of the shards of this size.
    fn last_shard(shard_bytes: u64) -> String {
        let folder = model(shard_bytes);
        let names = fs::read_dir(folder.path()).unwrap().flatten();
        let names = names.filter_map(|entry| entry.file_name().into_string().ok());
        names.filter(|name| name.starts_with("model-")).max().unwrap()
    }

    #[test]
    fn each_shard_is_checked() {
        let last = last_shard(24_000);
        let shards = |damage: fn(&Path)| fault(24_000, &last, damage);
        assert!(shards(remove).contains("there is no such file: fetch it"));
        assert!(shards(cut).contains("it is cut off at "));
        let index = "model.safetensors.index.json";
        assert!(fault(24_000, index, cut).contains("cut off"));
        let none = |path: &Path| fs::write(path, "{\"weight_map\": {}}").unwrap();
        assert!(fault(24_000, index, none).contains("its weight_map names no file"));
    }

    #[test]
    fn weights_in_another_form_are_named_with_the_fix() {
        for (other, fix) in [
            ("pytorch_model.bin", "save_pretrained"),
            ("q4.gguf", "GGUF"),
            ("model-00001-of-00002.safetensors", "fetch model.safetensors.index.json"),
            ("LICENSE", "it has no weights: fetch model.safetensors"),
        ] {
            let folder = model(1 << 30);
            remove(&folder.path().join("model.safetensors"));
            fs::write(folder.path().join(other), "x").unwrap();
            let said = check_folder(folder.path(), Checked::Whole).unwrap_err().to_string();
            assert!(said.contains(fix), "{said}");
            assert!(other == "LICENSE" || said.contains(other), "{said}");
            check_folder(folder.path(), Checked::NoWeights).unwrap();
        }
    }
}
