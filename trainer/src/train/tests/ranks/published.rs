//! Published weights have the bits of the trained ones, however ranks split them.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

use broker::ids::WeightVersion;
use broker::protocol::engine::StateId;
use tch::Device;

use super::checkpoints::save;
use super::*;
use crate::model::{ParamSource, kind_of, peft};
use crate::train::compute_weights::ComputeWeights;
use crate::train::tests::{TrainCommand, train, user};
use crate::train::{TrainError, TrainerClient};
use crate::transfer::{Form, Offer, Shelf, ShelfSink};
use crate::weights::disk::{DiskSink, Written};
use crate::weights::{MemorySink, Published, SinkError, WeightSink};

/// The places where a trainer's three kinds of sinks put the weights.
struct Served {
    dtype: Dtype,
    memory: Receiver<Published>,
    written: Receiver<Written>,
    shelf: Arc<Shelf>,
    announced: Receiver<StateId>,
}

impl Served {
    fn by(trainer: &mut Trainer, folder: &Path) -> Self {
        let dtype = trainer.options.dtype;
        let (deliver, memory) = channel();
        let (write, written) = channel();
        let (announce, announced) = channel();
        let deliver = Box::new(move |published| deliver.send(published).is_ok());
        trainer.add_sink(Box::new(MemorySink::of(Device::Cpu, dtype, deliver)));
        let write = Box::new(move |one| write.send(one).unwrap());
        let disk = DiskSink::new(folder, shape(false), dtype, "base".into(), write, Box::new(|| None));
        trainer.add_sink(Box::new(disk.unwrap()));
        let (form, shelf) = (Form::of(&trainer.layout, dtype, None), Arc::<Shelf>::default());
        let announce = Box::new(move |id| announce.send(id).unwrap());
        trainer.add_sink(Box::new(
            ShelfSink::start("test", form, shelf.clone(), announce).unwrap(),
        ));
        Self {
            dtype,
            memory,
            written,
            shelf,
            announced,
        }
    }

    /// Checks that each sink has published these weights (f32), in the engine's dtype.
    fn check(&self, trained: &Weights, name: &str) {
        let kind = kind_of(self.dtype);
        let expected = trained.copied(Device::Cpu, kind).unwrap();
        let published = self.memory.recv().unwrap();
        let digest = expected.digest().unwrap();
        assert_eq!(published.weights().unwrap().digest().unwrap(), digest, "memory, {name}");
        let written = self.written.recv().unwrap();
        let (read, digest) = if written.adapter {
            let read = peft::load(&written.folder, &shape(false)).unwrap().1;
            (read, trained.digest().unwrap())
        } else {
            let read = Weights::load_as(&shape(false), &written.folder, Device::Cpu, self.dtype);
            (read.unwrap(), digest)
        };
        assert_eq!(read.digest().unwrap(), digest, "disk, {name}");
        assert_eq!(written.digest, digest, "disk's digest, {name}");
        self.announced.recv().unwrap();
        let Offer::Messages { parts, .. } = self.shelf.offer(None, false) else {
            panic!("nothing on the shelf, {name}")
        };
        let all = 0..expected.layout().numel() as i64;
        assert!(
            parts[1].as_ref() == expected.bytes(&all, kind).unwrap(),
            "shelf, {name}"
        );
    }
}

fn publish(trainer: &mut Trainer, seq: u64, step: u64) -> Result<(), TrainError> {
    let version = WeightVersion { lineage: 1, step };
    trainer.execute(TrainCommand::Publish { seq, version }).map(drop)
}

/// The weights in the newest checkpoint.
fn saved(trainer: &mut Trainer, seq: u64, root: &Path) -> Weights {
    save(trainer, seq, root);
    let folder = crate::checkpoint::find(root, false).unwrap().folder;
    match trainer.layout.lora() {
        Some(_) => peft::load(&folder, &shape(false)).unwrap().1,
        None => Weights::load(&shape(false), &folder).unwrap(),
    }
}

/// Publishes the first weights and trained ones.
fn play(trainer: &mut Trainer, first: &Weights, folder: &Path, name: &str) {
    let served = Served::by(trainer, &folder.join("weights"));
    publish(trainer, 1, 0).unwrap();
    served.check(first, name);
    train(trainer, 1);
    publish(trainer, 4, 1).unwrap();
    let trained = saved(trainer, 5, &folder.join("checkpoints"));
    assert_ne!(trained.digest().unwrap(), first.digest().unwrap());
    served.check(&trained, name);
}

