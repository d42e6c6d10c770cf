//! A checkpoint has one format and one digest, whatever the number of ranks that write or read it.

use std::path::Path;

use broker::ids::WeightVersion;

use super::*;
use crate::train::TrainerClient;
use crate::train::tests::{TrainCommand, TrainReply, digest, train};

pub(super) fn save(trainer: &mut Trainer, seq: u64, root: &Path) -> String {
    let (path, meta) = (root.display().to_string(), String::new());
    match trainer.execute(TrainCommand::SaveState { seq, path, meta }).unwrap() {
        TrainReply::Saved { digest } => digest,
        other => panic!("{other:?}"),
    }
}

pub(super) fn load(trainer: &mut Trainer, seq: u64, root: &Path) {
    let path = root.display().to_string();
    trainer.execute(TrainCommand::LoadState { seq, path }).unwrap();
}

/// Loads the checkpoint, saves it elsewhere, and compares the digests.
fn copy(trainer: &mut Trainer, from: &Path, digest: &str) {
    let to = tempfile::tempdir().unwrap();
    load(trainer, 0, from);
    assert_eq!(save(trainer, 1, to.path()), digest);
}

#[test]
fn any_number_of_ranks_loads_it_with_the_same_digest() {
    const NAME: &str = "train::tests::ranks::checkpoints::any_number_of_ranks_loads_it_with_the_same_digest";
    let Some(member) = Member::here() else {
        let folder = tempfile::tempdir().unwrap();
        // Three and four ranks read what two have written.
        for ranks in [2, 3, 4] {
            crate::collective::tests::Started::new(NAME, ranks, folder.path()).succeed();
        }
        return;
    };
    tch::set_num_threads(1);
    for trains in BOTH {
        let root = member.folder.join(format!("{trains:?}"));
        let named = member.folder.join(format!("{trains:?}.digest"));
        if member.ranks == 2 {
            let mut writer = rank_of(&member, &format!("write-{trains:?}"), trains, options(true));
            drive(&member, &mut writer, |trainer| {
                (0..2).for_each(|round| train(trainer, round));
                let version = WeightVersion { lineage: 1, step: 2 };
                trainer.execute(TrainCommand::Publish { seq: 4, version }).unwrap();
                std::fs::write(&named, save(trainer, 5, &root)).unwrap();
                copy(
                    &mut alone(trains, options(false)),
                    &root,
                    &std::fs::read_to_string(&named).unwrap(),
                );
            });
        }
        let offloaded = TrainerOptions {
            offload: configs::Offload::Optimizer,
            ..options(true)
        };
        let mut ways = vec![options(false), options(true), by_gradient(), offloaded];
        ways.extend((trains == Trains::Whole).then(fully));
        for (at, options) in ways.into_iter().enumerate() {
            let name = format!("read-{}-{trains:?}-{at}", member.ranks);
            let mut reader = rank_of(&member, &name, trains, options);
            drive(&member, &mut reader, |trainer| {
                copy(trainer, &root, &std::fs::read_to_string(&named).unwrap());
            });
        }
    }
}

#[test]
fn restored_ranks_go_on_bit_for_bit() {
    let Some(member) = Member::here() else {
        return in_ranks("train::tests::ranks::checkpoints::restored_ranks_go_on_bit_for_bit", 2);
    };
    tch::set_num_threads(1);
    let root = member.folder.join("checkpoints");
    let mut straight = rank_of(&member, "straight", Trains::Whole, options(true));
    drive(&member, &mut straight, |trainer| {
        (0..3).for_each(|round| train(trainer, round));
        save(trainer, 6, &root);
        train_at(trainer, 7);
    });
    let mut restored = rank_of(&member, "restored", Trains::Whole, options(true));
    drive(&member, &mut restored, |trainer| {
        load(trainer, 6, &root);
        train_at(trainer, 7);
    });
    assert_eq!(digest(&straight), digest(&restored));
}

fn train_at(trainer: &mut Trainer, seq: u64) {
    let (batch, loss) = (crate::train::tests::batch(9), crate::train::tests::POLICY);
    trainer
        .execute(TrainCommand::ForwardBackward { seq, batch, loss })
        .unwrap();
    let params = crate::train::tests::OPTIM;
    trainer
        .execute(TrainCommand::OptimStep { seq: seq + 1, params })
        .unwrap();
}
