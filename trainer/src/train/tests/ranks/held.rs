//! A rank works for longer than the others wait in silence, and the group lives.

use std::process::Command;

use broker::ids::WeightVersion;
use broker::protocol::train::ForwardWeights;

use super::checkpoints::{load, save};
use super::*;
use crate::collective::tests::Started;
use crate::model::ParamSource;
use crate::train::tests::{POLICY, TrainCommand, batch, train};
use crate::train::{TrainError, TrainerClient};
use crate::weights::{SinkError, WeightSink};

pub(super) const SHORT: Duration = Duration::from_millis(1500);
/// Longer than three timeouts.
const HELD: Duration = Duration::from_secs(5);

/// An engine that takes long for new weights, or for ever.
enum Engine {
    Slow,
    Stopped,
}

impl WeightSink for Engine {
    fn publish(&mut self, _: &dyn ParamSource, _: WeightVersion) -> Result<(), SinkError> {
        match self {
            Self::Slow => std::thread::sleep(HELD),
            Self::Stopped => {
                let id = std::process::id().to_string();
                assert!(Command::new("kill").args(["-STOP", &id]).status().unwrap().success());
            }
        }
        Ok(())
    }
}

pub(super) fn rank(member: &Member, options: TrainerOptions) -> Trainer {
    let group = Box::new(member.join("group", SHORT));
    let (base, weights) = weights(Trains::Whole, Dtype::F32);
    Trainer::in_group(group, shape(false), base, weights, options).unwrap()
}

fn publish(trainer: &mut Trainer, seq: u64) {
    let version = WeightVersion { lineage: 1, step: 1 };
    trainer.execute(TrainCommand::Publish { seq, version }).unwrap();
}

/// Holds rank 0 in a publication and in a save. Later commands prove that the group lives.
fn held(test: &str, options: TrainerOptions) {
    let Some(member) = Member::here() else {
        return in_ranks(test, 2);
    };
    tch::set_num_threads(1);
    let mut trainer = rank(&member, options);
    drive(&member, &mut trainer, |trainer| {
        train(trainer, 0);
        trainer.add_sink(Box::new(Engine::Slow));
        publish(trainer, 2);
        trainer.gate = Some(Box::new(|act| {
            if act == "rename" {
                std::thread::sleep(HELD);
            }
            Ok(())
        }));
        let root = member.folder.join("checkpoints");
        let saved = save(trainer, 3, &root);
        load(trainer, 4, &root);
        trainer.gate = None;
        assert_eq!(save(trainer, 5, &member.folder.join("again")), saved);
    });
}

#[test]
fn long_save_and_publication_with_a_state_on_each_rank() {
    held(
        "train::tests::ranks::held::long_save_and_publication_with_a_state_on_each_rank",
        options(false),
    );
}

#[test]
fn long_save_and_publication_with_a_split_state() {
    held(
        "train::tests::ranks::held::long_save_and_publication_with_a_split_state",
        options(true),
    );
}

#[test]
fn long_save_and_publication_with_split_weights() {
    held(
        "train::tests::ranks::held::long_save_and_publication_with_split_weights",
        fully(),
    );
}

#[test]
fn rank_0_stopped_in_a_publication_is_noticed() {
    const NAME: &str = "train::tests::ranks::held::rank_0_stopped_in_a_publication_is_noticed";
    let Some(member) = Member::here() else {
        let folder = tempfile::tempdir().unwrap();
        let mut ranks = Started::new(NAME, 2, folder.path());
        ranks.succeeds(1);
        assert!(
            ranks.ranks[0].try_wait().unwrap().is_none(),
            "rank 0 is stopped, not dead"
        );
        return;
    };
    let mut trainer = rank(&member, options(false));
    if member.rank == 0 {
        trainer.add_sink(Box::new(Engine::Stopped));
        publish(&mut trainer, 0);
    } else {
        let error = trainer.serve().unwrap_err();
        assert!(matches!(error, TrainError::Ended(_)), "{error}");
    }
}

/// Rank 1 takes longer than three timeouts to build its trainer, and to read the checkpoint.
#[test]
fn slow_disk_of_a_rank_is_not_taken_for_a_lost_one() {
    const NAME: &str = "train::tests::ranks::held::slow_disk_of_a_rank_is_not_taken_for_a_lost_one";
    let Some(member) = Member::here() else {
        let folder = tempfile::tempdir().unwrap();
        let points = "together.begun/1=1*sleep(5000)->off;parameter.read/1=20*sleep(250)->off";
        return Started::armed(NAME, 2, folder.path(), points).succeed();
    };
    tch::set_num_threads(1);
    let mut trainer = rank(&member, options(true));
    drive(&member, &mut trainer, |trainer| {
        let root = member.folder.join("checkpoints");
        let saved = save(trainer, 0, &root);
        load(trainer, 1, &root);
        assert_eq!(save(trainer, 2, &member.folder.join("again")), saved);
    });
}

#[test]
fn rank_stopped_while_it_reads_is_noticed() {
    const NAME: &str = "train::tests::ranks::held::rank_stopped_while_it_reads_is_noticed";
    let Some(member) = Member::here() else {
        let folder = tempfile::tempdir().unwrap();
        return Started::armed(NAME, 2, folder.path(), "together.begun/1=stop").succeeds(0);
    };
    let mut trainer = rank(&member, options(false));
    assert!(trainer.ranks.ended().is_some(), "rank 0 met a rank that was stopped");
    let error = trainer.take_reference().unwrap_err();
    assert!(matches!(error, TrainError::Ended(_)), "{error}");
}

/// Rank 1 lags behind by less than the timeout in each pass, and by far more in a batch.
fn slow(test: &str, options: TrainerOptions) {
    let Some(member) = Member::here() else {
        let folder = tempfile::tempdir().unwrap();
        return Started::armed(test, 2, folder.path(), "pass.begun/1=sleep(600)").succeed();
    };
    tch::set_num_threads(1);
    let options = TrainerOptions {
        micro_batch_tokens: 1,
        keep_reference: true,
        ..options
    };
    let mut trainer = rank(&member, options);
    drive(&member, &mut trainer, |trainer| {
        let version = WeightVersion { lineage: 1, step: 0 };
        trainer.execute(TrainCommand::Publish { seq: 0, version }).unwrap();
        let (seq, loss) = (3, POLICY);
        for (seq, weights) in [(1, ForwardWeights::Reference), (2, ForwardWeights::Trained)] {
            let batch = batch(0);
            trainer.execute(TrainCommand::Forward { seq, batch, weights }).unwrap();
        }
        let batch = batch(0);
        trainer
            .execute(TrainCommand::ForwardBackward { seq, batch, loss })
            .unwrap();
    });
}

#[test]
fn slow_rank_with_a_whole_state_is_not_taken_for_a_lost_one() {
    slow(
        "train::tests::ranks::held::slow_rank_with_a_whole_state_is_not_taken_for_a_lost_one",
        options(false),
    );
}

#[test]
fn slow_rank_with_a_split_gradient_is_not_taken_for_a_lost_one() {
    slow(
        "train::tests::ranks::held::slow_rank_with_a_split_gradient_is_not_taken_for_a_lost_one",
        by_gradient(),
    );
}