/// Runs `play` with trainers of all kinds, as ranks of `member`.
fn in_all_ways(member: &Member, play: impl Fn(&mut Trainer, &Weights, &Path, &str)) {
    tch::set_num_threads(1);
    for (trains, dtype) in BOTH
        .into_iter()
        .flat_map(|trains| [(trains, Dtype::F32), (trains, Dtype::Bf16)])
    {
        let mut ways = vec![options(false), options(true), by_gradient()];
        ways.extend((trains == Trains::Whole).then(fully));
        for options in ways {
            let name = format!("{trains:?}-{dtype:?}-{:?}", options.shard);
            let mut trainer = rank_of(member, &name, trains, TrainerOptions { dtype, ..options });
            let (_, first) = weights(trains, dtype);
            drive(member, &mut trainer, |trainer| {
                play(trainer, &first, &member.folder.join(&name), &name);
            });
        }
    }
}

#[test]
fn published_bits_are_those_of_one_rank_alone() {
    const NAME: &str = "train::tests::ranks::published::published_bits_are_those_of_one_rank_alone";
    let Some(member) = Member::here() else {
        for dtype in [Dtype::F32, Dtype::Bf16] {
            let folder = tempfile::tempdir().unwrap();
            let mut one = alone(Trains::Whole, TrainerOptions { dtype, ..fully() });
            play(&mut one, &weights(Trains::Whole, dtype).1, folder.path(), "alone");
        }
        return [2, 3].into_iter().for_each(|ranks| in_ranks(NAME, ranks));
    };
    in_all_ways(&member, play);
}

/// A sink that ends in the middle of its first publication.
struct EndsOnce(bool);

impl WeightSink for EndsOnce {
    fn publish(&mut self, weights: &dyn ParamSource, version: WeightVersion) -> Result<(), SinkError> {
        if std::mem::replace(&mut self.0, true) {
            return Ok(());
        }
        let half = weights.layout().numel() as i64 / 2;
        weights.bytes(&(0..half), weights.kind()).unwrap();
        Err(SinkError::Closed { version })
    }
}

#[test]
fn sink_that_fails_in_the_middle_leaves_the_ranks_in_step() {
    const NAME: &str = "train::tests::ranks::published::sink_that_fails_in_the_middle_leaves_the_ranks_in_step";
    let Some(member) = Member::here() else {
        return [2, 3].into_iter().for_each(|ranks| in_ranks(NAME, ranks));
    };
    in_all_ways(&member, |trainer, first, folder, name| {
        trainer.add_sink(Box::new(EndsOnce(false)));
        let error = publish(trainer, 0, 0).unwrap_err();
        assert!(matches!(&error, TrainError::Transient { .. }), "{error}");
        assert!(error.to_string().contains("the engine is gone"), "{error}");
        assert_eq!(trainer.version(), None);
        play(trainer, first, folder, name);
    });
}

#[test]
fn value_of_a_later_rank_that_is_not_finite_is_named() {
    const NAME: &str = "train::tests::ranks::published::value_of_a_later_rank_that_is_not_finite_is_named";
    let Some(member) = Member::here() else {
        return in_ranks(NAME, 3);
    };
    let mut trainer = rank_of(&member, "group", Trains::Whole, fully());
    let ComputeWeights::Window { own, .. } = &trainer.computing else {
        panic!("each rank has all weights")
    };
    // The last rank has a value of a later parameter, which is not named.
    let place = [
        own.size()[0] - 1,
        trainer.parts.cuts()[1].place,
        trainer.parts.cuts()[0].place,
    ];
    let _ = own.narrow(0, place[member.rank], 1).fill_(f64::NAN);
    drive(&member, &mut trainer, |trainer| {
        let served = Served::by(trainer, &member.folder.join("weights"));
        let error = user(publish(trainer, 0, 0).unwrap_err());
        assert!(error.contains("model.embed_tokens.weight"), "{error}");
        assert!(served.memory.try_recv().is_err(), "nothing is published");
    });
}
