//! A reference policy that the ranks split gives the same bits as a whole one.

use std::path::Path;

use broker::ids::WeightVersion;
use broker::protocol::train::{ForwardWeights, Kl, LossStats, M2poMode, M2poScope, Policy, Surrogate};

use super::checkpoints::{load, save};
use super::*;
use crate::train::tests::{Loss, OPTIM, TrainCommand, TrainReply, batch, loss_of};
use crate::train::{EmaOptions, TrainerClient};

/// The figures of a run.
#[derive(Debug, PartialEq)]
struct Figures {
    stats: Vec<LossStats>,
    norms: Vec<f64>,
    logprobs: Vec<Vec<Vec<f32>>>,
}

/// Losses with a KL term: of single tokens, of a micro-batch, and of the whole minibatch, which
/// computes the reference in a pass without gradients.
fn losses() -> [Loss; 3] {
    let with = |surrogate| {
        Loss::Policy(Policy {
            surrogate,
            kl: Kl::K3,
            kl_coef: 0.1,
            ..Policy::clipped(0.2, 0.28)
        })
    };
    let m2po = |scope| Surrogate::M2po {
        mode: M2poMode::Clip,
        budget: 0.3,
        scope,
    };
    let clipped = Surrogate::Clipped {
        low: 0.2,
        high: 0.28,
        dual: None,
    };
    [clipped, m2po(M2poScope::Microbatch), m2po(M2poScope::Minibatch)].map(with)
}

fn publish(trainer: &mut Trainer, seq: u64, step: u64) {
    let version = WeightVersion { lineage: 1, step };
    trainer.execute(TrainCommand::Publish { seq, version }).unwrap();
}

/// Trains with the KL term and looks at the log-probs under the reference policy.
fn train(trainer: &mut Trainer, first: u64, figures: &mut Figures) {
    for (seq, loss) in (first..).step_by(3).zip(losses()) {
        let (batch, weights) = (batch(seq as u32), ForwardWeights::Reference);
        let of = batch.clone();
        let reply = trainer.execute(TrainCommand::ForwardBackward { seq, batch, loss });
        figures.stats.push(loss_of(reply.unwrap()));
        let (seq, params) = (seq + 1, OPTIM);
        let stepped = trainer.execute(TrainCommand::OptimStep { seq, params }).unwrap();
        let TrainReply::Step { grad_norm, .. } = stepped else {
            panic!("{stepped:?}");
        };
        figures.norms.push(grad_norm);
        let (seq, batch) = (seq + 1, of);
        let reply = trainer.execute(TrainCommand::Forward { seq, batch, weights }).unwrap();
        let TrainReply::LogProbs(logprobs) = reply else {
            panic!("{reply:?}");
        };
        figures.logprobs.push(logprobs);
    }
}

/// Trains from version 0, and again from a checkpoint. Returns the figures and the digests of the
/// checkpoint's files.
fn play(trainer: &mut Trainer, root: &Path) -> (Figures, Vec<String>) {
    let mut figures = Figures {
        stats: Vec::new(),
        norms: Vec::new(),
        logprobs: Vec::new(),
    };
    // The warm start moves the weights before version 0, and version 0 is the reference.
    let (seq, loss) = (1, Loss::CrossEntropy);
    let batch = batch(9);
    trainer
        .execute(TrainCommand::ForwardBackward { seq, batch, loss })
        .unwrap();
    let (seq, params) = (2, OPTIM);
    trainer.execute(TrainCommand::OptimStep { seq, params }).unwrap();
    publish(trainer, 3, 0);
    train(trainer, 4, &mut figures);
    publish(trainer, 13, 1);
    save(trainer, 14, root);
    load(trainer, 15, root);
    train(trainer, 16, &mut figures);
    (figures, files(root))
}

/// The digests of the weights, and of the reference if it has files.
fn files(root: &Path) -> Vec<String> {
    let folder = crate::checkpoint::find(root, false).unwrap().folder;
    let folders = [folder.clone(), folder.join("reference")];
    let there = folders.iter().filter(|folder| folder.exists());
    let digest = |folder| Weights::load(&shape(false), folder).unwrap().digest().unwrap();
    there.map(|folder| digest(folder).to_hex().to_string()).collect()
}

