//! An external trainer gives the same results as the built-in one.

mod built_in;
mod fsdp2;

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use broker::protocol::train::{
    ForwardWeights, Kl, Loss, LossStats, M2poMode, M2poScope, Policy, RoleLoss, Surrogate, TrainBatch,
};

use super::messages::WireRow;
use super::*;
use crate::model::{Init, ParamSource, Weights};
use crate::train::Trainer;

pub(super) const INIT: Init = Init {
    embedding_std: 1.0,
    matrix_std: 0.2,
};

pub(super) use crate::train::tests::OPTIM as STEP;

/// A loss with every term that an external trainer knows.
pub(super) const LOSS: Loss = Loss::Policy(Policy {
    kl: Kl::K3,
    kl_coef: 0.1,
    entropy_coef: 0.02,
    ..Policy::clipped(0.2, 0.28)
});

/// A sink that keeps the digest of the published weights.
#[derive(Clone, Default)]
pub(super) struct Seen(Arc<Mutex<String>>);

impl Seen {
    pub(super) fn digest(&self) -> String {
        self.0.lock().unwrap().clone()
    }
}

impl WeightSink for Seen {
    fn publish(&mut self, weights: &dyn ParamSource, _: WeightVersion) -> Result<(), crate::weights::SinkError> {
        *self.0.lock().unwrap() = weights.digest_as(weights.kind()).unwrap().to_hex().to_string();
        Ok(())
    }
}

/// Returns the largest gap between two measurements, relative where they are above 0.01.
pub(super) fn apart(a: &LossStats, b: &LossStats) -> f64 {
    let fields = |stats: &LossStats| {
        let sums = [
            stats.loss,
            stats.tokens,
            stats.ratio,
            stats.clipped,
            stats.entropy,
            stats.behaviour_kl,
        ];
        let of_role = |role: &RoleLoss| [role.ratio, role.entropy, role.largest_ratio, role.off_policy_gap];
        let roles = stats.by_role.iter().flat_map(of_role);
        let more = [stats.reference_kl, stats.on_policy_gap, stats.off_policy_gap];
        sums.into_iter().chain(more).chain(roles).collect::<Vec<f64>>()
    };
    let (a, b) = (fields(a), fields(b));
    assert_eq!(a.len(), b.len());
    let gaps = a.iter().zip(&b).map(|(a, b)| (a - b).abs() / a.abs().max(0.01));
    gaps.fold(0.0, f64::max)
}

/// Sends commands in order.
pub(super) struct Driver<T> {
    pub(super) trainer: T,
    pub(super) seq: u64,
}

impl<T: TrainerClient> Driver<T> {
    pub(super) fn new(trainer: T) -> Self {
        Self { trainer, seq: 0 }
    }

    pub(super) fn execute(&mut self, command: impl FnOnce(u64) -> TrainCommand) -> Result<TrainReply, TrainError> {
        self.seq += 1;
        let reply = self.trainer.execute(command(self.seq));
        if reply.is_err() {
            self.seq -= 1;
        }
        reply
    }

    pub(super) fn publish(&mut self, step: u64) {
        let version = WeightVersion { lineage: 1, step };
        self.execute(|seq| TrainCommand::Publish { seq, version }).unwrap();
    }

    pub(super) fn loss(&mut self, batch: &TrainBatch, loss: Loss) -> Result<LossStats, TrainError> {
        let batch = batch.clone();
        match self.execute(|seq| TrainCommand::ForwardBackward { seq, batch, loss })? {
            TrainReply::Loss(stats) => Ok(stats),
            other => panic!("{other:?}"),
        }
    }

