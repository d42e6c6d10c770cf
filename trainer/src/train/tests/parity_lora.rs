//! Adapters equal PEFT's, on the folders from `fixtures/models.py`, and keep the trainer's
//! guarantees for whole models.

use std::path::PathBuf;

use broker::ids::WeightVersion;
use broker::protocol::train::{Loss, TrainCommand, TrainReply};
use configs::{Dtype, Swap};
use tch::{Kind, Tensor};

use super::parity_models::{Reference, far, next_tokens, relative, request, root, run_python};
use super::{POLICY, TrainerOptions, batch, defaults, digest, loss_of, shape, train};
use crate::device::of_tests;
use crate::engine::{Engine, EngineOptions};
use crate::model::{Decoder, Init, LoraShape, ModelShape, Module, Parts, RowBatch, Targets, Weights, peft};
use crate::train::{Trainer, TrainerClient};
use crate::weights::Published;

/// An adapter written by PEFT, its base, and their outputs.
struct Adapted {
    name: String,
    base_folder: PathBuf,
    shape: ModelShape,
    base: Weights,
    adapter: Weights,
    reference: Reference,
}

fn adapters() -> Vec<Adapted> {
    let mut folders: Vec<PathBuf> = std::fs::read_dir(root().join("adapters"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    folders.sort();
    assert!(folders.len() >= 3);
    let read = |folder: PathBuf| {
        let text = std::fs::read_to_string(folder.join(peft::CONFIG)).unwrap();
        let config: serde_json::Value = serde_json::from_str(&text).unwrap();
        let base_folder = folder
            .join(config["base_model_name_or_path"].as_str().unwrap())
            .canonicalize()
            .unwrap();
        let shape = ModelShape::load(&base_folder).unwrap();
        let (_, adapter) = peft::load(&folder, &shape).unwrap();
        let adapter = adapter.copied_to(of_tests(), Dtype::F32).unwrap();
        Adapted {
            name: folder.file_name().unwrap().to_string_lossy().into_owned(),
            base: Weights::load_as(&shape, &base_folder, of_tests(), Dtype::F32).unwrap(),
            reference: Reference::read(&folder),
            adapter,
            shape,
            base_folder,
        }
    };
    folders.into_iter().map(read).collect()
}

fn logits<'a>(shape: &ModelShape, parts: impl Into<Parts<'a>>, ids: Vec<u32>) -> Tensor {
    let _guard = tch::no_grad_guard();
    let decoder = Decoder::new(shape, parts).unwrap();
    let batch = RowBatch::new(shape, &[ids], decoder.device()).unwrap();
    decoder.logits(&decoder.hidden(&batch).unwrap()).unwrap()
}

fn copy(weights: &Weights) -> Weights {
    weights.copied(of_tests(), Kind::Float).unwrap()
}

#[test]
fn logits_equal_merged_or_not() {
    for one in adapters() {
        let (ids, want) = (one.reference.ids("ids", None), one.reference.tensor("logits"));
        let parts = Parts::over(Some(&one.base), &one.adapter);
        let gap = far(&logits(&one.shape, parts, ids.clone()), &want);
        assert!(gap < 1e-5, "{}: {gap}", one.name);
        assert!(
            far(&logits(&one.shape, &one.base, ids.clone()), &want) > 0.1,
            "it changes something"
        );
        let (shape, whole) = peft::merged(&one.shape, &one.base, &one.adapter).unwrap();
        let gap = far(&logits(&shape, &whole, ids), &want);
        assert!(gap < 2e-5, "{} merged: {gap}", one.name);
        if one.name == "qwen3-tied-head" {
            assert!(one.shape.tied && !shape.tied, "the embedding itself must not move");
        }
    }
}

#[test]
fn gradients_equal() {
    for one in adapters() {
        let (base, adapter) = (one.base.share(), copy(&one.adapter));
        let mut trainer = Trainer::with_base(one.shape.clone(), base, adapter, defaults()).unwrap();
        let (batch, loss) = (next_tokens(one.reference.ids("ids", None)), Loss::CrossEntropy);
        let reply = trainer.execute(TrainCommand::ForwardBackward { seq: 0, batch, loss });
        let want = one.reference.tensor("loss").double_value(&[]);
        assert!((loss_of(reply.unwrap()).loss / want - 1.0).abs() < 1e-6, "{}", one.name);
        for spec in one.adapter.params() {
            let want = one.reference.tensor(&format!("grad.{}", spec.name)).flatten(0, -1);
            let got = trainer.model.grad().narrow(0, spec.offset as i64, spec.numel as i64);
            let gap = relative(&got, &want);
            assert!(gap < 1e-4, "{} {}: {gap}", one.name, spec.name);
        }
    }
}

#[test]
fn exported_adapters_and_merged_models_are_the_same_policy() {
    let saved = tempfile::tempdir().unwrap();
    for one in adapters() {
        let folder = saved.path().join(&one.name);
        peft::save(&folder, &one.adapter, one.base_folder.to_str().unwrap()).unwrap();
        let (lora, again) = peft::load(&folder, &one.shape).unwrap();
        assert_eq!(Some(&lora), one.adapter.layout().lora());
        assert_eq!(again.digest().unwrap(), one.adapter.digest().unwrap());
        one.reference.copy_to(&folder);
        let (shape, whole) = peft::merged(&one.shape, &one.base, &one.adapter).unwrap();
        let folder = saved.path().join(format!("{}-merged", one.name));
        whole.save(&shape, &folder).unwrap();
        one.reference.copy_to(&folder);
    }
    run_python(saved.path());
}

#[test]
fn what_is_not_plain_lora_is_refused_by_name() {
    let source = root().join("adapters/llama-two");
    let shape = ModelShape::load(&root().join("llama-llama3-tied")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    std::fs::copy(source.join(peft::TENSORS), folder.path().join(peft::TENSORS)).unwrap();
    let text = std::fs::read_to_string(source.join(peft::CONFIG)).unwrap();
    let with = |key: &str, value: serde_json::Value| {
        let mut config: serde_json::Value = serde_json::from_str(&text).unwrap();
        config[key] = value;
        std::fs::write(folder.path().join(peft::CONFIG), config.to_string()).unwrap();
        peft::load(folder.path(), &shape).map(|(lora, _)| lora)
    };
    for (key, value) in [
        ("use_dora", serde_json::json!(true)),
        ("bias", serde_json::json!("all")),
        ("modules_to_save", serde_json::json!(["embed_tokens"])),
        ("rank_pattern", serde_json::json!({"q_proj": 8})),
        ("layers_to_transform", serde_json::json!([0])),
        ("peft_type", serde_json::json!("IA3")),
    ] {
        let error = with(key, value).unwrap_err().to_string();
        assert!(error.contains("not implemented"), "{key}: {error}");
    }
    assert_eq!(with("use_rslora", serde_json::json!(true)).unwrap().scale(), 4.0 / 2.0);
    assert!(
        with("r", serde_json::json!(5))
            .unwrap_err()
            .to_string()
            .contains("asked for")
    );
    let other = ModelShape::load(&root().join("qwen3")).unwrap();
    with("r", serde_json::json!(4)).unwrap();
    assert!(peft::load(folder.path(), &other).is_err(), "another base's adapter");
}

pub(super) const INIT: Init = Init {
    embedding_std: 1.0,
    matrix_std: 0.2,
};

pub(super) fn lora(modules: &[Module]) -> LoraShape {
    LoraShape {
        rank: 4,
        alpha: 8.0,
        targets: modules.iter().copied().collect::<Targets>(),
    }
}

/// A base on the device of the tests.
fn random() -> Weights {
    let base = Weights::random(&shape(false), INIT, 1).unwrap();
    base.copied_to(of_tests(), Dtype::F32).unwrap()
}

/// A trainer of a fresh adapter over `base`.
pub(super) fn adapter_trainer(base: &Weights, seed: u64, options: TrainerOptions) -> Trainer {
    let adapter = Weights::adapter(&shape(false), &lora(&Module::ALL), seed).unwrap();
    Trainer::with_base(shape(false), base.share(), adapter, options).unwrap()
}

#[test]
fn a_fresh_adapter_is_its_base_and_seeds_part_them() {
    let base = random();
    let ids = vec![3u32, 7, 1, 20, 5];
    let plain = logits(&shape(false), &base, ids.clone());
    let adapter = Weights::adapter(&shape(false), &lora(&Module::ALL), 1).unwrap();
    let adapter = adapter.copied_to(of_tests(), Dtype::F32).unwrap();
    let adapted = logits(&shape(false), Parts::over(Some(&base), &adapter), ids);
    assert_eq!(far(&plain, &adapted), 0.0);
    let other = Weights::adapter(&shape(false), &lora(&Module::ALL), 2).unwrap();
    assert_ne!(adapter.digest().unwrap(), other.digest().unwrap());
    for spec in adapter.params() {
        let view = adapter.view(&spec.name).unwrap();
        let largest = view.abs().max().double_value(&[]);
        if spec.name.ends_with("lora_B.weight") {
            assert_eq!(largest, 0.0);
        } else {
            let bound = 1.0 / (spec.shape[1] as f64).sqrt();
            assert!(largest <= bound && largest > 0.8 * bound, "{}: {largest}", spec.name);
        }
    }
    assert!(Trainer::new(shape(false), adapter, defaults()).is_err(), "no base");
}

#[test]
fn two_adapters_over_one_base_train_in_threads_as_alone() {
    let base = random();
    let before = base.digest().unwrap();
    let alone: Vec<String> = (0..2)
        .map(|seed| {
            let mut trainer = adapter_trainer(&base, seed, defaults());
            (0..3).for_each(|round| train(&mut trainer, round));
            digest(&trainer)
        })
        .collect();
    let threads: Vec<_> = (0..2)
        .map(|seed| {
            let base = base.share();
            assert_eq!(base.flat().data_ptr(), base.share().flat().data_ptr(), "one storage");
            std::thread::spawn(move || {
                let mut trainer = adapter_trainer(&base, seed, defaults());
                (0..3).for_each(|round| train(&mut trainer, round));
                digest(&trainer)
            })
        })
        .collect();
    let together: Vec<String> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    assert_eq!(alone, together);
    assert_ne!(together[0], together[1]);
    assert_eq!(base.digest().unwrap(), before, "the base never changes");
}

#[test]
fn a_restored_adapter_continues_bit_for_bit_in_pefts_form() {
    let base = random();
    let root = tempfile::tempdir().unwrap();
    let options = || TrainerOptions {
        base_name: "somewhere/base".into(),
        ..defaults()
    };
    let mut first = adapter_trainer(&base, 5, options());
    (0..2).for_each(|round| train(&mut first, round));
    let path = root.path().to_string_lossy().into_owned();
    let version = WeightVersion { lineage: 1, step: 2 };
    first.execute(TrainCommand::Publish { seq: 4, version }).unwrap();
    let meta = "{}".to_owned();
    let save = TrainCommand::SaveState {
        seq: 5,
        path: path.clone(),
        meta,
    };
    let TrainReply::Saved { .. } = first.execute(save).unwrap() else {
        panic!()
    };
    let (_, adapter) = peft::load(&root.path().join("step-2"), &shape(false)).unwrap();
    assert_eq!(adapter.digest().unwrap(), first.weights().digest().unwrap());
    let mut second = adapter_trainer(&base, 6, options());
    second.execute(TrainCommand::LoadState { seq: 5, path }).unwrap();
    for trainer in [&mut first, &mut second] {
        for (seq, round) in [(6, 3), (8, 4)] {
            let (batch, loss) = (batch(round), POLICY);
            trainer
                .execute(TrainCommand::ForwardBackward { seq, batch, loss })
                .unwrap();
            let params = super::OPTIM;
            trainer
                .execute(TrainCommand::OptimStep { seq: seq + 1, params })
                .unwrap();
        }
    }
    assert_eq!(digest(&first), digest(&second));
    let narrower = Weights::adapter(&shape(false), &lora(&Module::ALL[..4]), 5).unwrap();
    let mut other = Trainer::with_base(shape(false), base, narrower, options()).unwrap();
    let path = root.path().to_string_lossy().into_owned();
    let refused = other.execute(TrainCommand::LoadState { seq: 0, path }).unwrap_err();
    assert!(refused.to_string().contains("another model"), "{refused}");
}

#[test]
fn an_engine_serves_adapters_of_a_shared_base_and_swaps_them() {
    let base = random();
    let version = |step| WeightVersion { lineage: 1, step };
    let options = EngineOptions {
        slots: 8,
        prefill_tokens: 64,
        prefix_cache: 0,
        cache: None,
        swap: Swap::InPlace,
        deterministic: false,
        prepack: true,
    };
    let mut trainer = adapter_trainer(&base, 3, defaults());
    let served = Published::new(copy(trainer.weights()), version(0));
    let mut engine = Engine::with_base(&shape(false), base.share(), served, options).unwrap();
    let wave = || (0..4).map(|n| request(n, vec![n as u32, 9, 4], 16, 1.0)).collect();
    let mut plain = Engine::new(&shape(false), Published::new(copy(&base), version(0)), options).unwrap();
    let at_first = engine.run_wave(wave()).unwrap();
    assert_eq!(at_first, plain.run_wave(wave()).unwrap(), "a fresh adapter is its base");
    (0..3).for_each(|round| train(&mut trainer, round));
    assert!(
        engine
            .swap(Published::new(copy(trainer.weights()), version(1)))
            .unwrap()
    );
    let after = engine.run_wave(wave()).unwrap();
    assert_ne!(at_first, after);
    let (_, whole) = peft::merged(&shape(false), &base, trainer.weights()).unwrap();
    for (finished, request) in after.iter().zip(wave() as Vec<crate::engine::GenRequest>) {
        let row = [&request.prompt_ids[..], &finished.output_ids].concat();
        let want = logits(&shape(false), &whole, row).log_softmax(-1, Kind::Float);
        for (i, (id, logprob)) in finished.output_ids.iter().zip(&finished.logprobs).enumerate() {
            let want = want.double_value(&[2 + i as i64, i64::from(*id)]);
            assert!((f64::from(*logprob) - want).abs() < 2e-5);
        }
    }
}

#[test]
fn in_bf16_an_adapter_trains_over_a_bf16_base() {
    let base = random();
    let half = base.copied_to(of_tests(), Dtype::Bf16).unwrap();
    let options = |dtype| TrainerOptions { dtype, ..defaults() };
    let mut exact = adapter_trainer(&base, 5, options(Dtype::F32));
    let mut rough = adapter_trainer(&half, 5, options(Dtype::Bf16));
    for trainer in [&mut exact, &mut rough] {
        let (batch, loss) = (batch(0), POLICY);
        trainer
            .execute(TrainCommand::ForwardBackward { seq: 0, batch, loss })
            .unwrap();
    }
    let gap = relative(rough.model.grad(), exact.model.grad());
    assert!(gap > 1e-6 && gap < 0.05, "{gap}");
    let adapter = Weights::adapter(&shape(false), &lora(&Module::ALL), 5).unwrap();
    assert!(Trainer::with_base(shape(false), base, adapter, options(Dtype::Bf16)).is_err());
}
