//! An exported policy loads again as the same policy, and no half-written file remains.

use tch::{Kind, Tensor};

use super::*;
use crate::model::{Decoder, Init, LoraShape, Module, Parts, RowBatch, test_shape};

const INIT: Init = Init {
    embedding_std: 1.0,
    matrix_std: 0.2,
};

/// A model's folder with a tokenizer and with files that only training needs.
fn model(root: &Path, tied: bool) -> (PathBuf, ModelShape, Weights) {
    let folder = root.join("model");
    let shape = ModelShape { tied, ..test_shape() };
    let weights = Weights::random(&shape, INIT, 3).unwrap();
    weights.save(&shape, &folder).unwrap();
    for name in [
        "tokenizer.json",
        "chat_template.jinja",
        "optimizer.safetensors",
        "state.json",
    ] {
        fs::write(folder.join(name), name).unwrap();
    }
    (folder, shape, weights)
}

/// An adapter of every module that changes something.
fn adapter(shape: &ModelShape) -> Weights {
    let lora = LoraShape {
        rank: 2,
        alpha: 4.0,
        targets: Module::ALL.into_iter().collect(),
    };
    let adapter = Weights::adapter(shape, &lora, 5).unwrap();
    let _ = adapter.flat().shallow_clone().f_add_scalar_(0.01).unwrap();
    adapter
}

fn whole(folder: &Path) -> Export<'_> {
    Export {
        model: folder,
        adapter: None,
        adapter_folder: None,
        merged: false,
        tokenizer: folder,
        dtype: Dtype::F32,
        shard_bytes: crate::model::SHARD_BYTES,
        provenance: json!({"run": "r-1"}),
    }
}

fn logits<'a>(shape: &ModelShape, parts: impl Into<Parts<'a>>) -> Tensor {
    let _guard = tch::no_grad_guard();
    let decoder = Decoder::new(shape, parts).unwrap();
    let batch = RowBatch::new(shape, &[vec![3u32, 7, 1, 5]], Device::Cpu).unwrap();
    decoder.logits(&decoder.hidden(&batch).unwrap()).unwrap()
}

fn far(a: &Tensor, b: &Tensor) -> f64 {
    (a - b).abs().max().double_value(&[])
}

fn left(root: &Path) -> Vec<String> {
    names(root).unwrap()
}

#[test]
fn a_whole_model_has_equal_logits_and_nothing_of_its_training() {
    let root = tempfile::tempdir().unwrap();
    let (folder, shape, weights) = model(root.path(), false);
    let out = root.path().join("deep/out");
    let exported = export(&whole(&folder), &out, false).unwrap();
    let files = [
        "chat_template.jinja",
        "config.json",
        "dyad_export.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
    ];
    assert_eq!(exported.files, files);
    assert_eq!((exported.adapter, exported.untied), (false, false));
    let origin: serde_json::Value = serde_json::from_str(&fs::read_to_string(out.join(EXPORT)).unwrap()).unwrap();
    assert_eq!(origin, json!({"run": "r-1"}));
    assert_eq!(exported.parameters, weights.layout().numel());
    let again = ModelShape::load(&out).unwrap();
    assert_eq!(again, shape);
    let loaded = Weights::load(&again, &out).unwrap();
    assert_eq!(far(&logits(&shape, &weights), &logits(&again, &loaded)), 0.0);

    let bf16 = Export {
        dtype: Dtype::Bf16,
        ..whole(&folder)
    };
    export(&bf16, &out, true).unwrap();
    let rounded = weights.copied(Device::Cpu, Kind::BFloat16).unwrap();
    let loaded = Weights::load(&shape, &out).unwrap().copied(Device::Cpu, Kind::BFloat16);
    assert_eq!(loaded.unwrap().digest().unwrap(), rounded.digest().unwrap());
    let config: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(out.join("config.json")).unwrap()).unwrap();
    assert!(config.to_string().contains("bfloat16"), "{config}");
    assert_eq!(left(&root.path().join("deep")), ["out"], "nothing is left aside");
}

