//! Checkpoints of a trainer: restored bit for bit, complete after a crash, rejected if they do not
//! fit.

use std::fs;
use std::io;
use std::path::Path;

use broker::ids::WeightVersion;

use super::*;
use crate::checkpoint::{Gate, find};

fn save(trainer: &mut Trainer, seq: u64, root: &Path, meta: &str) -> Result<String, TrainError> {
    let (path, meta) = (root.display().to_string(), meta.to_owned());
    match trainer.execute(TrainCommand::SaveState { seq, path, meta })? {
        TrainReply::Saved { digest } => Ok(digest),
        other => panic!("{other:?}"),
    }
}

fn load(trainer: &mut Trainer, seq: u64, path: &Path) -> Result<String, TrainError> {
    let path = path.display().to_string();
    match trainer.execute(TrainCommand::LoadState { seq, path })? {
        TrainReply::Loaded { meta } => Ok(meta),
        other => panic!("{other:?}"),
    }
}

fn referenced(seed: u64) -> Trainer {
    trainer(
        seed,
        TrainerOptions {
            keep_reference: true,
            ..defaults()
        },
    )
}

#[test]
fn a_restored_trainer_goes_on_bit_for_bit() {
    tch::set_num_threads(1);
    let root = tempfile::tempdir().unwrap();
    let mut straight = referenced(1);
    straight.take_reference().unwrap();
    (0..6).for_each(|round| train(&mut straight, round));
    let mut first = referenced(1);
    first.take_reference().unwrap();
    (0..3).for_each(|round| train(&mut first, round));
    let version = WeightVersion { lineage: 7, step: 3 };
    first.execute(TrainCommand::Publish { seq: 6, version }).unwrap();
    save(&mut first, 7, root.path(), "{\"lineage\":7}").unwrap();
    let mut second = referenced(99);
    assert_eq!(load(&mut second, 5, root.path()).unwrap(), "{\"lineage\":7}");
    assert_eq!((second.version(), second.optimizer_steps()), (Some(version), 3));
    (3..6).for_each(|round| train(&mut second, round));
    assert_eq!(digest(&straight), digest(&second));
    let kept = |trainer: &Trainer| trainer.reference.as_ref().unwrap().weights.digest().unwrap();
    assert_eq!(kept(&straight), kept(&second));
    let (a, b) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let digests = (
        save(&mut straight, 12, a.path(), "").unwrap(),
        save(&mut second, 12, b.path(), "").unwrap(),
    );
    assert_eq!(digests.0, digests.1, "moments and step count are the same too");
}

#[test]
fn the_folder_is_a_hugging_face_model_with_its_tokenizer() {
    let (root, source) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::write(source.path().join("tokenizer.json"), "{}").unwrap();
    fs::write(source.path().join("pytorch_model.bin"), "not ours").unwrap();
    let tokenizer_folder = Some(source.path().to_path_buf());
    let mut trainer = trainer(
        1,
        TrainerOptions {
            tokenizer_folder,
            ..defaults()
        },
    );
    save(&mut trainer, 0, root.path(), "").unwrap();
    let folder = root.path().join("step-0");
    let mut names: Vec<String> = fs::read_dir(&folder)
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    let expected = [
        "config.json",
        "manifest.json",
        "model.safetensors",
        "optimizer.safetensors",
        "state.json",
        "tokenizer.json",
    ];
    assert_eq!(names, expected);
    let shape = ModelShape::load(&folder).unwrap();
    assert_eq!(
        Weights::load(&shape, &folder)
            .unwrap()
            .digest()
            .unwrap()
            .to_hex()
            .to_string(),
        digest(&trainer)
    );
}

#[test]
fn a_model_in_shards_is_whole_in_its_manifest_and_loads_again() {
    let root = tempfile::tempdir().unwrap();
    let options = || TrainerOptions {
        keep_reference: true,
        shard_bytes: 3000,
        ..defaults()
    };
    let mut first = trainer(1, options());
    first.take_reference().unwrap();
    train(&mut first, 0);
    save(&mut first, 2, root.path(), "").unwrap();
    let found = find(root.path(), false).unwrap();
    let shards = |under: &str| -> Vec<String> {
        let names = found.manifest.files.keys();
        let begins = format!("{under}model-");
        names.filter(|name| name.starts_with(&begins)).cloned().collect()
    };
    for under in ["", "reference/"] {
        assert!(shards(under).len() > 1, "{:?}", found.manifest.files);
        let index = format!("{under}model.safetensors.index.json");
        assert!(found.manifest.files.contains_key(&index));
        assert!(!found.manifest.files.contains_key(&format!("{under}model.safetensors")));
    }
    // The form of the files does not change the state.
    let mut second = trainer(
        9,
        TrainerOptions {
            keep_reference: true,
            ..defaults()
        },
    );
    load(&mut second, 0, root.path()).unwrap();
    assert_eq!(digest(&first), digest(&second));
    let shard = found.folder.join(&shards("")[1]);
    let mut bytes = fs::read(&shard).unwrap();
    if let Some(last) = bytes.last_mut() {
        *last ^= 1;
    }
    fs::write(&shard, bytes).unwrap();
    assert!(find(root.path(), false).is_err(), "damage to a shard is found");
}