fn ways() -> Vec<(String, TrainerOptions)> {
    let average = EmaOptions {
        decay: 0.75,
        is_reference: true,
    };
    let mut ways = Vec::new();
    for dtype in [Dtype::F32, Dtype::Bf16] {
        for ema in [None, Some(average)] {
            // With the second budget all rows are one micro-batch, and only rank 0 computes.
            for micro_batch_tokens in [BUDGET, 1000] {
                let options = TrainerOptions {
                    dtype,
                    ema,
                    micro_batch_tokens,
                    keep_reference: true,
                    ..by_gradient()
                };
                ways.push((format!("{dtype:?}-{}-{micro_batch_tokens}", ema.is_some()), options));
            }
        }
    }
    ways
}

#[test]
fn split_reference_has_the_bits_of_a_whole_one() {
    const NAME: &str = "train::tests::ranks::reference::split_reference_has_the_bits_of_a_whole_one";
    let Some(member) = Member::here() else {
        return in_ranks(NAME, 2);
    };
    tch::set_num_threads(1);
    for (name, options) in ways() {
        let mut played = Vec::new();
        for shard in [Shard::Gradient, Shard::Full] {
            let options = TrainerOptions {
                shard,
                ..options.clone()
            };
            let name = format!("{name}-{shard:?}");
            let mut trainer = rank_of(&member, &name, Trains::Whole, options);
            drive(&member, &mut trainer, |trainer| {
                played.push(play(trainer, &member.folder.join(&name)));
            });
        }
        let [whole, split] = played.as_slice() else { continue };
        assert_eq!(whole, split, "{name}");
        // At version 0 the policy is its own reference.
        let kl = split.0.stats.iter().skip(1).map(|stats| stats.reference_kl);
        assert!(kl.clone().all(|kl| kl > 0.0), "{name}: {:?}", kl.collect::<Vec<_>>());
        let mut one = alone(Trains::Whole, options);
        let (want, _) = play(&mut one, &member.folder.join(format!("{name}-alone")));
        for (got, want) in split.0.norms.iter().zip(&want.norms) {
            assert!((got / want - 1.0).abs() <= 1e-4, "{name}: {got} {want}");
        }
    }
}

/// A checkpoint of two ranks, read by three and by one.
#[test]
fn checkpoint_with_a_split_reference_is_read_by_any_number_of_ranks() {
    const NAME: &str =
        "train::tests::ranks::reference::checkpoint_with_a_split_reference_is_read_by_any_number_of_ranks";
    let Some(member) = Member::here() else {
        let folder = tempfile::tempdir().unwrap();
        for ranks in [2, 3] {
            crate::collective::tests::Started::new(NAME, ranks, folder.path()).succeed();
        }
        return;
    };
    tch::set_num_threads(1);
    let options = TrainerOptions {
        keep_reference: true,
        ..fully()
    };
    let root = member.folder.join("checkpoints");
    let group = format!("of-{}", member.ranks);
    let mut trainer = rank_of(&member, &group, Trains::Whole, options.clone());
    let logprobs = |trainer: &mut Trainer, seq| {
        let (batch, weights) = (batch(0), ForwardWeights::Reference);
        let reply = trainer.execute(TrainCommand::Forward { seq, batch, weights }).unwrap();
        format!("{reply:?}")
    };
    let noted = member.folder.join("logprobs");
    drive(&member, &mut trainer, |trainer| {
        if member.ranks == 2 {
            play(trainer, &root);
            std::fs::write(&noted, logprobs(trainer, 25)).unwrap();
            let mut one = alone(Trains::Whole, options);
            load(&mut one, 1, &root);
            assert_eq!(logprobs(&mut one, 2), std::fs::read_to_string(&noted).unwrap());
        } else {
            load(trainer, 1, &root);
            assert_eq!(logprobs(trainer, 2), std::fs::read_to_string(&noted).unwrap());
            let again = member.folder.join("again");
            save(trainer, 3, &again);
            assert_eq!(files(&again), files(&root));
        }
    });
}

/// A bf16 base on a CPU has an f32 copy of its head.
#[test]
fn reference_of_an_adapter_shares_the_copy_of_its_base_head() {
    let options = TrainerOptions {
        dtype: Dtype::Bf16,
        ..options(false)
    };
    let mut trainer = alone(Trains::Adapter, options);
    trainer.take_reference().unwrap();
    let reference = &trainer.reference.as_ref().unwrap().decoder;
    let own = trainer.model.decoder();
    assert_eq!(reference.head_weight().data_ptr(), own.head_weight().data_ptr());
}