    /// Returns the norm of the gradient.
    pub(super) fn step(&mut self, params: OptimStep) -> f64 {
        match self.execute(|seq| TrainCommand::OptimStep { seq, params }).unwrap() {
            TrainReply::Step {
                grad_norm,
                skipped: false,
            } => grad_norm,
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn logprobs(&mut self, batch: &TrainBatch, weights: ForwardWeights) -> Vec<Vec<f32>> {
        let batch = batch.clone();
        match self
            .execute(|seq| TrainCommand::Forward { seq, batch, weights })
            .unwrap()
        {
            TrainReply::LogProbs(logprobs) => logprobs,
            other => panic!("{other:?}"),
        }
    }

    /// Returns the digest of the checkpoint.
    pub(super) fn save(&mut self, root: &Path) -> String {
        let (path, meta) = (root.display().to_string(), "{}".to_owned());
        match self.execute(|seq| TrainCommand::SaveState { seq, path, meta }).unwrap() {
            TrainReply::Saved { digest } => digest,
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn load(&mut self, root: &Path) {
        let path = root.display().to_string();
        self.execute(|seq| TrainCommand::LoadState { seq, path }).unwrap();
    }
}

pub(super) fn options() -> TrainerOptions {
    TrainerOptions {
        keep_reference: true,
        ..TrainerOptions::default()
    }
}

fn shape() -> ModelShape {
    crate::model::test_shape()
}

/// Returns the built-in trainer, and an equal one behind the wire.
fn pair(folder: &Path) -> (Driver<Trainer>, Driver<External>) {
    let built_in = || Trainer::new(shape(), Weights::random(&shape(), INIT, 1).unwrap(), options()).unwrap();
    let (ours, theirs) = UnixStream::pair().unwrap();
    std::thread::spawn(move || built_in::serve(theirs, built_in()));
    let external = External::open(ours, shape(), folder, folder.join("exchange"), options()).unwrap();
    (Driver::new(built_in()), Driver::new(external))
}

#[test]
fn wire_loses_nothing_of_a_training() {
    tch::set_num_threads(1);
    let folder = tempfile::tempdir().unwrap();
    let (mut near, mut far) = pair(folder.path());
    let seen = [Seen::default(), Seen::default()];
    near.trainer.add_sink(Box::new(seen[0].clone()));
    far.trainer.add_sink(Box::new(seen[1].clone()));
    near.publish(0);
    far.publish(0);
    for round in 0..3 {
        let batch = crate::train::tests::batch(round);
        let (ours, theirs) = (near.loss(&batch, LOSS).unwrap(), far.loss(&batch, LOSS).unwrap());
        // The wire groups tokens in another way, so sums round differently.
        assert!(apart(&ours, &theirs) < 1e-5, "{ours:?} {theirs:?}");
        let (ours, theirs) = (near.step(STEP), far.step(STEP));
        assert!((ours / theirs - 1.0).abs() < 1e-6, "{ours} {theirs}");
    }
    let roots = ["near", "far"].map(|name| folder.path().join(name));
    far.save(&roots[1]);
    near.load(&roots[1]);
    let batch = crate::train::tests::batch(9);
    for weights in [ForwardWeights::Trained, ForwardWeights::Reference] {
        let (ours, theirs) = (
            near.logprobs(&batch, weights).concat(),
            far.logprobs(&batch, weights).concat(),
        );
        let gaps = ours.iter().zip(&theirs).map(|(ours, theirs)| (ours - theirs).abs());
        assert!(gaps.fold(0.0, f32::max) < 1e-5, "{weights:?}: {ours:?} {theirs:?}");
    }
    near.publish(1);
    far.publish(1);
    assert_eq!(seen[0].digest(), seen[1].digest());
    assert_eq!(near.save(&roots[0]), far.save(&roots[1]));
    let files = |root: &Path| -> Vec<String> {
        let entries = std::fs::read_dir(root.join("step-1")).unwrap();
        let mut names: Vec<String> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    };
    assert_eq!(files(&roots[0]), files(&roots[1]));
    // Each trainer loads checkpoints of the other.
    far.load(&roots[0]);
    let batch = crate::train::tests::batch(4);
    let (ours, theirs) = (near.loss(&batch, LOSS).unwrap(), far.loss(&batch, LOSS).unwrap());
    assert!(apart(&ours, &theirs) < 1e-5, "{ours:?} {theirs:?}");
}

#[test]
fn what_an_external_trainer_has_not_is_refused_before_it_is_asked() {
    let folder = tempfile::tempdir().unwrap();
    let (_, mut far) = pair(folder.path());
    let batch = crate::train::tests::batch(0);
    let m2po = Surrogate::M2po {
        mode: M2poMode::Clip,
        budget: 0.1,
        scope: M2poScope::Minibatch,
    };
    let with = |surrogate| {
        Loss::Policy(Policy {
            surrogate,
            ..Policy::clipped(0.2, 0.2)
        })
    };
    for (loss, what) in [
        (with(m2po), "M2PO"),
        (with(Surrogate::Gspo { low: 0.1, high: 0.1 }), "GSPO"),
        (LOSS, "reference"),
    ] {
        let refused = far.loss(&batch, loss).unwrap_err();
        assert!(matches!(refused, TrainError::User { .. }), "{refused}");
        assert!(refused.to_string().contains(what), "{refused}");
    }
    far.loss(&batch, Loss::CrossEntropy).unwrap();
}

#[test]
fn lost_program_is_an_error_of_every_later_command() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let folder = tempfile::tempdir().unwrap();
    std::thread::spawn(move || {
        let trainer = Trainer::new(shape(), Weights::random(&shape(), INIT, 1).unwrap(), options()).unwrap();
        built_in::serve_some(theirs, trainer, 2);
    });
    let mut external =
        Driver::new(External::open(ours, shape(), folder.path(), folder.path().join("x"), options()).unwrap());
    external.publish(0);
    let batch = crate::train::tests::batch(0);
    for _ in 0..2 {
        let lost = external.loss(&batch, LOSS).unwrap_err();
        assert!(matches!(lost, TrainError::Lost(_)), "{lost}");
    }
}

/// `external/messages.jsonl` has one line of each command, as they pass over the wire.
#[test]
fn examples_of_the_page_are_the_messages() {
    let shape = shape();
    let layout = Layout::of(&shape);
    let row = WireRow {
        ids: vec![5, 9, 2],
        at: vec![1, 2],
        targets: vec![2, 7],
        advantage: vec![0.5; 2],
        old: vec![-1.25, -0.5],
        behaviour: vec![-1.25, -0.5],
        weight: vec![0.25; 2],
        temperature: vec![1.0; 2],
    };
    let (rows, folder) = (std::slice::from_ref(&row), Path::new("/run/checkpoints/a/.external"));
    let open = Open::of(&shape, &layout, Path::new("/models/a"), &options()).unwrap();
    let messages = [
        Message::Open(open),
        Message::Publish {
            seq: 1,
            folder,
            reference: true,
        },
        Message::Forward {
            seq: 2,
            rows,
            weights: ForwardWeights::Trained,
        },
        Message::ForwardBackward {
            seq: 3,
            rows,
            loss: &LOSS,
        },
        Message::ForwardBackward {
            seq: 4,
            rows,
            loss: &Loss::CrossEntropy,
        },
        Message::OptimStep { seq: 5, params: &STEP },
        Message::Save { seq: 6, folder },
        Message::Load {
            seq: 7,
            folder: Path::new("/run/checkpoints/a/step-3"),
            steps: 3,
            reference: true,
        },
        Message::End,
    ];
    let lines: Vec<String> = messages
        .iter()
        .map(|message| serde_json::to_string(message).unwrap())
        .collect();
    let text = lines.join("\n") + "\n";
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("external/messages.jsonl");
    if std::env::var("DYAD_GOLDEN").is_ok_and(|value| value == "write") {
        std::fs::write(&path, &text).unwrap();
    }
    assert_eq!(
        std::fs::read_to_string(path).unwrap(),
        text,
        "DYAD_GOLDEN=write renews it"
    );
}
