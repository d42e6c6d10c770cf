//! The memory that a rank takes when it begins.

use broker::ids::WeightVersion;
use broker::protocol::train::{ForwardWeights, TrainCommand};
use tch::{Device, Kind, Tensor};

use super::*;
use crate::collective::Collective;
use crate::collective::tests::{megabytes, peak_of, reset_peak};
use crate::model::{ModelShape, ParamSource, StoredParams};
use crate::train::TrainerClient;
use crate::train::tests::batch;
use crate::weights::MemorySink;
use crate::weights::disk::DiskSink;

/// Returns a shape with 59 MB of layers, and little else.
pub(super) fn large() -> ModelShape {
    ModelShape {
        layers: 4,
        hidden: 512,
        head_dim: 64,
        intermediate: 2048,
        ..shape(false)
    }
}

/// Each of two ranks holds half of the masters, moments and weights: 112 MB. Its half of the
/// gradient and one layer's gradient, 42 MB, must reuse the memory of the whole weights that it
/// read.
#[test]
fn whole_weights_are_gone_before_the_gradient_is_there() {
    let Some(member) = Member::here() else {
        return in_ranks(
            "train::tests::ranks::memory::whole_weights_are_gone_before_the_gradient_is_there",
            2,
        );
    };
    let weights = Weights::random(&large(), INIT, 1).unwrap();
    let before = reset_peak();
    let group = Box::new(member.join("group", TIMEOUT));
    let trainer = Trainer::in_group(group, large(), None, weights, fully()).unwrap();
    let more = megabytes("VmHWM").saturating_sub(before);
    assert!((100..160).contains(&more), "{more} MB");
    drop(trainer);
    // Waits for the other rank: one that ends at once would be lost before the other meets it.
    member.join("end", TIMEOUT).barrier().unwrap();
}

/// Rank 0 of two has a block of 16 MB at a time. The whole model has 59 MB. The engine has its copy
/// before, and gives it back.
#[test]
fn split_weights_are_published_without_a_copy_of_all() {
    let Some(member) = Member::here() else {
        let name = "train::tests::ranks::memory::split_weights_are_published_without_a_copy_of_all";
        return in_ranks(name, 2);
    };
    let group = Box::new(member.join("group", TIMEOUT));
    let weights = Weights::random(&large(), INIT, 1).unwrap();
    let mut trainer = Trainer::in_group(group, large(), None, weights, fully()).unwrap();
    drive(&member, &mut trainer, |trainer| {
        let engine = MemorySink::of(Device::Cpu, Dtype::F32, Box::new(|_| true));
        trainer.add_sink(Box::new(engine));
        let (announce, oldest) = (Box::new(|_| {}), Box::new(|| None));
        let disk = DiskSink::new(&member.folder, large(), Dtype::F32, String::new(), announce, oldest);
        trainer.add_sink(Box::new(disk.unwrap()));
        let mut step = 0;
        let more = peak_of(|| {
            step += 1;
            let version = WeightVersion { lineage: 1, step };
            trainer.execute(TrainCommand::Publish { seq: step, version }).unwrap();
        });
        assert!(more < 40, "{more} MB");
    });
}

/// The model has 236 MB of layers. Each of two ranks holds half of them as its reference, and one
/// layer of 15 MB.
#[test]
fn reference_of_split_weights_is_split_too() {
    let Some(member) = Member::here() else {
        let name = "train::tests::ranks::memory::reference_of_split_weights_is_split_too";
        return in_ranks(name, 2);
    };
    let shape = ModelShape { layers: 16, ..large() };
    let group = Box::new(member.join("group", TIMEOUT));
    let weights = Weights::random(&shape, INIT, 1).unwrap();
    let mut trainer = Trainer::in_group(group, shape, None, weights, fully()).unwrap();
    drive(&member, &mut trainer, |trainer| {
        let forward = |seq, weights, trainer: &mut Trainer| {
            let batch = batch(0);
            trainer.execute(TrainCommand::Forward { seq, batch, weights }).unwrap();
        };
        // The first pass takes memory that the process keeps, so it runs before the measurement.
        forward(1, ForwardWeights::Trained, trainer);
        let before = reset_peak();
        trainer.take_reference().unwrap();
        forward(2, ForwardWeights::Reference, trainer);
        let more = megabytes("VmHWM").saturating_sub(before);
        assert!(more < 190, "{more} MB");
    });
}

/// The model has 59 MB. Its largest tensor, 4 MB, is in memory while its values are checked.
#[test]
fn part_of_a_stored_model_needs_no_memory_for_the_rest() {
    let Some(_) = Member::here() else {
        let name = "train::tests::ranks::memory::part_of_a_stored_model_needs_no_memory_for_the_rest";
        return in_ranks(name, 1);
    };
    let folder = tempfile::tempdir().unwrap();
    let whole = Weights::random(&large(), INIT, 1).unwrap();
    whole.save(&large(), folder.path()).unwrap();
    let quarter = whole.layout().numel() as i64 / 4;
    let own = Tensor::zeros([quarter], (Kind::Float, Device::Cpu));
    let more = peak_of(|| {
        let stored = StoredParams::of_model(&large(), folder.path(), Kind::Float).unwrap();
        stored.copy(&(quarter..2 * quarter), &own).unwrap();
    });
    assert!(more < 20, "{more} MB");
    assert!(own.equal(&whole.flat().narrow(0, quarter, quarter)));
}

/// A checkpoint has 59 MB of weights and 118 MB of moments.
#[test]
fn loading_a_checkpoint_takes_no_second_state() {
    let Some(_) = Member::here() else {
        let name = "train::tests::ranks::memory::loading_a_checkpoint_takes_no_second_state";
        return in_ranks(name, 1);
    };
    let folder = tempfile::tempdir().unwrap();
    let whole = Weights::random(&large(), INIT, 1).unwrap();
    let mut trainer = Trainer::new(large(), whole, options(false)).unwrap();
    let path = folder.path().display().to_string();
    let mut run = |command| trainer.execute(command).unwrap();
    run(TrainCommand::SaveState {
        seq: 1,
        path: path.clone(),
        meta: "{}".into(),
    });
    let more = peak_of(|| {
        let path = path.clone();
        run(TrainCommand::LoadState { seq: 2, path });
    });
    assert!(more < 20, "{more} MB");
}