#[test]
fn a_crash_at_any_write_leaves_the_old_or_new_checkpoint() {
    let stop_at = |act: usize| -> Gate {
        let mut left = act;
        Box::new(move |_| {
            left = left.checked_sub(1).ok_or_else(|| io::Error::other("stopped"))?;
            Ok(())
        })
    };
    let mut seen = [0, 0];
    for act in 0.. {
        let root = tempfile::tempdir().unwrap();
        let mut running = referenced(1);
        running.take_reference().unwrap();
        train(&mut running, 0);
        let old = save(&mut running, 2, root.path(), "old").unwrap();
        train_at(&mut running, 3);
        running.gate = Some(stop_at(act));
        let result = save(&mut running, 5, root.path(), "new");
        let mut next = referenced(2);
        let meta = load(&mut next, 0, root.path()).unwrap();
        seen[usize::from(meta == "new")] += 1;
        let found = find(root.path(), false).unwrap().manifest.digest;
        assert_eq!(found == old, meta == "old", "act {act}");
        match result {
            Ok(_) => break,
            Err(error) => assert!(matches!(error, TrainError::Transient { .. }), "{error}"),
        }
        // The caller may send the same command again when the disk works.
        running.gate = None;
        save(&mut running, 5, root.path(), "new").unwrap();
    }
    assert!(seen[0] >= 8 && seen[1] >= 1, "{seen:?}");
}

/// A training step with other command numbers.
fn train_at(trainer: &mut Trainer, seq: u64) {
    let (batch, loss) = (batch(7), POLICY);
    trainer
        .execute(TrainCommand::ForwardBackward { seq, batch, loss })
        .unwrap();
    trainer
        .execute(TrainCommand::OptimStep {
            seq: seq + 1,
            params: OPTIM,
        })
        .unwrap();
}

#[test]
fn a_misfit_is_rejected_with_its_reason_and_changes_nothing() {
    let root = tempfile::tempdir().unwrap();
    let mut one = trainer(1, defaults());
    train(&mut one, 0);
    save(&mut one, 2, root.path(), "").unwrap();
    let folder = root.path().join("step-0");
    let other_shape = ModelShape {
        layers: 1,
        ..shape(false)
    };
    let init = Init {
        embedding_std: 1.0,
        matrix_std: 0.2,
    };
    let weights = Weights::random(&other_shape, init, 1).unwrap();
    let mut other = Trainer::new(other_shape, weights, defaults()).unwrap();
    let before = digest(&other);
    assert!(user(load(&mut other, 0, &folder).unwrap_err()).contains("another model"));
    assert_eq!(digest(&other), before);
    let state = fs::read_to_string(folder.join("state.json")).unwrap();
    edit(&folder, "state.json", state.replace("float32", "bfloat16").as_bytes());
    assert!(user(load(&mut one, 3, &folder).unwrap_err()).contains("bfloat16"));
    let bytes = fs::read(folder.join("optimizer.safetensors")).unwrap();
    fs::write(folder.join("optimizer.safetensors"), &bytes[..bytes.len() - 1]).unwrap();
    assert!(user(load(&mut one, 3, &folder).unwrap_err()).contains("truncated"));
    assert!(user(load(&mut one, 3, &root.path().join("none")).unwrap_err()).contains("no checkpoint"));
}

/// Changes a file, and its manifest to match.
pub(super) fn edit(folder: &Path, name: &str, bytes: &[u8]) {
    fs::write(folder.join(name), bytes).unwrap();
    let path = folder.join("manifest.json");
    let mut manifest: serde_json::Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    manifest["files"][name]["bytes"] = bytes.len().into();
    manifest["files"][name]["blake3"] = blake3::hash(bytes).to_hex().as_str().into();
    fs::write(path, manifest.to_string()).unwrap();
}

#[test]
fn a_gradient_that_waits_is_not_lost_in_a_checkpoint() {
    let root = tempfile::tempdir().unwrap();
    let mut trainer = trainer(1, defaults());
    trainer
        .execute(TrainCommand::ForwardBackward {
            seq: 0,
            batch: batch(0),
            loss: POLICY,
        })
        .unwrap();
    assert!(user(save(&mut trainer, 1, root.path(), "").unwrap_err()).contains("OptimStep"));
}

#[test]
fn a_poisoned_trainer_takes_nothing_but_a_checkpoint() {
    let root = tempfile::tempdir().unwrap();
    let mut trainer = trainer(1, defaults());
    train(&mut trainer, 0);
    save(&mut trainer, 2, root.path(), "good").unwrap();
    let good = digest(&trainer);
    trainer.poisoned = Some((3, "out of memory in mid-step".into()));
    let _ = trainer.weights().flat().shallow_clone().zero_();
    let (batch, loss) = (batch(1), POLICY);
    let refused = trainer
        .execute(TrainCommand::ForwardBackward { seq: 3, batch, loss })
        .unwrap_err();
    assert!(matches!(refused, TrainError::Poisoned { since: 3, .. }), "{refused}");
    assert!(load(&mut trainer, 3, &root.path().join("none")).is_err());
    assert_eq!(load(&mut trainer, 3, root.path()).unwrap(), "good");
    assert_eq!(digest(&trainer), good);
    train(&mut trainer, 2);
}
