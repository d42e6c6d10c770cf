//! All ranks agree: on bits, on refusals, on failures and on skipped steps.

use broker::ids::WeightVersion;
use broker::protocol::train::SampleParams;
use configs::Offload;

use super::*;
use crate::collective::Collective;
use crate::train::EmaOptions;
use crate::train::stop::Stop;
use crate::train::tests::{Loss, TrainCommand, TrainReply, batch, digest, train, user};
use crate::train::{TrainError, TrainerClient};

/// Trains for a few steps, with signs of life between them, and returns this rank's weights and
/// moments.
fn run(member: &Member, name: &str, options: TrainerOptions) -> (String, Vec<f32>) {
    let mut trainer = rank_of(member, name, Trains::Whole, options);
    drive(member, &mut trainer, |trainer| {
        assert_eq!(trainer.sign_every(), Some(TIMEOUT / 2));
        for round in 0..3 {
            train(trainer, round);
            trainer.sign();
        }
    });
    let moments = trainer.whole_moments();
    let moments = moments.map_or(Vec::new(), |both| Vec::try_from(tch::Tensor::cat(&both, 0)).unwrap());
    (digest(&trainer), moments)
}

#[test]
fn same_bits_again_and_with_the_optimizer_in_parts() {
    let Some(member) = Member::here() else {
        return in_ranks(
            "train::tests::ranks::together::same_bits_again_and_with_the_optimizer_in_parts",
            2,
        );
    };
    tch::set_num_threads(1);
    let first = run(&member, "first", options(false));
    assert_eq!(first, run(&member, "again", options(false)));
    let offloaded = |sharded| TrainerOptions {
        offload: Offload::Optimizer,
        ..options(sharded)
    };
    for (name, options) in [
        ("parts", options(true)),
        ("host", offloaded(false)),
        ("parts-host", offloaded(true)),
    ] {
        let other = run(&member, name, options);
        assert_eq!(first.0, other.0, "weights, {name}");
        // Rank 0 alone gets the moments of all parts.
        assert!(member.rank > 0 || first.1 == other.1, "moments, {name}");
    }
    let other = exchange(&member, "weights", &first.0);
    assert_eq!(first.0, other, "every rank has the same weights");
    let split = run(&member, "split", by_gradient());
    assert_eq!(split, run(&member, "split-again", by_gradient()));
    assert_eq!(exchange(&member, "split-weights", &split.0), split.0);
    let full = run(&member, "full", fully());
    assert_eq!(full, run(&member, "full-again", fully()));
    assert_eq!(full.1, split.1, "moments of split and of whole weights");
}

#[test]
fn split_weights_are_sampled_as_whole_ones() {
    let Some(member) = Member::here() else {
        return in_ranks(
            "train::tests::ranks::together::split_weights_are_sampled_as_whole_ones",
            2,
        );
    };
    tch::set_num_threads(1);
    for dtype in [configs::Dtype::F32, configs::Dtype::Bf16] {
        let with = |options: TrainerOptions| TrainerOptions { dtype, ..options };
        let mut sampled = Vec::new();
        for (name, options) in [("whole", by_gradient()), ("split", fully())] {
            let name = format!("{name}-{dtype:?}");
            let mut trainer = rank_of(&member, &name, Trains::Whole, with(options));
            drive(&member, &mut trainer, |trainer| {
                (0..3).for_each(|round| train(trainer, round));
                sampled.push(sample(trainer, 6));
            });
        }
        assert!(member.rank > 0 || sampled[0] == sampled[1], "{dtype:?}");
    }
}

/// Writes what this rank has, and returns what the other one has.
fn exchange(member: &Member, name: &str, own: &str) -> String {
    let path = |rank: usize| member.folder.join(format!("{name}-{rank}"));
    std::fs::write(path(member.rank), own).unwrap();
    // Waits: a rank that leaves at once is gone before the other has met it.
    member.join(name, TIMEOUT).barrier().unwrap();
    std::fs::read_to_string(path(1 - member.rank)).unwrap()
}