#[test]
fn an_adapter_is_exported_alone_or_merged_into_an_untied_model() {
    let root = tempfile::tempdir().unwrap();
    let (folder, shape, base) = model(root.path(), true);
    let adapter = adapter(&shape);
    let wanted = logits(&shape, Parts::over(Some(&base), &adapter));
    assert!(far(&wanted, &logits(&shape, &base)) > 0.1, "it changes something");
    let alone = Export {
        adapter: Some(&adapter),
        ..whole(&folder)
    };
    let out = root.path().join("adapter");
    let exported = export(&alone, &out, false).unwrap();
    assert!(exported.adapter && exported.files.contains(&peft::TENSORS.to_owned()));
    assert!(!exported.files.contains(&"model.safetensors".to_owned()));
    let (lora, loaded) = peft::load(&out, &shape).unwrap();
    assert_eq!(Some(&lora), adapter.layout().lora());
    assert_eq!(far(&wanted, &logits(&shape, Parts::over(Some(&base), &loaded))), 0.0);

    let merged = Export { merged: true, ..alone };
    let out = root.path().join("merged");
    let exported = export(&merged, &out, false).unwrap();
    assert!(!exported.adapter && exported.untied);
    let whole = ModelShape::load(&out).unwrap();
    assert!(!whole.tied);
    let loaded = Weights::load(&whole, &out).unwrap();
    let gap = far(&wanted, &logits(&whole, &loaded));
    assert!(gap < 1e-4, "{gap}");
}

#[test]
fn a_merged_model_in_shards_has_the_bits_of_the_sum() {
    let root = tempfile::tempdir().unwrap();
    let (folder, shape, base) = model(root.path(), false);
    let adapter = adapter(&shape);
    let (_, wanted) = peft::merged(&shape, &base, &adapter).unwrap();
    let merged = Export {
        adapter: Some(&adapter),
        merged: true,
        shard_bytes: 6000,
        ..whole(&folder)
    };
    let out = root.path().join("out");
    let exported = export(&merged, &out, false).unwrap();
    assert!(!exported.untied && !exported.files.contains(&"model.safetensors".to_owned()));
    assert!(exported.files.contains(&"model.safetensors.index.json".to_owned()));
    let shards = exported.files.iter().filter(|name| name.starts_with("model-"));
    assert!(shards.count() > 1, "{:?}", exported.files);
    let loaded = Weights::load(&shape, &out).unwrap();
    assert_eq!(loaded.digest().unwrap(), wanted.digest().unwrap());
}

#[test]
fn a_failure_leaves_what_was_there_and_a_success_replaces_it() {
    let root = tempfile::tempdir().unwrap();
    let (folder, _, _) = model(root.path(), false);
    let out = root.path().join("out");
    fs::create_dir(&out).unwrap();
    fs::write(out.join("model-00001-of-00002.safetensors"), "of another model").unwrap();
    let broken = root.path().join("broken");
    fs::create_dir(&broken).unwrap();
    fs::copy(folder.join("config.json"), broken.join("config.json")).unwrap();
    let error = export(&whole(&broken), &out, true).unwrap_err();
    assert!(matches!(error, ExportError::Model(_)), "{error}");
    assert_eq!(names(&out).unwrap(), ["model-00001-of-00002.safetensors"]);
    assert_eq!(left(root.path()), ["broken", "model", "out"], "nothing half-written");
    let error = export(&whole(&folder), &out, false).unwrap_err();
    assert!(matches!(error, ExportError::Files(_)), "replace was not set: {error}");
    assert_eq!(names(&out).unwrap(), ["model-00001-of-00002.safetensors"]);
    export(&whole(&folder), &out, true).unwrap();
    assert!(!out.join("model-00001-of-00002.safetensors").exists());
    assert_eq!(left(root.path()), ["broken", "model", "out"]);
    assert!(matches!(
        export(&whole(&folder), Path::new("/"), false),
        Err(ExportError::NoName(_))
    ));
}

#[test]
fn what_a_killed_export_left_is_no_part_of_the_next() {
    let root = tempfile::tempdir().unwrap();
    let (folder, _, _) = model(root.path(), false);
    let out = root.path().join("out");
    fs::create_dir(&out).unwrap();
    let stray = hidden_next_to(&out, "new").unwrap();
    make(&stray).unwrap();
    let shard = stray.join("model-00001-of-00002.safetensors");
    fs::write(&shard, "of another model").unwrap();
    let error = make(&stray).unwrap_err();
    assert!(matches!(error, CheckpointError::Io { .. }), "{error}");
    assert_eq!(names(&stray).unwrap(), ["model-00001-of-00002.safetensors"]);
    assert_eq!(fs::read_to_string(&shard).unwrap(), "of another model");
    let exported = export(&whole(&folder), &out, false).unwrap();
    assert!(!exported.files.contains(&"model-00001-of-00002.safetensors".to_owned()));
    assert!(!out.join("model-00001-of-00002.safetensors").exists());
    assert_eq!(fs::read_to_string(&shard).unwrap(), "of another model");
    let hidden = |name: &str| hidden_next_to(&out, name).unwrap();
    assert_ne!(hidden("new"), hidden("new"), "two at once are not in each other's way");
}
