//! The base of an adapter: its record in checkpoints, and the use of that record.

use std::path::Path;

use broker::protocol::train::TrainCommand;
use configs::Dtype;

use super::parity_lora::{INIT, adapter_trainer, lora};
use super::{TrainerOptions, defaults, digest, shape, train, user};
use crate::checkpoint::{keep_model, other_base};
use crate::device::of_tests;
use crate::model::{ModelShape, Module, Rope, Weights, peft};
use crate::train::{Trainer, TrainerClient};

/// An adapter's tensors fit every base of its widths.
#[test]
fn an_adapter_is_not_restored_over_another_base() {
    let load = |trainer: &mut Trainer, folder: &Path| {
        let path = folder.display().to_string();
        trainer.execute(TrainCommand::LoadState { seq: 0, path })
    };
    for dtype in [Dtype::F32, Dtype::Bf16] {
        let random = |seed| {
            let base = Weights::random(&shape(false), INIT, seed).unwrap();
            base.copied_to(of_tests(), dtype).unwrap()
        };
        let over = |shape: ModelShape, base: Weights, seed| {
            let adapter = Weights::adapter(&shape, &lora(&Module::ALL), seed).unwrap();
            let options = TrainerOptions { dtype, ..defaults() };
            Trainer::with_base(shape, base, adapter, options).unwrap()
        };
        let root = tempfile::tempdir().unwrap();
        let mut first = over(shape(false), random(1), 5);
        train(&mut first, 0);
        let (path, meta) = (root.path().display().to_string(), String::new());
        first.execute(TrainCommand::SaveState { seq: 2, path, meta }).unwrap();
        let others = [
            (
                ModelShape {
                    rms_eps: 1e-5,
                    ..shape(false)
                },
                1,
                "rms_norm_eps = 1e-6",
            ),
            (
                ModelShape {
                    rope: Rope::plain(20_000.0),
                    ..shape(false)
                },
                1,
                "rope_",
            ),
            (shape(false), 2, "digest"),
        ];
        for (other, seed, named) in others.clone() {
            let mut trainer = over(other, random(seed), 6);
            let before = digest(&trainer);
            let refused = user(load(&mut trainer, root.path()).unwrap_err());
            assert!(
                refused.contains("another model") && refused.contains(named),
                "{refused}"
            );
            assert_eq!(digest(&trainer), before);
        }
        let folder = root.path().join("step-0");
        // A copy without the state has the same record.
        let kept = root.path().join("kept");
        keep_model(&folder, &kept).unwrap();
        assert!(!kept.join("state.json").exists());
        let look = |shape: &ModelShape, base: &Weights| {
            let found = [&folder, &kept].map(|folder| other_base(folder, shape, base).unwrap());
            assert_eq!(found[0], found[1]);
            found[0].clone()
        };
        for (other, seed, named) in others.clone() {
            let difference = look(&other, &random(seed)).unwrap();
            assert!(difference.contains(named), "{difference}");
        }
        assert_eq!(look(&shape(false), &random(1)), None);
        // Read in the other type: a wider base is rounded and compared; for a narrower one the
        // settings are compared.
        let in_other = |seed| Weights::random(&shape(false), INIT, seed).unwrap();
        let in_other = |seed| match dtype {
            Dtype::F32 => in_other(seed).copied_to(of_tests(), Dtype::Bf16).unwrap(),
            Dtype::Bf16 => in_other(seed),
        };
        assert_eq!(look(&shape(false), &in_other(1)), None);
        assert_eq!(look(&shape(false), &in_other(2)).is_some(), dtype == Dtype::Bf16);
        assert!(look(&others[0].0, &in_other(1)).is_some());
        // A foreign folder has no record.
        let foreign = root.path().join("foreign");
        std::fs::create_dir(&foreign).unwrap();
        std::fs::copy(folder.join(peft::CONFIG), foreign.join(peft::CONFIG)).unwrap();
        std::fs::write(foreign.join("state.json"), "{}").unwrap();
        assert_eq!(other_base(&foreign, &shape(false), &random(2)).unwrap(), None);
        // The ids that end a turn are not compared, and states of earlier builds have no record of
        // their base.
        let ends = ModelShape {
            eos: vec![3],
            max_context: 1 << 12,
            pad: Some(1),
            ..shape(false)
        };
        load(&mut over(ends, random(1), 6), root.path()).unwrap();
        let mut state: serde_json::Value =
            serde_json::from_slice(&std::fs::read(folder.join("state.json")).unwrap()).unwrap();
        assert!(state.as_object_mut().unwrap().remove("base").unwrap().is_object());
        super::resume::edit(&folder, "state.json", state.to_string().as_bytes());
        load(&mut over(shape(false), random(2), 6), root.path()).unwrap();
    }
}

/// The origin and the folder of the base do not affect the digest of a training state.
#[test]
fn the_base_is_digested_once_and_not_part_of_the_state_digest() {
    let base = Weights::random(&shape(false), INIT, 1).unwrap();
    let shared = base.share();
    assert_eq!(shared.frozen_digest().unwrap(), base.digest().unwrap());
    // A second computation would give another digest.
    let _ = shared.flat().shallow_clone().f_add_scalar_(1.0).unwrap();
    assert_ne!(base.digest().unwrap(), base.frozen_digest().unwrap());
    assert_eq!(base.frozen_digest().unwrap(), shared.frozen_digest().unwrap());
    let saved = |seed| {
        let base = Weights::random(&shape(false), INIT, seed).unwrap();
        let root = tempfile::tempdir().unwrap();
        let (path, meta) = (root.path().display().to_string(), String::new());
        let mut trainer = adapter_trainer(&base, 5, defaults());
        trainer.execute(TrainCommand::SaveState { seq: 0, path, meta }).unwrap()
    };
    assert_eq!(saved(1), saved(2), "untrained adapters are equal");
}