#[test]
fn average_reference_and_samples_follow_on_every_rank() {
    let Some(member) = Member::here() else {
        return in_ranks(
            "train::tests::ranks::together::average_reference_and_samples_follow_on_every_rank",
            2,
        );
    };
    tch::set_num_threads(1);
    let options = TrainerOptions {
        keep_reference: true,
        ema: Some(EmaOptions {
            decay: 0.9,
            is_reference: true,
        }),
        ..options(true)
    };
    let play = |trainer: &mut Trainer| {
        let version = WeightVersion { lineage: 1, step: 0 };
        trainer.execute(TrainCommand::Publish { seq: 1, version }).unwrap();
        (1..4).for_each(|round| train(trainer, round));
        sample(trainer, 8)
    };
    let mut ranks = rank_of(&member, "group", Trains::Whole, options.clone());
    let mut sampled = None;
    drive(&member, &mut ranks, |trainer| sampled = Some(play(trainer)));
    let of = |weights: &Weights| weights.digest().unwrap().to_hex().to_string();
    let reference = of(&ranks.reference.as_ref().unwrap().weights);
    assert_ne!(reference, digest(&ranks), "it moves behind the weights");
    assert_eq!(exchange(&member, "reference", &reference), reference);
    if let Some(sampled) = sampled {
        let mut one = alone(Trains::Whole, options);
        assert_eq!(sampled, play(&mut one));
        let (all, own) = (one.average().unwrap(), ranks.owned.average.as_ref().unwrap());
        let gap = (own - all.flat().narrow(0, 0, own.size()[0]))
            .abs()
            .max()
            .double_value(&[]);
        assert!(gap < 1e-5, "{gap}");
    }
}

fn sample(trainer: &mut Trainer, seq: u64) -> Vec<Vec<u32>> {
    let (prompts, params) = (vec![vec![3, 5], vec![7]], greedy());
    let sample = TrainCommand::Sample { seq, prompts, params };
    match trainer.execute(sample).unwrap() {
        TrainReply::Samples { answers, .. } => answers.into_iter().map(|answer| answer.ids).collect(),
        other => panic!("{other:?}"),
    }
}

fn greedy() -> SampleParams {
    SampleParams {
        temperature: 0.0,
        top_p: 1.0,
        top_k: 0,
        min_p: 0.0,
        max_new_tokens: 4,
        stop_ids: vec![],
        seed: 1,
    }
}

#[test]
fn refusals_and_bad_gradients_are_the_same_on_all() {
    let Some(member) = Member::here() else {
        return in_ranks(
            "train::tests::ranks::together::refusals_and_bad_gradients_are_the_same_on_all",
            2,
        );
    };
    tch::set_num_threads(1);
    let mut trainer = rank_of(&member, "group", Trains::Whole, options(true));
    let before = digest(&trainer);
    drive(&member, &mut trainer, |trainer| {
        let mut bad = batch(0);
        bad.spans[1].temperature = 0.0;
        let refused = trainer.execute(TrainCommand::ForwardBackward {
            seq: 0,
            batch: bad,
            loss: Loss::CrossEntropy,
        });
        assert!(user(refused.unwrap_err()).contains("temperature"));
        // Only one micro-batch has the weight that makes the gradient infinite.
        let mut huge = batch(0);
        huge.spans[1].weight = f32::MAX;
        let (batch, loss) = (huge, Loss::CrossEntropy);
        trainer
            .execute(TrainCommand::ForwardBackward { seq: 0, batch, loss })
            .unwrap();
        let params = crate::train::tests::OPTIM;
        let reply = trainer.execute(TrainCommand::OptimStep { seq: 1, params }).unwrap();
        assert!(matches!(reply, TrainReply::Step { skipped: true, .. }), "{reply:?}");
    });
    assert_eq!(
        (digest(&trainer), trainer.skipped_steps()),
        (before, 1),
        "on every rank"
    );
}

#[test]
fn failure_of_one_rank_is_the_failure_of_all() {
    let Some(member) = Member::here() else {
        return in_ranks(
            "train::tests::ranks::together::failure_of_one_rank_is_the_failure_of_all",
            2,
        );
    };
    let trainer = rank_of(&member, "group", Trains::Whole, options(false));
    let one_fails = || match member.rank {
        1 => Err(Stop::Failed("the disk is full".into())),
        _ => Ok(()),
    };
    let outcome = trainer.ranks.settle(one_fails(), false);
    assert!(matches!(&outcome, Err(Stop::Failed(reason)) if reason.contains("the disk is full")));
    let outcome = trainer.ranks.settle(one_fails(), true);
    assert!(
        matches!(&outcome, Err(Stop::Broken(reason)) if reason == "rank 1: the disk is full"),
        "ranks that differ are of no use"
    );
    let sums = trainer.sum_stats(match member.rank {
        1 => Err(crate::model::ModelError::EmptyBatch),
        _ => Ok(broker::protocol::train::LossStats::default()),
    });
    assert!(sums.is_err(), "on both ranks");
}

#[test]
fn lost_rank_ends_the_trainer_for_good() {
    let Some(member) = Member::here() else {
        return in_ranks("train::tests::ranks::together::lost_rank_ends_the_trainer_for_good", 2);
    };
    let mut trainer = rank_of(&member, "group", Trains::Whole, options(true));
    if member.rank == 1 {
        return;
    }
    for _ in 0..2 {
        let path = member.folder.display().to_string();
        let error = trainer.execute(TrainCommand::LoadState { seq: 0, path }).unwrap_err();
        assert!(matches!(error, TrainError::Ended(_)), "{error}");
        assert!(error.to_string().contains("start all ranks again"), "{error}");
    }
}
